"""``python -m engine.rewards run | bench``: a Python reward in the sandbox, from a shell."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.rewards.sandbox import Failed, Graded, Limits, Sandbox, SandboxSettings, TooWeak, Verdict, to_json

_BAD_CALL, _TOO_WEAK = 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 when every item has an answer (an error is one), 2 for a bad call, 3 where the machine cannot hold the tier."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        return asyncio.run(options.run(options))
    except TooWeak as error:
        print(error, file=sys.stderr)
        return _TOO_WEAK
    except (OSError, UnicodeDecodeError, BadItems) as error:
        print(error, file=sys.stderr)
        return _BAD_CALL


class BadItems(ValueError):
    """A line of the items' file that is no item."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.rewards", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="grade the items of a file and print one result per item, in order")
    run.add_argument("--source", type=Path, required=True, help="Python that defines grade(sample, item)")
    run.add_argument("--items", type=Path, required=True, help='one {"sample": {...}, "item": {...}} a line')
    run.add_argument("--call-seconds", type=float, default=5.0, help="time limit of one call (default: 5)")
    run.add_argument("--show-output", action="store_true", help="print what the reward printed to standard error")
    bench = commands.add_parser("bench", help="measure the sandbox on this machine")
    for command in (run, bench):
        command.add_argument("--tier", choices=("auto", "plain", "bwrap"), default="auto", help="the walls (default: the best there are)")
        command.add_argument("--json", action="store_true", help="print JSON")
    run.set_defaults(run=_run)
    bench.set_defaults(run=_bench)
    return parser


async def _run(options: argparse.Namespace) -> int:
    # As the engine's own rewards come, by value; a byte that is no UTF-8 is a syntax error of the reward's, not ours.
    source = options.source.read_bytes().decode("utf-8", "surrogateescape")
    items = [_item(line, number) for number, line in enumerate(options.items.read_text().split("\n"), start=1) if line.strip()]
    limits = Limits(call_seconds=options.call_seconds, max_losses=max(1, len(items)))
    sandbox = Sandbox(SandboxSettings(tier=options.tier))
    try:
        strength = await sandbox.start()
        print(strength, file=sys.stderr)
        verdicts = await sandbox.grade("command line", source, items, limits)
        output = await sandbox.output("command line", source)
    finally:
        await sandbox.close()
    for number, verdict in enumerate(verdicts, start=1):
        print(json.dumps(to_json(verdict)) if options.json else f"{number:>6}  {_words(verdict)}")
    if options.show_output:
        print(output.text, f"({output.dropped_bytes} more bytes)" if output.dropped_bytes else "", file=sys.stderr)
    return 0


def _item(line: str, number: int) -> dict[str, Any]:
    """A row without ``sample`` and ``item`` is taken as the item, and its ``output_text`` (or ``completion``) as the sample's text."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadItems(f"line {number} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadItems(f"line {number} is no JSON object")
    if "sample" not in row and "item" not in row:
        return {"sample": {"output_text": str(row.get("output_text", row.get("completion", "")))}, "item": row}
    parts = {"sample": row.get("sample", {}), "item": row.get("item", {})}
    if not all(isinstance(part, dict) for part in parts.values()):
        raise BadItems(f"line {number}: sample and item must be objects")
    return parts


def _words(verdict: Verdict) -> str:
    if isinstance(verdict, Graded):
        return f"{verdict.reward:g}" + "".join(f"  {name}={value:g}" for name, value in verdict.components.items())
    if isinstance(verdict, Failed):
        return f"{verdict.kind}{f' in line {verdict.line}' if verdict.line else ''}: {verdict.message}"
    return "does not apply"


async def _bench(options: argparse.Namespace) -> int:
    from engine.rewards.bench import measure, words

    figures = await measure(SandboxSettings(tier=options.tier))
    print(json.dumps(figures, indent=2) if options.json else words(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
