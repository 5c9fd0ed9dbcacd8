from __future__ import annotations

import pytest

from engine import settings

pytestmark = pytest.mark.engine


def test_samplers_lie_apart_and_each_group_of_ranks_together_unless_told_otherwise():
    from engine.runtime.placement import TRIFLE, wishes

    *groups, samplers = wishes(settings.load(device="cpu", rollout_replicas=3, train_groups=2, train_ranks=4), share=0.0)

    assert (samplers.count, samplers.strategy, samplers.resources) == (3, "SPREAD", {"CPU": TRIFLE})
    assert [(group.name, group.count, group.strategy) for group in groups] == [("trainers-0", 4, "PACK"), ("trainers-1", 4, "PACK")]


def test_a_place_takes_its_accelerators_and_wants_its_node_s_mark():
    from engine.runtime.placement import TRIFLE, wishes

    told = settings.load(device="cuda", rollout_nodes="sampling", train_nodes="training", train_spread="strict_spread")
    trainers, samplers = wishes(told, share=0.5)

    assert samplers.resources == {"GPU": 0.5, "sampling": TRIFLE}
    assert (trainers.resources, trainers.strategy) == ({"GPU": 0.5, "training": TRIFLE}, "STRICT_SPREAD")


def test_what_the_cluster_lacks_is_said_in_words():
    from engine.runtime.placement import TRIFLE, Wish, lacking

    wish = Wish(name="samplers", count=2, strategy="STRICT_SPREAD", resources={"GPU": 1.0, "sampling": TRIFLE})
    nodes = [{"GPU": 4.0, "sampling": 1.0}, {"GPU": 4.0}, {"CPU": 16.0}]

    assert lacking(wish, nodes) == "2 places for samplers on 2 or more nodes, each with 1 GPU and sampling free (nodes that have it: 1)"
