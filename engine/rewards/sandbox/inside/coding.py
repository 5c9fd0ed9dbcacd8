"""The code that a model wrote, and tests of it, each in a process of its own. Verdicts are the host's; this only runs and reports."""

from __future__ import annotations

import ast
import builtins
import io
import sys
from typing import Any

from . import guard, wire
from .values import pack, unpack

_FAILED = 1


class Coder:
    def __init__(self, keeper: guard.Guard):
        self._guard = keeper
        self._namespace: dict[str, Any] = {}

    def program(self, request: dict) -> None:
        """Run as a script: standard input given, output to descriptor 1, the exit status says how it went. Never returns.

        With ``echo`` a last line that is an expression prints its value, as in an interactive session.
        """
        sys.stdin = io.TextIOWrapper(io.BytesIO(request["stdin"].encode("utf-8", "surrogatepass")), encoding="utf-8", errors="replace")
        sys.stdout = sys.__stdout__ = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), encoding="utf-8", errors="backslashreplace")
        source = request["source"]
        namespace = guard.module("__main__", source, guard.CODE_FILE)
        sys.modules["__main__"] = namespace
        execute = _echoing if request.get("echo") else guard.execute
        _, error = self._guard.run(request["seconds"], execute, source, guard.CODE_FILE, namespace.__dict__)
        sys.stdout.flush()
        if error and not _ended_well(error):
            wire.send({"error": error})
            guard.leave(_FAILED)
        guard.leave(0)

    def define(self, request: dict) -> None:
        """Load the code; answers {"defined": [names of its functions and classes]} or {"error"}."""
        module = guard.module("solution", request["source"], guard.CODE_FILE)
        sys.modules["solution"] = module
        self._namespace = module.__dict__
        _, error = self._guard.run(request["seconds"], guard.execute, request["source"], guard.CODE_FILE, self._namespace)
        if error:
            wire.send({"error": error})
            return
        wire.send({"defined": [name for name, value in self._namespace.items() if type(name) is str and callable(value)][:1000]})

    def call(self, request: dict) -> None:
        """Call one function; answers {"value": tagged} or {"error"}."""
        value, error = self._guard.run(request["seconds"], self._called, request["function"], request["args"], request["kwargs"])
        wire.send({"error": error} if error else {"value": value})

    def _called(self, name: str, args: Any, kwargs: Any) -> Any:
        if name not in self._namespace:
            raise NameError(f"the code defines no {name!r}")
        return pack(self._namespace[name](*unpack(args), **unpack(kwargs)))

    def judge(self, request: dict) -> None:
        """Run tests against code that lives elsewhere; answers {"passed": true} or {"error"} after any number of {"call", …}."""
        module = guard.module("tests", request["source"], guard.TESTS_FILE)
        used = {node.id for node in ast.walk(_parsed(request["source"])) if isinstance(node, ast.Name)}
        for name in set(request["defined"]) & used - set(dir(builtins)):
            module.__dict__[name] = _Remote(name)
        _, error = self._guard.run(request["seconds"], guard.execute, request["source"], guard.TESTS_FILE, module.__dict__)
        wire.send({"error": error} if error else {"passed": True})


class _Remote:
    """A function of the code under test, as its tests see it."""

    def __init__(self, name: str):
        self.__name__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        wire.send({"call": self.__name__, "args": pack(args), "kwargs": pack(kwargs)})
        reply = wire.receive()
        if "value" in reply:
            return unpack(reply["value"])
        raise _exception(reply["error"])


def _exception(error: dict) -> BaseException:
    """The exception that the code raised, of its builtin type, so that tests of errors work."""
    name, _, text = error["message"].partition(": ")
    found = getattr(builtins, name, None)
    if isinstance(found, type) and issubclass(found, Exception):
        return found(text)
    return RuntimeError(error["message"])


def _echoing(source: str, file: str, namespace: dict) -> None:
    tree = ast.parse(source, file)
    last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
    exec(compile(tree, file, "exec", dont_inherit=True), namespace)
    exec(compile(ast.Interactive(last), file, "single", dont_inherit=True), namespace)


def _parsed(source: str) -> ast.AST:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # The run that follows fails on it with the right words and line.
        return ast.Module(body=[], type_ignores=[])


def _ended_well(error: dict) -> bool:
    return error["kind"] == "exit" and error["message"] in ("SystemExit", "SystemExit: 0", "SystemExit: None")
