"""Chats of one replica: each is a task that samples into a list of lines, and its reader takes them as they come.

    open(chat, order) ─▶ waits for the slot and for seats ─▶ begin ─▶ delta … end (per completion) ─▶ usage
    read(chat) ◀──────── what there is since the last look               └─▶ error, instead of all that would follow
    close(chat) ───────▶ what still runs is aborted

A chat whose reader does not come back ends by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from typing import Any, Protocol

from engine.chat_spec import ChatOrder
from engine.ports import AdapterRef, PortError, Snapshot, TooMany
from engine.rollout.chat_room import ChatRoom, ChatSlot, Loader
from engine.rollout.sampling import CHAT_PRIORITY, Piece, SampleParams, Tokens

logger = logging.getLogger(__name__)

SEATS = 8  # of the sampler's 256 and more
OPEN_OF_TENANT, OPEN_OF_ALL = 16, 64  # completions, those that wait with them
WAIT_SECONDS, UNREAD_SECONDS, READ_SECONDS = 30.0, 30.0, 10.0
Line = dict[str, Any]


class ChatSampler(Loader, Protocol):
    def stream(
        self, adapter: AdapterRef, prompt_ids: list[int], params: SampleParams, *, top_logprobs: int | None
    ) -> AsyncGenerator[Piece, None]: ...


class _Chat:
    """Lines that nobody has read yet. ``over``: no more will come."""

    def __init__(self, order: ChatOrder):
        self.order = order
        self.lines: list[Line] = []
        self.over = False
        self.cached_tokens: int | None = None  # of the prompt, once something was sampled
        self.changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.unread: asyncio.TimerHandle | None = None

    def say(self, line: Line) -> None:
        self.lines.append(line)
        self.changed.set()

    def take(self) -> list[Line]:
        taken, self.lines = self.lines, []
        if not self.over:
            self.changed.clear()
        return taken


class ChatDesk:
    """``context_tokens``: of prompt and completion together. ``room_tokens``: KV cache that all chats may take, in tokens."""

    def __init__(
        self,
        sampler: ChatSampler,
        tokens: Tokens,
        *,
        context_tokens: int,
        room_tokens: int,
        seats: int = SEATS,
        wait_seconds: float = WAIT_SECONDS,
        unread_seconds: float = UNREAD_SECONDS,
    ):
        self._sampler, self._tokens, self._context_tokens = sampler, tokens, context_tokens
        self._slot = ChatSlot(sampler)
        self._room = ChatRoom(seats=seats, tokens=max(room_tokens, context_tokens))
        self._wait_seconds, self._unread_seconds = wait_seconds, unread_seconds
        self._chats: dict[str, _Chat] = {}
        self._load_ids = itertools.count(1)

    async def open(self, chat: str, raw: dict[str, Any], version: int | None, files: Snapshot | None) -> bool:
        """Begin a ``ChatOrder``; False: nothing was begun, since the adapter must be loaded and ``files`` is None.

        ``version``: of the order's job. Raises ``PortError``, the user's for a prompt that is too long or for too many chats at once.
        """
        order = ChatOrder.model_validate(raw)
        prompt_ids = await asyncio.to_thread(self._tokens.render, [message.model_dump() for message in order.messages])
        self._check(order, prompt_ids)
        adapter = self._adapter(order, version)
        if not adapter.base and files is None and not self._slot.holds(adapter):
            return False
        opened = self._chats[chat] = _Chat(order)
        opened.task = asyncio.create_task(self._guarded(opened, adapter, files, prompt_ids), name=f"chat {chat}")
        self._expect_reader(chat, opened)
        return True

    async def read(self, chat: str, *, wait_seconds: float = READ_SECONDS) -> dict[str, Any]:
        """{"lines", "over"}: what there is, as soon as there is something; none after ``wait_seconds``. Raises ``PortError``."""
        if (found := self._chats.get(chat)) is None:
            raise PortError("this chat has ended or was never begun")
        if found.unread is not None:
            found.unread.cancel()
        try:
            async with asyncio.timeout(wait_seconds):
                await found.changed.wait()
        except TimeoutError:
            pass
        self._expect_reader(chat, found)
        return {"lines": found.take(), "over": found.over}

    async def close(self, chat: str) -> None:
        """End it; one that is not there is no error."""
        if (found := self._chats.pop(chat, None)) is None:
            return
        if found.unread is not None:
            found.unread.cancel()
        if found.task is not None:
            found.task.cancel()
            await asyncio.gather(found.task, return_exceptions=True)

    async def close_all(self) -> None:
        await asyncio.gather(*(self.close(chat) for chat in list(self._chats)))

    async def drop(self, job: str) -> None:
        """The adapters of ``job`` leave the sampler; a chat under way goes on to its end."""
        self._slot.forget(_name(job))
        await self._sampler.unload(_name(job))

    def open_completions(self) -> int:
        return sum(chat.order.n for chat in self._chats.values() if not chat.over)

    def _expect_reader(self, chat: str, opened: _Chat) -> None:
        loop = asyncio.get_running_loop()
        opened.unread = loop.call_later(self._unread_seconds, lambda: loop.create_task(self.close(chat)))

    def _check(self, order: ChatOrder, prompt_ids: list[int]) -> None:
        if not prompt_ids:
            raise PortError("the messages come to no tokens; say what is to be answered", attribution="user")
        if len(prompt_ids) >= self._context_tokens:
            words = f"the messages have {len(prompt_ids)} tokens, and the model reads {self._context_tokens} with its answer; shorten them"
            raise PortError(words, attribution="user")
        running = [chat.order for chat in self._chats.values() if not chat.over]
        own = sum(other.n for other in running if other.tenant == order.tenant)
        if own + order.n > OPEN_OF_TENANT:
            raise TooMany(f"{own} of your completions are under way, at most {OPEN_OF_TENANT} may be at once; wait for one to end")
        if sum(other.n for other in running) + order.n > OPEN_OF_ALL:
            raise PortError("too many chats wait for the engine; try again shortly")

    def _adapter(self, order: ChatOrder, version: int | None) -> AdapterRef:
        if order.job is None:
            return AdapterRef(tenant=order.tenant, job="chat", version=0, load_id=0, base=True)
        return AdapterRef(tenant=order.tenant, job=_name(order.job), version=version or 0, load_id=next(self._load_ids))

    async def _guarded(self, chat: _Chat, adapter: AdapterRef, files: Snapshot | None, prompt_ids: list[int]) -> None:
        """Whatever happens, the chat has a last line, and nothing of it stays with the sampler."""
        begun = False
        try:
            async with asyncio.timeout(self._wait_seconds) as limit:

                def begin() -> None:
                    nonlocal begun
                    if not begun:
                        begun = True
                        limit.reschedule(asyncio.get_running_loop().time() + chat.order.deadline_seconds)

                async with nullcontext(adapter) if adapter.base else self._slot.use(adapter, files) as loaded:
                    chat.say(await self._converse(chat, loaded, prompt_ids, begin))
        except TimeoutError:
            chat.say(_overdue(chat.order.deadline_seconds) if begun else _busy(self._wait_seconds))
        except PortError as error:
            chat.say(_error("refused" if error.attribution == "user" else "failed", error.reason))
        except Exception as error:
            logger.exception("a chat ends by an error of the engine itself")
            chat.say(_error("failed", f"internal error: {type(error).__name__}"))
        finally:
            chat.over = True
            chat.changed.set()

    async def _converse(self, chat: _Chat, adapter: AdapterRef, prompt_ids: list[int], begin: Any) -> Line:
        """All completions; the line of what they used."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._complete(chat, adapter, prompt_ids, k, begin)) for k in range(chat.order.n)]
        results = [task.result() for task in tasks]
        if failed := next((result for result in results if isinstance(result, PortError)), None):
            raise failed
        counts = {"prompt_tokens": len(prompt_ids), "cached_tokens": chat.cached_tokens or 0, "completion_tokens": sum(results)}
        return {"type": "usage", **counts}

    async def _complete(self, chat: _Chat, adapter: AdapterRef, prompt_ids: list[int], index: int, begin: Any) -> Any:
        """How many tokens completion ``index`` has; a ``PortError`` is an answer, so that it comes out unwrapped."""
        order, sampled = chat.order, 0
        room = self._context_tokens - len(prompt_ids)
        most = min(order.max_new_tokens or room, room)
        params = SampleParams(
            max_new_tokens=most,
            temperature=order.temperature,
            top_p=order.top_p,
            seed=(order.seed + index) % 2**62,
            stop=order.stop,
            priority=CHAT_PRIORITY,
        )
        async with self._room.take(len(prompt_ids) + most):
            begin()
            try:
                async with aclosing(self._sampler.stream(adapter, prompt_ids, params, top_logprobs=order.top_logprobs)) as pieces:
                    async for piece in pieces:
                        sampled += piece.tokens
                        _tell(chat, index, piece, prompt_tokens=len(prompt_ids))
            except PortError as error:
                return error
        return sampled


