"""Imports from memory. Behind the walls no path can be opened, so the template reads every module that a tenant may import beforehand.

Modules are kept as bytecode where a valid ``.pyc`` lies beside the source, else as source. Children share the pages with the template.
Extension modules cannot be loaded behind the walls (nothing may become executable): the template imports them all.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import marshal
import os
import sys
from collections.abc import Iterator
from importlib.abc import InspectLoader, MetaPathFinder

_PYC_HEADER_BYTES = 16
_NOT_MODULES = ("__pycache__", "site-packages", "dist-packages", "lib-dynload", "test", "tests")
_NOT_HERE = ("idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip")
_SKIPPED_FOLDERS = frozenset({*_NOT_MODULES, *_NOT_HERE})
_SKIPPED_EXTENSIONS = ("_test", "_ctypes_test", "xx", "_tkinter", "_curses", "readline", "_dbm", "_gdbm", "nis", "ossaudiodev", "spwd")
_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


class Library(MetaPathFinder, InspectLoader):
    """Finder and loader of the modules below ``roots``: (folder, package name; "" for the standard library)."""

    def __init__(self, roots: list[tuple[str, str]]):
        self._modules: dict[str, tuple[str, bool, bytes, bool]] = {}
        for folder, package in roots:
            for name, path, is_package in _sources(folder, package):
                self._modules.setdefault(name, (path, is_package, *_content(path)))

    def find_spec(self, fullname, path=None, target=None):
        if fullname not in self._modules:
            return None
        path, is_package, _, _ = self._modules[fullname]
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=path, is_package=is_package)
        if is_package:
            spec.submodule_search_locations = [os.path.dirname(path)]
        return spec

    def get_code(self, fullname):
        path, _, content, compiled = self._modules[fullname]
        return marshal.loads(content) if compiled else compile(content, path, "exec", dont_inherit=True)

    def get_source(self, fullname):
        return None

    def is_package(self, fullname):
        return self._modules[fullname][1]

    def exec_module(self, module):
        module.__file__ = self._modules[module.__name__][0]
        exec(self.get_code(module.__name__), module.__dict__)


def import_extensions(folder: str, package: str) -> None:
    """Import every extension module below ``folder``; what does not import here is not to be had inside."""
    for base, _, files in _walk(folder):
        inner = os.path.relpath(base, folder).replace(os.sep, ".")
        names = [package, *([] if inner == "." else [inner])]
        for file in files:
            if file.endswith(_SUFFIX) and not file.startswith(_SKIPPED_EXTENSIONS):
                _try_import(".".join([*filter(None, names), file.removesuffix(_SUFFIX)]))


def _try_import(name: str) -> None:
    try:
        importlib.import_module(name)
    except (ImportError, OSError, AttributeError):
        sys.modules.pop(name, None)


def packages_in(folders: list[str]) -> list[tuple[str, str]]:
    """(folder, name) of the top-level packages loaded so far that lie in ``folders``: what the preloaded libraries are made of."""
    found = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__path__", None)
        if "." not in name and path and os.path.dirname(next(iter(path))) in folders:
            found[name] = next(iter(path))
    return [(folder, name) for name, folder in sorted(found.items())]


def _walk(folder: str) -> Iterator[tuple[str, list[str], list[str]]]:
    for base, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
        yield base, folders, files


def _sources(folder: str, package: str) -> Iterator[tuple[str, str, bool]]:
    """(module name, path, whether it is a package)."""
    for base, _, files in _walk(folder):
        inner = os.path.relpath(base, folder)
        names = [*filter(None, [package]), *([] if inner == "." else inner.split(os.sep))]
        for file in files:
            if not file.endswith(".py"):
                continue
            path = os.path.join(base, file)
            if file == "__init__.py":
                if names:
                    yield ".".join(names), path, True
            else:
                yield ".".join([*names, file[:-3]]), path, False


def _content(path: str) -> tuple[bytes, bool]:
    """(bytes, whether they are marshalled bytecode)."""
    compiled = importlib.util.cache_from_source(path)
    try:
        with open(compiled, "rb") as file:
            content = file.read()
        if _is_current(content, os.stat(path)):
            return content[_PYC_HEADER_BYTES:], True
    except OSError:
        pass
    with open(path, "rb") as file:
        return file.read(), False


def _is_current(content: bytes, source: os.stat_result) -> bool:
    """Whether a .pyc is of this Python and, where it is dated (flags 0), of this source."""
    if content[:4] != importlib.util.MAGIC_NUMBER or content[4:8] != bytes(4):
        return False
    return content[8:12] == (int(source.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little") and content[12:16] == (
        source.st_size & 0xFFFFFFFF
    ).to_bytes(4, "little")
