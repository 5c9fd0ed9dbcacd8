"""The schema of a job's environment: what happens between the turns of an episode.

Every environment says how many turns it can take (``most_turns``) and how many tokens it can add between them (``most_added_tokens``):
with them a job's context, and so its KV footprint, is known before it starts.
"""

from __future__ import annotations

from typing import Annotated, Literal, Union

from pydantic import Field

from engine.strict import Strict


class SingleTurn(Strict):
    """One prompt, one completion."""

    type: Literal["single_turn"] = "single_turn"

    @property
    def most_turns(self) -> int:
        return 1

    @property
    def most_added_tokens(self) -> int:
        return 0


class Latency(Strict):
    """A lognormal waiting time: half of the waits are shorter than the median, none is longer than the cap."""

    median_seconds: Annotated[float, Field(gt=0, le=600)]
    sigma: Annotated[float, Field(ge=0, le=5)] = 0.5
    cap_seconds: Annotated[float, Field(gt=0, le=600)] = 600.0


class StandIn(Strict):
    """A stand-in for tools, for benchmarks: after each of ``tool_turns`` turns, whatever was said, a wait and then ``observation``.

    With ``answer_turn`` one more turn follows the last observation; without, the episode ends with the last wait.
    """

    type: Literal["stand_in"]
    tool_turns: Annotated[int, Field(ge=1, le=64)] = 1
    latency: Latency
    observation: Annotated[str, Field(max_length=20_000)] = ""
    max_observation_tokens: Annotated[
        int, Field(ge=1, le=100_000, description="Of each observation, the chat template's own included; a longer one is cut.")
    ] = 64
    answer_turn: bool = True

    @property
    def most_turns(self) -> int:
        return self.tool_turns + self.answer_turn

    @property
    def most_added_tokens(self) -> int:
        """What nothing is sampled after is not appended."""
        return (self.most_turns - 1) * self.max_observation_tokens


Environment = Annotated[Union[SingleTurn, StandIn], Field(discriminator="type")]
