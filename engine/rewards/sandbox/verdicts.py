"""What a sandboxed grading or run of code ends with: plain values, the same on both sides of the runner's socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ErrorKind = Literal[
    "import_error",  # the source does not load: syntax, an exception or an endless loop at import, no `grade` in it
    "exception",  # `grade` raised
    "exit",  # `grade` called sys.exit or raised KeyboardInterrupt
    "timeout",  # interrupted at the limit of one call
    "hard_timeout",  # did not let itself be interrupted: killed by the host
    "memory",  # more than the memory limit
    "bad_value",  # neither a finite number in range, nor a flat dict of such, nor None
    "too_large",  # this item is too large to be graded
    "crash",  # the process ended: os._exit, a segmentation fault, a forbidden system call
    "protocol",  # wrote to the reply channel what no honest worker writes: nothing of it was believed
    "aborted",  # not tried: too many workers were lost on items before this one
    "unavailable",  # ours: the runner could not be reached or could not start a worker; try again
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Graded:
    """``reward`` is finite. ``components`` holds the named parts of a reward that was a dict (without its own ``reward`` key)."""

    reward: float
    components: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class NotApplicable:
    """The reward answered None: it does not apply to this item. Not an error, and not 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """No reward. ``line`` counts from 1 in the tenant's source, None where it is not known.

    ``trace`` holds (line, function) of the tenant's own frames only, outermost first. All texts are short, printable Unicode.
    """

    kind: ErrorKind
    message: str
    line: int | None = None
    trace: tuple[tuple[int, str], ...] = ()


Verdict = Graded | NotApplicable | Failed


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """``call_seconds``: one call of ``grade`` is interrupted then, and its process killed ``HARD_GRACE_SECONDS`` later.

    ``max_losses``: workers that one request may cost (kills, crashes, timeouts) before its remaining items end as ``aborted``.
    """

    call_seconds: float = 5.0
    max_losses: int = 16

    def __post_init__(self) -> None:
        if not 0.01 <= self.call_seconds <= MAX_CALL_SECONDS:
            raise ValueError(f"call_seconds must be between 0.01 and {MAX_CALL_SECONDS:g}, not {self.call_seconds:g}")
        if self.max_losses < 1:
            raise ValueError("max_losses must be at least 1")


MAX_CALL_SECONDS = 120.0
HARD_GRACE_SECONDS = 0.5
LOAD_SECONDS = 10.0
MAX_SOURCE_BYTES = 256 * 1024
MAX_ITEM_BYTES = 4 * 2**20
MAX_OUTPUT_BYTES = 16 * 1024
MAX_ABS_REWARD = 1e9
MEMORY_BYTES = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a reward printed during its latest batch: the first 16 kB, and how many more bytes it wrote."""

    text: str = ""
    dropped_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class StdinTest:
    """Runs the code as a program in a process of its own. Passes when it ends with status 0 and printed ``stdout``.

    Compared line by line, without trailing white space and trailing empty lines.
    """

    stdin: str
    stdout: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CallTest:
    """Calls ``function``, which the code defines. Passes when the value equals ``expected`` (JSON; a tuple counts as a list)."""

    function: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertTest:
    """Python with asserts (MBPP's and HumanEval's form). Runs in another process than the code: what the code defines is called from
    afar, and plain values (numbers, texts, lists, tuples, sets, dicts) cross. Passes when it runs to its end."""

    source: str


CodeTest = StdinTest | CallTest | AssertTest


@dataclass(frozen=True, kw_only=True, slots=True)
class TestOutcome:
    """``error`` is None when the test passed, or when it ran and the answer was wrong; ``message`` then says what was expected."""

    __test__ = False  # not a test case of pytest's

    passed: bool
    message: str = ""
    error: Failed | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What a program printed, the first 16 kB of it, how many more bytes it wrote, and how it failed: None when it ended well."""

    text: str
    dropped_bytes: int = 0
    error: Failed | None = None


def to_json(verdict: Verdict) -> dict[str, Any]:
    """``{"reward": x}``, with ``components`` where there are any, ``{"reward": None}``, or ``{"error": {"kind", "message", "line"}}``."""
    if isinstance(verdict, Graded):
        return {"reward": verdict.reward, **({"components": dict(verdict.components)} if verdict.components else {})}
    if isinstance(verdict, NotApplicable):
        return {"reward": None}
    return {"error": {"kind": verdict.kind, "message": verdict.message, "line": verdict.line}}
