"""``python -m engine serve | demo | audit``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engine import settings


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 when all went well, 1 when it did not, 2 for a bad call or bad settings."""
    options = _parser().parse_args(arguments)
    try:
        loaded = settings.load(**({"model": options.model} if options.model else {}))
        return options.run(loaded, options)
    except settings.SettingsError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine", description=__doc__)
    parser.add_argument("--model", help="the base model; default: MARLAAS_MODEL or tiny-math")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="run the engine in the foreground until SIGTERM")
    serve.set_defaults(run=_serve)
    demo = commands.add_parser("demo", help="run jobs of several tenants to their end and show how they share the engine")
    demo.add_argument("--json", type=Path, help="write the figures there")
    demo.add_argument("--jobs", type=int, default=3)
    demo.add_argument("--steps", type=int, default=45)
    demo.add_argument("--lr", type=float, default=1e-3, help="learning rate; 0 is the control run")
    demo.set_defaults(run=_demo)
    audit = commands.add_parser("audit", help="check the engine's invariants on disk")
    audit.set_defaults(run=_audit)
    return parser


def _serve(loaded: settings.EngineSettings, options: argparse.Namespace) -> int:
    from engine.runtime.launcher import serve

    return serve(loaded)


def _demo(loaded: settings.EngineSettings, options: argparse.Namespace) -> int:
    from engine.demo import demo

    return demo(loaded, jobs=options.jobs, steps=options.steps, learning_rate=options.lr, figures=options.json)


def _audit(loaded: settings.EngineSettings, options: argparse.Namespace) -> int:
    from engine.audit import main as audit

    return audit(loaded.engine_dir)


if __name__ == "__main__":
    sys.exit(main())
