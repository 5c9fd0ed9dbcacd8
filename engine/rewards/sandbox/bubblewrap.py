"""The command that puts the template into namespaces of its own: no network, no other process, and of the file system only the interpreter,
the libraries and one folder of ours, read-only."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence

_SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache")
_NAMESPACES = ("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")


def program() -> str | None:
    return shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")


def command(shown: Sequence[str], *, as_root: bool, environment: Mapping[str, str]) -> list[str]:
    """``shown``: paths visible inside. ``as_root``: the template keeps just what it takes to give each worker a user of its own."""
    words = [program() or "bwrap", *_NAMESPACES, "--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv"]
    words += ["--cap-drop", "ALL"]
    words += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if as_root else ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    for path in _SYSTEM_LIBRARIES:
        words += ["--ro-bind-try", path, path]
    for path in shown:
        words += ["--ro-bind", path, path]
    words += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/", "--chdir", "/"]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    return [*words, "--"]
