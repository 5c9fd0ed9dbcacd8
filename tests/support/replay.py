"""Every committed step done again from what is on disk, by a trainer that nobody disturbed: are they the same bytes (I5)?

``python -m tests.support.replay STATE`` prints what differs, in a process of its own: torch's threads are bounded before it is imported.
The engine need not run, and its settings must be those of the environment.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from engine import device
from engine import settings as engine_settings
from engine.journal import read_all
from engine.ports import TrainRequest, TrainResult
from engine.spec import Submission
from engine.store import SNAPSHOT_FILES, batch_path, read_verified


def requests(root: Path) -> Iterator[TrainRequest]:
    """What the trainer was asked for each committed step below the engine's directory ``root``, in the order of the commits."""
    specs = {}
    for event in read_all(root / "journal"):
        home = root / "jobs" / event.job
        if event.kind == "accepted":
            specs[event.job] = Submission.model_validate(event.data["submission"]).spec
        elif event.kind == "step":
            version, attempt = event.data["trained_from"], event.data["attempt"]
            yield TrainRequest(
                job=event.job,
                version=version,
                attempt=attempt,
                spec=specs[event.job],
                snapshot=read_verified(home / f"v{version}", SNAPSHOT_FILES),
                batch=batch_path(home, version, attempt).read_bytes(),
                deadline_seconds=60.0,
            )


def differences(root: Path, step: Callable[[TrainRequest], TrainResult]) -> Iterator[str]:
    """The files of committed versions that ``step`` does not give again, and as the last line how many steps were looked at."""
    count = 0
    for request in requests(root):
        count += 1
        committed = read_verified(root / "jobs" / request.job / f"v{request.version + 1}", SNAPSHOT_FILES)
        again = step(request).snapshot
        differing = sorted(name for name in committed.keys() | again.keys() if committed.get(name) != again.get(name))
        if differing:
            yield f"I5: {request.job} v{request.version + 1} comes out otherwise in {', '.join(differing)}"
    yield f"{count} steps"


def main(state: Path) -> None:
    settings = engine_settings.load(state=state)
    device.limit_threads(os.environ, max(1, len(settings.train_core_ids)))
    from engine.train.worker import TrainWorker

    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        trainer = TrainWorker.start(settings, rank=0, world_size=1, init_method=f"file://{folder}/rendezvous")
        for line in differences(settings.engine_dir, trainer.step):
            print(line, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
