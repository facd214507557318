"""Tasks over OpenEnv's protocol: a server for HTTP and WebSocket, and its client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from fastapi import Request
from fastapi.responses import JSONResponse
from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server import (
    Action,
    Environment,
    JsonRpcErrorCode,
    JsonRpcResponse,
    Observation,
    State,
    WSErrorCode,
    WSErrorResponse,
    create_fastapi_app,
)

from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.errors import EpisodeError, ShioenvError, TaskError
from shioenv.sandbox.base import Limits, refuse_limit
from shioenv.seeding import generator
from shioenv_agents.tasks.episode import MAX_TURNS, Episode
from shioenv_agents.tasks.task import Task, read_tasks
from shioenv_agents.tasks.terminal import for_rows
from shioenv_serve.serving import Application, Message, Receive, Send

IDLE_SECONDS: Final = 1800.0
"""Default idle time limit of a session in seconds; our choice: models think for minutes."""

IDLE_CODE: Final = 1001
"""The WebSocket close code for the client of an idle session: "going away"."""

MCP: Final = "/mcp"
"""The path of OpenEnv's MCP tools, which tasks do not have."""

STATUSES: Mapping[type[ShioenvError], int] = MappingProxyType({EpisodeError: 409, TaskError: 404})
"""The HTTP status for each exception of a plain HTTP request."""


class TypedLine(Action):
    """A line that an agent types."""

    line: str


class TaskObservation(Observation):
    """An observation: first the task, then the output of each line."""

    text: str
    progress: float = 0.0
    """The fraction of the goal that holds."""
    turns: int = 0
    """The number of lines typed so far."""
    task: str = ""
    """The task's id."""


class TaskState(State):
    """The state of an episode: its task, and the fraction of the goal that holds."""

    task: str = ""
    progress: float = 0.0


class TaskEnvironment(Environment[TypedLine, TaskObservation, TaskState]):
    """One session of an agent, with a separate machine and one task at a time.

    `reset` takes the id of a task as `task`. Without an id, the seed draws a task. Without a seed,
    the number of such resets so far is the seed. The reward is 1 once the goal is reached.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, tasks: Sequence[Task], max_turns: int, limits: Limits | None) -> None:
        super().__init__()
        self._tasks, self._max_turns, self._limits = tasks, max_turns, limits
        self._machine: SandboxRunner | None = None
        self._episode: Episode | None = None
        self._state = TaskState()
        self._resets = 0

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, **options: Any
    ) -> TaskObservation:
        """Begin a task, and return its prompt. Errors: TaskError for an unknown id."""
        task = self._chosen(seed, options.get("task"))
        if self._machine is None or self._machine.system.name != task.system:
            self.close()
            self._machine = open_sandbox(task.system, for_rows(self._limits))
        self._episode = Episode(task, self._machine, self._max_turns)
        self._state = TaskState(episode_id=episode_id, task=task.id)
        return TaskObservation(text=self._episode.prompt, task=task.id)

    def step(
        self, action: TypedLine, timeout_s: float | None = None, **options: Any
    ) -> TaskObservation:
        """Type a line, and return its output. Errors: EpisodeError if no episode is running."""
        if self._episode is None:
            raise EpisodeError(
                "no episode is running",
                hint="call reset first, in the same session. OpenEnv's sessions are WebSockets "
                "(/ws, as TaskClient uses them). The server closes idle sessions (--idle), and "
                "TaskClient then opens a new one. Each plain HTTP request is a separate session.",
            )
        turn = self._episode.act(action.line)
        self._state.step_count = self._episode.turns
        self._state.progress = turn.verdict.progress
        return TaskObservation(
            text=turn.text,
            reward=turn.reward,
            done=turn.done or turn.truncated,
            progress=turn.verdict.progress,
            turns=self._episode.turns,
            task=self._episode.task.id,
        )

    @property
    def state(self) -> TaskState:
        """The episode's state."""
        return self._state

    def close(self) -> None:
        """End the machine and the episode; may be called any number of times."""
        if self._machine is not None:
            self._machine.close()
        self._machine = self._episode = None

    def _chosen(self, seed: int | None, name: object) -> Task:
        if name is None:
            self._resets += seed is None
            draw = generator(self._resets if seed is None else seed, "openenv")
            return self._tasks[draw.randrange(len(self._tasks))]
        found = [task for task in self._tasks if task.id == name]
        if not found:
            raise TaskError(f"unknown task {name!r}", hint="omit the id to get a random task")
        return found[0]


