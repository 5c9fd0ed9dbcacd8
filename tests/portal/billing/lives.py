"""Processes that are killed at random lines: ``python -m tests.portal.billing.lives PLAN``. Each goes on where the last one was cut off.

It loads Django once and forks a child; the child takes the engine's steps into the ledger and tells Stripe of them, until all is done
or a line kills it (``SIGKILL``, of its own hand, so that the line is the seed's choice). Then the next child is forked. Nothing that
must outlive a child is in memory: the steps are a file, the time and Stripe are outside, and what was reached is in the database.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import random
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from tests.fake_stripe.process import WORLD
from tests.support.shared_numbers import SharedNumbers

RAN, DIED = 1, 2
MOST_LINES = 2000  # of one module
MOST_BEATS = 300  # until all is told, an hour apart
# Where nobody has died yet, death is likelier, so that many lives come past every line and few end at the same.
FRESH, KNOWN = 0.02, 0.0001


class Lines:
    """Which lines of ``modules`` ran, and at which of them somebody died; shared by all lives."""

    def __init__(self, modules: list[ModuleType]):
        self._names = [module.__name__ for module in modules]
        self._bases = {str(module.__file__): number * MOST_LINES for number, module in enumerate(modules)}
        self._marks = mmap.mmap(-1, len(modules) * MOST_LINES)

    def kill_at_random(self, chance: random.Random) -> None:
        """From here on this process lives until chance has it."""
        bases, marks = self._bases, self._marks

        def called(frame: FrameType, event: str, _: Any) -> Any:
            base = bases.get(frame.f_code.co_filename)
            return None if base is None else at_line(base)

        def at_line(base: int) -> Any:
            def line(frame: FrameType, event: str, _: Any) -> Any:
                if event == "line":
                    place = base + frame.f_lineno
                    if chance.random() < (KNOWN if marks[place] == DIED else FRESH):
                        marks[place] = DIED
                        os.kill(os.getpid(), signal.SIGKILL)
                    marks[place] = marks[place] or RAN
                return line

            return line

        sys.settrace(called)

    def marked(self, *marks: int) -> list[str]:
        """module:line of those."""
        found = (place for place, mark in enumerate(self._marks[:]) if mark in marks)
        return [f"{self._names[place // MOST_LINES]}:{place % MOST_LINES}" for place in found]


class Life:
    """One process: it stores what the engine has done, tells Stripe, and lets the engine go on when both are done."""

    def __init__(self, plan: dict[str, Any], world: SharedNumbers, chance: random.Random):
        from portal.billing import stripe_client

        self.plan, self.world, self.chance = plan, world, chance
        self.journal = [json.loads(line) for line in Path(plan["journal"]).read_text().splitlines()]
        self.stripe = stripe_client.connect()

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.world["now"], UTC)

    def lead(self) -> None:
        steps = self.plan["steps"]
        while True:
            self.store()
            self.beat()
            if (number := self.world["released"]) == len(steps):
                break
            self.release(steps[number])
        while self.waits():
            assert self.world["beats"] < MOST_BEATS, "usage is never told"
            self.world["beats"] += 1
            self.world["now"] += 3600
            self.beat()

    def release(self, step: dict[str, int]) -> None:
        """Not of this process: the engine does its next step, time passes, Stripe comes and goes."""
        self.world["now"] += step["seconds"]
        self.world["down"], self.world["faults_per_mille"] = step["down"], step["faults_per_mille"]
        self.world["released"] += 1

    def store(self) -> None:
        """What is new in the journal; now and then from an older cursor, as after a restored backup."""
        from portal.jobs import ingest
        from portal.jobs.models import EngineCursor

        number = self.world["released"]
        end = self.plan["steps"][number - 1]["journal"] if number else self.plan["accepted"]
        cursor = EngineCursor.objects.get_or_create(engine=self.plan["engine"], defaults={"current": True})[0]
        if self.chance.random() < 0.1:
            cursor.offset = self.chance.randrange(cursor.offset + 1)
            EngineCursor.objects.filter(pk=cursor.pk).update(offset=cursor.offset)
        events = self.journal[cursor.offset : end]
        page = ingest.Page.parse({"engine": self.plan["engine"], "epoch": 1, "events": events, "last": end})
        ingest.store(page, cursor.offset, self.now)

    def beat(self) -> None:
        from portal.billing import outbox

        outbox.seal(self.now)
        outbox.send(self.stripe, self.now, monotonic=lambda: 0.0, chance=self.chance.random)

    def waits(self) -> bool:
        from portal.billing.models import MeterEvent

        return MeterEvent.objects.filter(sent_at=None).exists()


def prepare(plan: dict[str, Any]) -> list[ModuleType]:
    """Django on the test's database; the modules whose lines kill."""
    from django.conf import settings

    settings.DATABASES["default"].update(plan["database"])
    settings.STRIPE_KEY, settings.STRIPE_WEBHOOK_SECRET, settings.STRIPE_API_BASE = plan["stripe"]
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    settings.EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
    import django

    django.setup()
    from portal.billing import charging, gate, holds, ledger, meter, outbox, stripe_client, stripe_customers
    from portal.celery import app
    from portal.jobs import ingest, lifecycle

    app.conf.update(task_always_eager=True)
    return [ingest, lifecycle, charging, meter, ledger, holds, gate, outbox, stripe_client, stripe_customers]


def lives(seed: int, lines: Lines, lead: Callable[[random.Random], None]) -> int:
    """How many were killed until one came to its end. Raises ``RuntimeError`` for one that ended in any other way."""
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                chance = random.Random(f"{seed}:{killed}")
                lines.kill_at_random(chance)
                lead(chance)
                sys.settrace(None)
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                os._exit(status)
        status = os.waitpid(child, 0)[1]
        if status == 0:
            return killed
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            raise RuntimeError(f"life {killed} ended with status {status}, and not by a kill")
        killed += 1


def main(path: str) -> None:
    plan = json.loads(Path(path).read_text())
    lines = Lines(prepare(plan))
    world = SharedNumbers(Path(plan["world"]), WORLD)
    gc.freeze()  # children share what is there, and write no counts into it
    killed = lives(plan["seed"], lines, lambda chance: Life(plan, world, chance).lead())
    found = {"killed": killed, "ran": len(lines.marked(RAN, DIED)), "died_at": lines.marked(DIED), "spared": lines.marked(RAN)}
    Path(plan["report"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
