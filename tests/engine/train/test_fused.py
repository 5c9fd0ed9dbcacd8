from __future__ import annotations

import pytest

pytestmark = pytest.mark.engine

ROWS, INPUTS, OUTPUTS, RANK, SCALE = 7, 5, 6, 3, 1.7


@pytest.fixture
def parts():
    import torch

    generator = torch.Generator().manual_seed(0)
    shapes = ((ROWS, INPUTS), (OUTPUTS, INPUTS), (RANK, INPUTS), (OUTPUTS, RANK))
    x, w, a, b = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return x.requires_grad_(), w, a.requires_grad_(), b.requires_grad_()


def test_the_product_is_that_of_the_formula(parts):
    import torch

    from engine.train.fused import LoraProduct

    x, w, a, b = parts
    torch.testing.assert_close(LoraProduct.apply(x, w, a, b, SCALE), x @ w.t() + SCALE * (x @ a.t()) @ b.t())


def test_its_gradients_are_those_of_finite_differences(parts):
    import torch

    from engine.train.fused import LoraProduct

    assert torch.autograd.gradcheck(lambda x, w, a, b: LoraProduct.apply(x, w, a, b, SCALE), parts)


def test_an_input_that_needs_no_gradient_gets_none(parts):
    from engine.train.fused import LoraProduct

    x, w, a, b = parts
    LoraProduct.apply(x.detach(), w, a, b, SCALE).sum().backward()
    assert x.grad is None and a.grad is not None


def layer(*, bias: bool):
    import torch
    from peft import LoraConfig

    from engine.train.fused import FusedLoraLinear

    base = torch.nn.Linear(INPUTS, OUTPUTS, bias=bias).requires_grad_(False)
    return FusedLoraLinear(base, adapter_name="a", config=LoraConfig(r=RANK), r=RANK)


@pytest.mark.parametrize(("bias", "fused"), [(False, True), (True, False)])
def test_a_layer_is_fused_unless_it_has_a_bias_and_equals_pefts_either_way(bias, fused):
    import torch
    from peft.tuners.lora import Linear

    own, x = layer(bias=bias), torch.randn(2, ROWS, INPUTS)
    torch.nn.init.normal_(own.lora_B["a"].weight)
    y = own(x)
    assert ("LoraProduct" in str(y.grad_fn.next_functions)) == fused
    torch.testing.assert_close(y, Linear.forward(own, x))


def test_every_layer_of_the_trainer_is_one_of_these(worker):
    from engine.train.fused import FusedLoraLinear
    from tests.engine.train.recorded import make_spec

    worker.fresh("a", make_spec())
    assert {type(layer) for layer in worker.model.adapters._layers} == {FusedLoraLinear}
