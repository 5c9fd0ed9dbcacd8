"""What the trainer is asked for, read from the store. The next in line is read, and handed to the trainer, while the last is at work."""

from __future__ import annotations

import asyncio
import logging

from engine.core.messages import PrepareTrain, StartTrain
from engine.driver import Deadlines, Driver
from engine.history import JobHistory
from engine.ports import PortError, TrainPort, TrainRequest
from engine.store import Store

logger = logging.getLogger(__name__)


class TrainRequests:
    """Keeps one request in memory at most."""

    def __init__(self, driver: Driver, *, store: Store, train: TrainPort, deadlines: Deadlines):
        self._driver, self._store, self._train, self._deadlines = driver, store, train, deadlines
        self._ahead: tuple[tuple[str, int, int], asyncio.Future[TrainRequest]] | None = None

    async def prepare(self, job: JobHistory, command: PrepareTrain) -> None:
        """Takes the place of the last one. What fails here is told when its turn comes."""
        reading = self._reading(job, command)
        self._ahead = (_key(command), reading)
        try:
            ahead = self._train.prepare(await asyncio.shield(reading))
            await self._driver.call(ahead, seconds=self._deadlines.control, what="preparing the next training")
        except PortError as error:
            logger.warning("job %s: %s", job.job, error.reason)
        except Exception:
            logger.exception("job %s: its training could not be prepared", job.job)

    async def take(self, job: JobHistory, command: StartTrain) -> TrainRequest:
        """Raises what the store raises."""
        if self._ahead is not None and self._ahead[0] == _key(command):
            reading, self._ahead = self._ahead[1], None
            return await asyncio.shield(reading)
        return await self._reading(job, command)

    def _reading(self, job: JobHistory, command: PrepareTrain | StartTrain) -> asyncio.Future[TrainRequest]:
        return asyncio.ensure_future(asyncio.to_thread(self._read, job, command))

    def _read(self, job: JobHistory, command: PrepareTrain | StartTrain) -> TrainRequest:
        return TrainRequest(
            job=job.job,
            version=command.version,
            attempt=command.attempt,
            spec=job.spec,
            snapshot=self._store.snapshot(job.job, command.version),
            batch=self._store.read_rollout(job.job, command.version, command.attempt),
            deadline_seconds=self._deadlines.train,
        )


def _key(command: PrepareTrain | StartTrain) -> tuple[str, int, int]:
    return command.job, command.version, command.attempt
