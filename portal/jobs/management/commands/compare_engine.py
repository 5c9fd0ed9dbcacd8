from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from portal import gateway
from portal.jobs import compare


class Command(BaseCommand):
    help = (
        "Whether the engine and the database are of one mind about every job; they may differ after either was restored from a backup. "
        "Prints each difference; ends with status 1 when there is one that nobody has set right."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--mend", action="store_true", help="set right what can be, as the ingester does with each start of the engine")
        parser.add_argument("--cancel-strangers", action="store_true", help="end the engine's jobs that no tenant has")

    def handle(self, *, mend: bool, cancel_strangers: bool, **_: Any) -> None:
        try:
            left = self._compare(mend, cancel_strangers)
        except (gateway.EngineDown, gateway.EngineRefused, compare.BadStatus) as error:
            raise CommandError(f"Nothing was compared: {error}") from error
        if left:
            sys.exit(1)

    def _compare(self, mend: bool, cancel_strangers: bool) -> int:
        """The number of differences that stay, with all engines."""
        return sum(self._compare_one(name, mend, cancel_strangers) for name in gateway.names())

    def _compare_one(self, name: str, mend: bool, cancel_strangers: bool) -> int:
        before = compare.taken()
        status = compare.Status.parse(gateway.engine(name).status())
        found = compare.mend(status, before, timezone.now(), name).findings if mend else compare.survey(status, before, name)[0]
        strangers = [finding.job for finding in found if finding.kind == "stranger"]
        for finding in found:
            self.stdout.write(str(finding))
        self.stdout.write(f"{len(status.jobs)} jobs in the engine{name and f' {name}'}, {len(found)} differences")
        if cancel_strangers:
            compare.cancel(strangers, name)
        return len(found) - (len(found) - len(strangers) if mend else 0) - (len(strangers) if cancel_strangers else 0)