def _name(job: str) -> str:
    """The adapter's name at the sampler; no job can have one with a slash."""
    return f"chat/{job}"


def _tell(chat: _Chat, index: int, piece: Piece, *, prompt_tokens: int) -> None:
    if chat.cached_tokens is None:
        chat.cached_tokens = piece.cached_tokens
        chat.say({"type": "begin", "prompt_tokens": prompt_tokens, "cached_tokens": piece.cached_tokens})
    if piece.text or piece.tokens:
        last = chat.lines[-1] if chat.lines else {}
        if (last.get("type"), last.get("index")) == ("delta", index):  # not read yet: let them travel together
            last["text"] += piece.text
            last["tokens"] += piece.tokens
            last["logprobs"] += piece.logprobs
        else:
            chat.say({"type": "delta", "index": index, "text": piece.text, "tokens": piece.tokens, "logprobs": list(piece.logprobs)})
    if piece.finish_reason:
        chat.say({"type": "end", "index": index, "finish_reason": piece.finish_reason})


def _error(code: str, message: str) -> Line:
    return {"type": "error", "code": code, "message": message}


def _busy(seconds: float) -> Line:
    return _error("busy", f"no place within {seconds:g} s: other chats are under way; try again shortly")


def _overdue(seconds: float) -> Line:
    return _error("deadline", f"the answer was not complete within {seconds:g} s; ask for fewer tokens")
