"""The schema of a job's environment: what happens between the turns of an episode.

Every environment says how many turns it can take (``most_turns``) and how many tokens it can add between them (``most_added_tokens``):
with them a job's context, and so its KV footprint, is known before it starts.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Union

from pydantic import Field, field_validator

from engine.blob_spec import BlobRef
from engine.strict import Strict

# How a model calls a tool; the end ends its turn.
CALL_START, CALL_END = "<tool>", "</tool>"
# Around an answer as the model reads it.
RESULT = ("<result>", "</result>")


class SingleTurn(Strict):
    """One prompt, one completion."""

    type: Literal["single_turn"] = "single_turn"

    @property
    def most_turns(self) -> int:
        return 1

    @property
    def most_added_tokens(self) -> int:
        return 0

    max_tokens: ClassVar[None] = None


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

    max_tokens: ClassVar[None] = None


class BundledCorpus(Strict):
    """The invented almanac that ships with the product (``engine.almanac``)."""

    type: Literal["bundled"] = "bundled"


class UploadedCorpus(Strict):
    """A blob of JSON lines with ``title`` and ``text``, on the top level or under ``item`` as in a dataset."""

    type: Literal["corpus"]
    blob: BlobRef


class SearchEndpoint(Strict):
    """One of the MediaWiki-compatible endpoints that the operator lists, by its name."""

    type: Literal["endpoint"]
    name: Annotated[str, Field(min_length=1, max_length=64)]


SearchSource = Annotated[Union[BundledCorpus, UploadedCorpus, SearchEndpoint], Field(discriminator="type")]


class SearchSpec(Strict):
    source: SearchSource = BundledCorpus()
    results: Annotated[int, Field(ge=1, le=20, description="Articles that one search shows at most.")] = 3


ToolName = Literal["search", "python", "calculator"]
_WHAT_TOOLS_DO = {
    "search": "search: finds articles; its argument is a few words to look for.",
    "python": "python: runs a short program that starts afresh each time and shows what it prints; its argument is the program.",
    "calculator": "calculator: exact arithmetic; its argument is an expression such as (3 + 4) * 5 / 2.",
}


class Tools(Strict):
    """A tool loop. The model calls a tool with ``<tool>name: argument</tool>``, which ends its turn, and reads the answer as the user's
    next message, ``<result>…</result>``; a turn without a call is the answer and ends the episode. A failed call is no end: the model
    reads what went wrong. Nor is the first call beyond ``max_calls`` or ``max_seconds``, which is refused with a word to answer now; the
    next one ends the episode, as does a call in the last turn.
    """

    type: Literal["tools"]
    tools: Annotated[tuple[ToolName, ...], Field(min_length=1)] = ("search", "calculator")
    search: SearchSpec = SearchSpec()
    max_calls: Annotated[int, Field(ge=1, le=64, description="Calls of one completion, failed ones included.")] = 5
    max_turns: Annotated[int | None, Field(ge=2, le=128, description="Turns of one completion. None: max_calls + 1.")] = None
    max_tokens: Annotated[
        int | None, Field(ge=1, le=1_000_000, description="Tokens of one completion, all turns and tool answers. None: as the rest allows.")
    ] = None
    max_observation_tokens: Annotated[
        int, Field(ge=32, le=100_000, description="Of each tool answer, the chat template's own included; a longer one is cut.")
    ] = 256
    call_seconds: Annotated[float, Field(gt=0, le=120, description="A call that takes longer has failed.")] = 10.0
    max_seconds: Annotated[float, Field(gt=0, le=3600, description="What the calls of one completion may take together.")] = 60.0
    instructions: Annotated[
        str | None, Field(max_length=20_000, description="Goes into the system message. None: the product's own words; empty: nothing.")
    ] = None

    @field_validator("tools")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("names a tool twice")
        return value

    @property
    def most_turns(self) -> int:
        return self.max_turns or self.max_calls + 1

    @property
    def most_added_tokens(self) -> int:
        return (self.most_turns - 1) * self.max_observation_tokens

    @property
    def told(self) -> str:
        """What the system message says about the tools."""
        if self.instructions is not None:
            return self.instructions
        tools = "\n".join(f"- {_WHAT_TOOLS_DO[name]}" for name in self.tools)
        return (
            f"You may use tools, at most {self.max_calls} times. To use one, write {CALL_START}name: argument{CALL_END} and nothing after "
            f"it. You are then given its result. When you know the answer, write it without using a tool.\n{tools}"
        )


Environment = Annotated[Union[SingleTurn, StandIn, Tools], Field(discriminator="type")]


def without_tags(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where in a spec an error is, in the words of who wrote it: validation puts the chosen type behind a field that has several."""
    if "environment" not in location[:2]:
        return location
    return tuple(part for place, part in enumerate(location) if place == 0 or location[place - 1] not in ("environment", "source"))


def instructions(environment: Environment) -> str:
    """What the model is told about its environment before an episode; may be empty."""
    return environment.told if isinstance(environment, Tools) else ""


def told(messages: list[dict[str, str]], environment: Environment) -> list[dict[str, str]]:
    """The chat that opens an episode: ``messages`` with the environment's instructions at the end of the system message."""
    text = instructions(environment)
    if not text:
        return messages
    if messages and messages[0]["role"] == "system":
        first, *rest = messages
        return [{"role": "system", "content": f"{first['content']}\n\n{text}"}, *rest]
    return [{"role": "system", "content": text}, *messages]
