"""The real engine on this machine, measured from outside through its HTTP door.

    python -m engine.bench --workload agentic --jobs 10 --regimes all --json F     the same work under each scheduling regime
    python -m engine.bench --workload peer-plain --jobs 8 --json F                 a load that other systems were measured with
    python -m engine.bench profile --json F                                        this machine's speeds, for the simulator
    python -m engine.bench kv --jobs 12 --json F                                   adaptive admission with too little KV cache
    python -m engine.bench learning --seeds 5 --json F                             held-out accuracy gained by every loss
    python -m engine.bench words --json F                                          a chat model learns word problems, held out

Uses the engine at MARLAAS_ENGINE_URL if one is up, else starts one; its start is not part of any figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx

from engine.bench import kv, learning, peers, profiling, regimes_main, words
from engine.bench.loads import WORKLOADS
from engine.bench.measure import ALL
from engine.bench.parts import PartFailed
from engine.core.policy import REGIMES
from engine.runtime.readiness import StartFailed
from engine.settings import SettingsError
from engine.sim.profile import ProfileError

COMMANDS = {"profile": profiling.main, "kv": kv.main, "learning": learning.main, "words": words.main}
# With this, ten agentic jobs under three regimes take less than six minutes: a regime of one job at a time is cut.
CUT_SECONDS = 80.0


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every job succeeded, 1 when one did not or the engine did not start; a bad call exits with 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in COMMANDS:
            return COMMANDS[given[0]](given[1:])
        options = parsed(given)
        return regimes_main.main(options) if options.regimes else peers.main(options)
    except (SettingsError, StartFailed, PartFailed, ProfileError, OSError, httpx.HTTPStatusError) as error:
        print(error, file=sys.stderr)
        return 1


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The peers' loads are run as they are unless regimes are named; all others under all regimes."""
    options = parser().parse_args(arguments)
    peer = options.workload.startswith("peer-")
    options.jobs = options.jobs or (8 if peer else 10)
    options.regimes = options.regimes or (() if peer else ALL)
    return options


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(prog="python -m engine.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("--workload", choices=list(WORKLOADS), default="agentic")
    cli.add_argument("--jobs", type=_positive, help="default: 10, of the peers' loads 8")
    cli.add_argument("--regimes", type=_regimes, help=f"all, or some of {','.join(REGIMES)}; default: all, of the peers' loads none")
    cli.add_argument("--rounds", type=_positive, default=1, help="each regime so often, in another order each time; medians are reported")
    cli.add_argument("--seed", type=int, default=0, help="of the order of the regimes")
    help_cut = "cancel what a run has not done by then and say so (0: never); default: %(default)s"
    cli.add_argument("--cut", type=float, default=CUT_SECONDS, metavar="SECONDS", help=help_cut)
    cli.add_argument("--no-bound", action="store_true", help="do not replay the work for bound_s")
    cli.add_argument("--profile", type=Path, help="a machine profile (see profile), for predictions beside the measurements")
    cli.add_argument("--json", type=Path, help="write the figures there")
    cli.add_argument("--report", type=Path, help="the folder of the readable report; default: bench/ in the state folder")
    return cli


def _regimes(text: str) -> tuple[str, ...]:
    names = ALL if text == "all" else tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in names if name not in REGIMES]:
        raise argparse.ArgumentTypeError(f"unknown regime {unknown[0]!r}; choose all or among {', '.join(REGIMES)}")
    return names


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


if __name__ == "__main__":
    sys.exit(main())