class TaskClient(EnvClient[TypedLine, TaskObservation, TaskState]):
    """The client of a server of tasks: `TaskClient(base_url=URL).sync()`."""

    def _step_payload(self, action: TypedLine) -> dict[str, Any]:
        return {"line": action.line}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[TaskObservation]:
        done, reward = payload.get("done", False), payload.get("reward")
        shown = TaskObservation(**{**payload["observation"], "done": done, "reward": reward})
        return StepResult(observation=shown, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> TaskState:
        return TaskState(**payload)


def application(
    tasks: str | Path | Sequence[Task],
    *,
    max_turns: int = MAX_TURNS,
    sessions: int = 16,
    idle_seconds: float = IDLE_SECONDS,
    limits: Limits | None = None,
) -> Any:
    """Return the server as an ASGI application, with at most `sessions` at once.

    Each session is a WebSocket and has a sandbox. A session whose client sends nothing for
    `idle_seconds` is closed, unless a line is running. Plain HTTP has no sessions in OpenEnv: each
    request has a separate environment. So over plain HTTP `reset` returns a task, and `step` is
    refused, because it has no episode (`STATUSES`). Errors: TaskError, and LimitsError for an
    invalid idle time.
    """
    refuse_limit("idle_seconds", idle_seconds)
    chosen = read_tasks(tasks) if isinstance(tasks, str | Path) else list(tasks)
    factory = partial(TaskEnvironment, chosen, max_turns, limits)
    served = create_fastapi_app(
        factory,
        TypedLine,
        TaskObservation,
        max_concurrent_envs=sessions,
        env_name="shioenv",
        state_cls=TaskState,
    )
    _without_mcp(served)
    served.add_middleware(IdleSessions, seconds=idle_seconds)
    for kind, status in STATUSES.items():
        served.add_exception_handler(kind, partial(_refused, status=status))
    return served


async def _refused(request: Request, error: ShioenvError, status: int) -> JSONResponse:
    return JSONResponse({"detail": error.message, "hint": error.hint}, status)


class IdleSessions:
    """An ASGI application that closes a WebSocket whose client is silent for too long.

    The time counts only while the application waits for the client to send or to receive a message.
    So a session with a running line is not idle. After the time limit, the application receives a
    disconnect and ends the session. Then an error and a close are sent to the client.

    OpenEnv can end idle sessions itself (`session_timeout`). But it counts the time of a running
    line as idle. It also leaves the WebSocket open, so a later reset would open a machine that is
    never ended.
    """

    def __init__(self, application: Application, seconds: float) -> None:
        """Wrap an application; `seconds` is the time limit for a client."""
        self._application, self._seconds = application, seconds
        self._reason = f"the session was idle for {seconds:g} seconds"

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket, as ASGI defines it."""
        if scope["type"] != "websocket":
            await self._application(scope, receive, send)
            return
        is_idle = is_deaf = False

        async def receive_in_time() -> Message:
            nonlocal is_idle
            if not is_idle:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds):
                        return await receive()
            is_idle = True
            return {"type": "websocket.disconnect", "code": IDLE_CODE}

        async def send_in_time(message: Message) -> None:
            nonlocal is_idle, is_deaf
            if is_deaf:
                return
            try:
                async with asyncio.timeout(self._seconds):
                    if is_idle and message["type"] == "websocket.close":
                        await send({"type": "websocket.send", "text": self._error()})
                        message = {**message, "code": IDLE_CODE, "reason": self._reason}
                    await send(message)
            except TimeoutError:
                is_idle = is_deaf = True

        await self._application(scope, receive_in_time, send_in_time)

    def _error(self) -> str:
        """Return the error in OpenEnv's format."""
        data = {"message": self._reason, "code": WSErrorCode.SESSION_ERROR}
        return WSErrorResponse(data=data).model_dump_json()


def _without_mcp(served: Any) -> None:
    """Answer MCP requests with an error, because they would create sessions without a client."""
    served.router.routes[:] = [
        route for route in served.router.routes if getattr(route, "path", None) != MCP
    ]
    served.add_api_route(MCP, _no_tools, methods=["POST"])


async def _no_tools() -> dict[str, Any]:
    refusal = JsonRpcResponse.error_response(
        JsonRpcErrorCode.METHOD_NOT_FOUND,
        "tasks have no MCP tools; use OpenEnv's sessions over WebSocket (/ws)",
    )
    answer: dict[str, Any] = refusal.model_dump()
    return answer
