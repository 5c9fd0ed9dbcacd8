"""The barrier of the synchronous regimes: a round of rollouts, then a round of trainings, then the next."""

from __future__ import annotations

from collections.abc import Iterable


class Rounds:
    """Members still owe this round a commit; the lobby waits for the next round, in order of arrival.

    Who comes while the round is still rolling out joins it: otherwise the first of many jobs would run a round alone.
    """

    def __init__(self) -> None:
        self._members: set[str] = set()
        self._lobby: dict[str, None] = {}
        self._training = False

    def is_joinable(self) -> bool:
        return bool(self._members) and not self._training

    def training_began(self) -> None:
        self._training = True

    def wait(self, job: str) -> None:
        self._lobby[job] = None

    def join(self, jobs: Iterable[str]) -> None:
        self._members.update(jobs)

    def leave(self, job: str) -> None:
        """It has committed, or it is gone."""
        self._members.discard(job)
        self._lobby.pop(job, None)

    def over(self) -> bool:
        return not self._members and bool(self._lobby)

    def open(self) -> list[str]:
        """Begin the next round with all who wait for it."""
        jobs = list(self._lobby)
        self._lobby.clear()
        self._members.update(jobs)
        self._training = False
        return jobs

    def disband(self) -> list[str]:
        """End the barrier; return those who waited for it."""
        jobs = list(self._lobby)
        self._lobby.clear()
        self._members.clear()
        return jobs

    def all_in(self, delivered: int) -> bool:
        """Whether ``delivered`` batches (ready or in training) are all that this round still owes."""
        return delivered >= len(self._members)

    def waiting(self) -> Iterable[str]:
        return self._lobby

    def __contains__(self, job: str) -> bool:
        return job in self._members
