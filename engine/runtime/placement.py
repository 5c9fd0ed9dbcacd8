"""On which nodes of the cluster samplers and trainers lie: Ray's placement groups, one for the samplers and one for each training group.

A placement group reserves all its places before anything starts, and keeps them for an actor that restarts. When a node is lost, Ray moves
its places to others, unless ``strict_spread`` forbids that: then they wait for a new node, and the rest works on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from engine.runtime.names import NAMESPACE
from engine.runtime.readiness import StartFailed
from engine.settings import EngineSettings

SAMPLERS = "samplers"
# Ray's smallest share: a place takes nothing from a node that has no accelerator, but must lie on one that gives work at all.
TRIFLE = 0.0001
_PREFIX = f"{NAMESPACE}-"
_ASK_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """``count`` places, each with ``resources`` of Ray's (name → amount), laid out by ``strategy``: PACK, SPREAD or STRICT_SPREAD."""

    name: str
    count: int
    strategy: str
    resources: Mapping[str, float]


def trainers(group: int) -> str:
    return f"trainers-{group}"


def wishes(settings: EngineSettings, *, share: float) -> list[Wish]:
    """What the settings ask for, in the order in which it is reserved. ``share``: accelerators per process, 0 where there are none."""
    resource = settings.device_profile().ray_resource
    calculates = {resource: share} if resource and share else {"CPU": TRIFLE}
    samplers = Wish(
        name=SAMPLERS,
        count=settings.rollout_replicas,
        strategy=settings.rollout_spread.upper(),
        resources={**calculates, **_marked(settings.rollout_nodes)},
    )
    groups = [
        Wish(
            name=trainers(group),
            count=settings.train_ranks,
            strategy=settings.train_spread.upper(),
            resources={**calculates, **_marked(settings.train_nodes)},
        )
        for group in range(settings.train_groups)
    ]
    # In this order: where both share nodes, samplers would else leave one accelerator here and one there to ranks that belong together.
    return [*groups, samplers]


def _marked(resource: str) -> dict[str, float]:
    return {resource: TRIFLE} if resource else {}


def lacking(wish: Wish, nodes: Iterable[Mapping[str, float]]) -> str:
    """In words, what the cluster's ``nodes`` (each its resources) have too little of for ``wish``."""
    fit = sum(all(node.get(name, 0) >= amount for name, amount in wish.resources.items()) for node in nodes)
    wanted = wish.count if wish.strategy == "STRICT_SPREAD" else 1
    what = " and ".join(name if amount == TRIFLE else f"{amount:g} {name}" for name, amount in wish.resources.items())
    return f"{wish.count} places for {wish.name} on {wanted} or more nodes, each with {what} free (nodes that have it: {fit})"


class Places:
    """The places of one run. ``remove`` gives them back; actors that still lie on them end then."""

    def __init__(self, wishes: list[Wish], tag: str):
        _remove_left()
        self._wishes = wishes
        self._groups: dict[str, PlacementGroup] = {
            wish.name: placement_group(
                [dict(wish.resources)] * wish.count, strategy=wish.strategy, name=f"{_PREFIX}{wish.name}-{tag}", lifetime="detached"
            )
            for wish in wishes
        }

    async def ready(self, deadline_seconds: float, tell: Any) -> None:
        """Once all are reserved. ``tell(text)`` hears of what is waited for. Raises ``StartFailed`` at the deadline."""
        give_up = time.monotonic() + deadline_seconds
        for wish in self._wishes:
            while not await asyncio.to_thread(self._groups[wish.name].wait, _ASK_SECONDS):
                missing = lacking(wish, [node["Resources"] for node in ray.nodes() if node["Alive"]])
                if time.monotonic() > give_up:
                    raise StartFailed(f"the cluster has no room for {missing}")
                tell(f"waiting for {missing}…")

    def of(self, name: str, index: int) -> PlacementGroupSchedulingStrategy:
        """For the actor that takes the ``index``-th place of ``name``."""
        return PlacementGroupSchedulingStrategy(placement_group=self._groups[name], placement_group_bundle_index=index)

    def remove(self) -> None:
        for group in self._groups.values():
            remove_placement_group(group)


def _remove_left() -> None:
    """On a joined cluster an earlier launcher may have been killed; what it had reserved is in our way."""
    for found in placement_group_table().values():
        if found["name"].startswith(_PREFIX) and found["state"] != "REMOVED":
            with contextlib.suppress(ValueError):  # gone meanwhile
                remove_placement_group(get_placement_group(found["name"]))
