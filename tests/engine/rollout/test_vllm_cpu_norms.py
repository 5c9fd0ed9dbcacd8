"""The C++ norms against vLLM's tensor operations, and what they leave to those."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(180)]

EPSILON = 1e-6


@pytest.fixture(scope="module")
def ops():
    import vllm.kernels  # noqa: F401 (loads the CPU's kernels)
    from vllm import ir

    from engine.rollout import vllm_cpu_norms

    vllm_cpu_norms.install()
    vllm_cpu_norms.install()  # a second worker in one process
    with ir.op.enable_torch_wrap(False):
        yield ir.ops


def tensors(*, strided=False):
    import torch

    torch.manual_seed(0)
    x = torch.randn(40, 256)[:, ::2] if strided else torch.randn(40, 128)
    return x, torch.randn(40, 128), torch.randn(128)


def native(op, *arguments):
    return op.impls["native"].impl_fn(*arguments)


def test_both_norms_are_what_vllm_defines(ops):
    import torch

    from engine.rollout.vllm_cpu_norms import PROVIDER

    x, residual, weight = tensors()
    assert ops.rms_norm.dispatch(x, weight, EPSILON).provider == PROVIDER
    torch.testing.assert_close(ops.rms_norm(x, weight, EPSILON), native(ops.rms_norm, x, weight, EPSILON))

    wanted = native(ops.fused_add_rms_norm, x, residual, weight, EPSILON)
    assert ops.fused_add_rms_norm.dispatch(x, residual, weight, EPSILON).provider == PROVIDER
    for found, right in zip(ops.fused_add_rms_norm.maybe_inplace(x.clone(), residual.clone(), weight, EPSILON), wanted, strict=True):
        torch.testing.assert_close(found, right)


def test_a_caller_who_keeps_his_tensors_finds_them_unchanged(ops):
    import torch

    x, residual, weight = tensors()
    before = x.clone(), residual.clone()
    ops.fused_add_rms_norm(x, residual, weight, EPSILON)
    torch.testing.assert_close((x, residual), before)


@pytest.mark.parametrize("case", ["no weight", "part of the width", "another dtype", "strided rows"])
def test_what_the_kernels_do_not_do_is_left_to_vllm(ops, case):
    import torch

    x, _, weight = tensors(strided=case == "strided rows")
    arguments = (
        x,
        None if case == "no weight" else weight.double() if case == "another dtype" else weight,
        EPSILON,
        64 if case == "part of the width" else None,
    )
    assert ops.rms_norm.dispatch(*arguments).provider == "native"
    torch.testing.assert_close(ops.rms_norm(*arguments), native(ops.rms_norm, *arguments))
