"""HTTP in front of the manager: stateless, in a process of its own, so that it answers while the manager restarts."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from ray.exceptions import RayActorError, RayTaskError

from engine import logs
from engine.errors import EngineError, NotReady
from engine.grader_spec import BASE_JUDGE
from engine.rewards.judge import listed
from engine.rewards.lab import Lab
from engine.rewards.pool import GraderPool
from engine.rewards.sandbox import Sandbox, SandboxSettings
from engine.runtime import names, process
from engine.runtime.chat_replicas import ChatReplica, ChatReplicas
from engine.runtime.lab_judge import ManagersJudge
from engine.sealed import Sealer
from engine.service import create_app
from engine.serving import Serving
from engine.settings import EngineSettings

logger = logging.getLogger(__name__)

RESTARTING = "restarting the manager…"
RETRY_SECONDS = 20.0
LONGEST_CALL_SECONDS = 60.0
_LAB_WORKERS = 8


class ManagerDoor:
    """The manager's methods as the service calls them, over Ray. A call that the manager's death cut off is made again.

    All of the manager's methods are idempotent or refuse what has been done already, so a second call does no harm.
    """

    def __init__(self, find: Callable[[], Any]):
        self._find = find

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        if method not in names.MANAGER_METHODS:
            raise AttributeError(method)

        async def call(*args: Any, **named: Any) -> Any:
            return await self._call(method, *args, **named)

        return call

    async def health(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(LONGEST_CALL_SECONDS):
                return await self._find().health.remote()
        except (RayActorError, TimeoutError):
            return {"ok": False, "stage": RESTARTING}

    async def _call(self, method: str, *args: Any, **named: Any) -> Any:
        try:
            async with asyncio.timeout(LONGEST_CALL_SECONDS):
                return await self._until_answered(method, *args, **named)
        except TimeoutError:
            raise NotReady(f"the manager did not answer within {LONGEST_CALL_SECONDS:g} s") from None

    async def _until_answered(self, method: str, *args: Any, **named: Any) -> Any:
        give_up = asyncio.get_running_loop().time() + RETRY_SECONDS
        while True:
            try:
                return await self._find().call.remote(method, dict(logs.ids()), *args, **named)
            except RayTaskError as error:
                raise _refusal(error) from None
            except RayActorError:
                if asyncio.get_running_loop().time() > give_up:
                    raise NotReady(RESTARTING) from None
                logger.warning("the manager died during %s; asking its successor", method)


def lab_grading(settings: EngineSettings, door: ManagerDoor) -> GraderPool:
    """The Lab's own graders and sandbox: what somebody tries out takes no place from the jobs' rewards."""
    workers = min(_LAB_WORKERS, settings.reward_workers)
    return GraderPool(
        sandbox=Sandbox(SandboxSettings(tier=settings.reward_sandbox, max_workers=workers, spares=1)),
        judges={**listed(settings.judges, settings.judge_keys.get_secret_value()), BASE_JUDGE: ManagersJudge(door.judge)},
        sealer=Sealer(bearer=settings.secret(), earlier=settings.earlier_secrets()),
    )


def chats(settings: EngineSettings, door: ManagerDoor) -> Serving:
    """Chats go straight to the samplers: the manager's loop is not in the way of a single token."""
    handles = [names.find(names.rollout(index)) for index in range(settings.rollout_replicas)]
    replicas = [ChatReplica(index, handle, call_seconds=settings.call_deadline_seconds) for index, handle in enumerate(handles)]
    return Serving(door, ChatReplicas(replicas).of)


def _refusal(error: RayTaskError) -> Exception:
    return error.cause if isinstance(error.cause, EngineError) else error


class HttpActor:
    """Raises ``OSError`` at creation when the port is taken."""

    def __init__(self, settings: EngineSettings):
        process.enter("http", settings)
        manager = names.find(names.MANAGER)
        door = ManagerDoor(lambda: manager)
        app = create_app(
            door,
            secret=settings.secret(),
            metrics_token=settings.metrics_bearer(),
            lab=Lab(lambda: lab_grading(settings, door)),
            serving=chats(settings, door),
            profile=settings.state / "bench" / "profile.json",
        )
        listener = socket.create_server((settings.host, settings.port), backlog=512)
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_keep_alive=75)
        self._serving = asyncio.get_running_loop().create_task(uvicorn.Server(config).serve(sockets=[listener]))
        self._serving.add_done_callback(lambda done: process.exit_now(f"the HTTP server ended: {done}"))
        process.settle()

    async def ready(self) -> None:
        """Answers while the port is open."""

    async def hold(self) -> None:
        """Never answers: the caller learns of this process's end the moment it happens."""
        await asyncio.Event().wait()
