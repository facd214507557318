"""Records made on the nodes of a Ray cluster: one actor a node, with a pool of processes there.

The generator stays where it is: it draws the samples, gives each node a few more than it can work
on, and is alone in writing. A node holds nothing that is not in the generator's hands as well, so
one that is lost costs the time of what it had in work.
"""

from __future__ import annotations

import heapq
import logging
import os
import platform
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from shioenv.errors import GenerationError, HostError, MissingExtraError, ShioenvError, UsageError
from shioenv.execution.pool import (
    AHEAD,
    ATTEMPTS,
    STARTS,
    WINDOW,
    Pool,
    Task,
    given_up,
    raised_elsewhere,
)
from shioenv.execution.worker import Setup
from shioenv.recording.line import Line
from shioenv.synthesis.sample import Sample
from shioenv.version import package_version

IN_FLIGHT = AHEAD + 2
"""Samples a node is given for each of its workers: what its pool hands out, and some that stand by
while the generator is asked for more."""

LOOK_SECONDS = 2.0
"""Between two looks at which nodes the cluster has."""

CONNECT_SECONDS = 10.0
"""How long a cluster may take to accept a connection."""

STORE_BYTES = 100_000_000
"""Shared memory of a cluster that is started here; records travel without it."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
    "RAY_worker_oom_score_adjustment": "0",
}
"""What a cluster that is started here is told: report to nobody, leave priorities alone."""

_OOM = Path("/proc/self/oom_score_adj")


@dataclass(frozen=True, slots=True)
class Priority:
    """What a process inherits and inputs can see (`nice`, `ps`, `/proc/self/oom_score_adj`)."""

    niceness: int
    oom_score: int

    @classmethod
    def here(cls) -> Priority:
        """What the process has that calls this."""
        return cls(os.getpriority(os.PRIO_PROCESS, 0), int(_OOM.read_text()))

    def take(self) -> None:
        """Gives it to this process. HostError where that is not allowed and it has another."""
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, self.niceness)
        with suppress(PermissionError):
            _OOM.write_text(str(self.oom_score))
        found = Priority.here()
        if found != self:
            raise HostError(
                f"Ray gives its workers niceness {found.niceness} and an OOM score of "
                f"{found.oom_score}, which inputs can see; the generator has {self.niceness} and "
                f"{self.oom_score}",
                hint=f"RAY_worker_niceness={self.niceness} "
                f"RAY_worker_oom_score_adjustment={self.oom_score} ray start ...",
            )


@dataclass(frozen=True, slots=True)
class Host:
    """What a node says of itself once a sandbox is open there."""

    name: str
    kernel: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no sandbox opens on a node, or why a record cannot be made there."""

    name: str
    kind: str
    message: str
    hint: str | None

    @classmethod
    def of(cls, error: ShioenvError) -> Refusal:
        """An error of this node, in a form that travels."""
        return cls(platform.node(), type(error).__name__, error.message, error.hint)

    def error(self) -> ShioenvError:
        """The error again."""
        return raised_elsewhere(self.kind, self.message, self.hint)


@dataclass(frozen=True, slots=True)
class Made:
    """What came of the samples a node has in work since it was asked last."""

    lines: list[Line]
    retried: int
    restarts: int


class NodePool:
    """The pool of one node; becomes an actor there, with one call at a time."""

    def __init__(self, setup: Setup, workers: int, priority: Priority, version: str) -> None:
        self._setup, self._priority, self._version = setup, priority, version
        self._pool = Pool(setup, workers)

    def start(self) -> Host | Refusal:
        """Opens a first sandbox."""
        try:
            if (found := package_version()) != self._version:
                raise HostError(
                    f"shioenv {found} is installed there, {self._version} here",
                    hint=f"pip install 'shioenv[ray]=={self._version}'",
                )
            self._priority.take()
            self._pool.start()
        except ShioenvError as error:
            return Refusal.of(error)
        return Host(platform.node(), platform.release())

    def exchange(self, tasks: list[Task]) -> Made | Refusal:
        """Takes samples and waits for finished records; needs samples, now or from before."""
        pool = self._pool
        retried, restarts = pool.retried, pool.restarts
        try:
            for task in tasks:
                pool.give(task)
            lines: list[Line] = []
            while not lines:
                lines = pool.take()
        except ShioenvError as error:
            return Refusal.of(error)
        return Made(lines, pool.retried - retried, pool.restarts - restarts)


class RayPool:
    """What `Pool` is on one machine, on the nodes of a cluster; a context manager.

    `workers` bounds the processes on all nodes together (None: one a processor). `address` is the
    cluster's (None: `RAY_ADDRESS`, else a cluster of this machine alone, which ends with the pool).
    `report` is told of nodes that come, are lost or left out, `under` of their kernels' releases.
    MissingExtraError where Ray is not installed.
    """

    def __init__(
        self,
        setup: Setup,
        workers: int | None,
        *,
        address: str | None = None,
        report: Callable[[str], None],
        under: Callable[[str], None],
    ) -> None:
        self._ray = _import_ray()
        self._setup, self._wanted = setup, workers
        self._address = address or os.environ.get("RAY_ADDRESS") or "local"
        self._report, self._under = report, under
        self._priority = Priority.here()
        self._nodes: dict[str, _Node] = {}
        self._refused: dict[str, ShioenvError] = {}
        self._dead_starts: Counter[str] = Counter()
        self._lost: Counter[int] = Counter()
        self._retry: list[Task] = []
        self._newest = -1
        self._looked = float("-inf")
        self._ours = False
        self._directory: str | None = None
        self.retried = 0
        self.restarts = 0

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def records(self, tasks: Iterator[Task]) -> Iterator[Line]:
        """The records of the samples, in the order they are finished.

        Errors: HostError where no cluster answers; what kept every node from opening a sandbox;
        GenerationError where a record fails every time, or no node is left.
        """
        first = next(tasks, None)
        if first is None:
            return
        self._retry.append(first)
        self._connect()
        exhausted = False
        while True:
            self._look()
            exhausted = self._hand_out(tasks, exhausted)
            if exhausted and not self._retry and not any(one.tasks for one in self._all()):
                return
            calls = {one.call: one for one in self._all() if one.call is not None}
            done, _ = self._ray.wait(list(calls), num_returns=1, timeout=LOOK_SECONDS)
            for call in done:
                yield from self._receive(calls[call], call)

    def close(self) -> None:
        """Ends all workers, and the cluster where it was started here."""
        for node in self._nodes.values():
            self._kill(node)
        self._nodes.clear()
        if self._ours:
            self._ray.shutdown()
            self._ours = False
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _all(self) -> list[_Node]:
        return list(self._nodes.values())

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        options: dict[str, Any] = {"address": self._address}
        if self._address == "local":
            # short, because the paths of sockets are bounded
            self._directory = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
            options |= {
                "include_dashboard": False,
                "num_cpus": self._wanted or len(os.sched_getaffinity(0)),
                "object_store_memory": STORE_BYTES,
                "_temp_dir": self._directory,
            }
        elif self._address != "auto":
            _check(self._address)
        self._ours = True
        try:
            self._ray.init(
                **options, configure_logging=False, log_to_driver=False, namespace="shioenv"
            )
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise _unanswered(self._address, error) from error

    # nodes

    def _look(self) -> None:
        """Starts an actor on each node that has none; every LOOK_SECONDS."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        alive = {one["NodeID"]: one for one in self._ray.nodes() if one["Alive"]}
        found = {name: int(one["Resources"].get("CPU", 0)) for name, one in alive.items()}
        working = {name: node.workers for name, node in self._nodes.items()}
        usable = {name: found[name] for name in found if name not in self._refused}
        for name, workers in spread(usable, working, self._wanted).items():
            if name not in working and workers:
                self._start(name, alive[name]["NodeManagerAddress"], workers)
        if not self._nodes:
            raise self._nobody()

    def _start(self, name: str, address: str, workers: int) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        kind = self._ray.remote(NodePool).options(
            num_cpus=workers,
            scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False),
        )
        actor = kind.remote(self._setup, workers, self._priority, package_version())
        self._nodes[name] = _Node(name, address, workers, actor, actor.start.remote())

    def _nobody(self) -> ShioenvError:
        """Why there is no node to work on."""
        for error in self._refused.values():
            return error
        return GenerationError(
            "the Ray cluster has no node with a processor left",
            hint="what is finished is kept: the same command goes on",
        )

    # records

    def _hand_out(self, tasks: Iterator[Task], exhausted: bool) -> bool:
        """Gives each idle or waiting node what it has room for; whether the stream has ended."""
        for node in self._all():
            if not node.ready or node.call is not None:
                continue
            given = [heapq.heappop(self._retry) for _ in range(min(node.room, len(self._retry)))]
            wanted = min(node.room - len(given), self._ahead())
            if wanted > 0 and not exhausted:
                fresh = list(islice(tasks, wanted))
                exhausted = len(fresh) < wanted
                given += fresh
            for number, drawn in given:
                node.tasks[number] = drawn
                self._newest = max(self._newest, number)
            if node.tasks:
                node.call = node.actor.exchange.remote(given)
        return exhausted

    def _ahead(self) -> int:
        """How many more samples may be begun before the oldest is finished."""
        numbers = [min(one.tasks) for one in self._all() if one.tasks]
        window = max(WINDOW, 8 * sum(one.workers for one in self._all()))
        return window - (self._newest - min(numbers, default=self._newest))

    def _receive(self, node: _Node, call: Any) -> list[Line]:
        """What a node answered; one that is gone gives its samples back."""
        node.call = None
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise GenerationError(f"the node {node.address} failed: {error}") from error
        except self._ray.exceptions.RayError as error:
            self._bury(node, error)
            return []
        if isinstance(answer, Refusal):
            if node.ready:
                raise answer.error()
            self._leave_out(node, answer)
            return []
        if isinstance(answer, Host):
            node.ready = True
            self._under(answer.kernel)
            self._report(
                f"node {node.address} ({answer.name}) works: {node.workers} at once, "
                f"Linux {answer.kernel}"
            )
            return []
        self._dead_starts.pop(node.name, None)
        self.retried += answer.retried
        self.restarts += answer.restarts
        for line in answer.lines:
            del node.tasks[line.session_id]
            self._lost.pop(line.session_id, None)
        return list(answer.lines)

    def _leave_out(self, node: _Node, answer: Refusal) -> None:
        """A node that cannot run sandboxes: says so and goes on without."""
        del self._nodes[node.name]
        self._kill(node)
        self._refused[node.name] = answer.error()
        hint = f"; to do there: {answer.hint}" if answer.hint else ""
        self._report(f"node {node.address} ({answer.name}) is left out: {answer.message}{hint}")
        self._looked = float("-inf")

    def _bury(self, node: _Node, error: Exception) -> None:
        """A node, or its actor, is gone: what it had in work goes to others."""
        del self._nodes[node.name]
        self._kill(node)
        first, *_, last = [*str(error).strip().splitlines(), ""]
        why = f"{type(error).__name__}: {first} {last}".rstrip()
        if node.ready:
            moved = f"{len(node.tasks)} records go to others"
            self._report(f"node {node.address} is lost, {moved}: {why}")
            self.restarts += node.workers
        begun = list(node.tasks)[: node.workers]
        for number in begun:
            self._lost[number] += 1
            self.retried += 1
            if self._lost[number] >= ATTEMPTS:
                raise given_up(number, node.tasks[number], why)
        for task in node.tasks.items():
            heapq.heappush(self._retry, task)
        self._dead_starts[node.name] += 1
        if self._dead_starts[node.name] >= STARTS:
            self._refused[node.name] = GenerationError(f"node {node.address} fails: {why}")
            self._report(f"node {node.address} is left out: {why}")
        self._looked = float("-inf")

    def _kill(self, node: _Node) -> None:
        with suppress(self._ray.exceptions.RayError, ValueError):  # it is gone already
            self._ray.kill(node.actor)


@dataclass(slots=True, eq=False)
class _Node:
    """A node that works or is about to."""

    name: str
    address: str
    workers: int
    actor: Any
    call: Any
    """The call that is not answered yet: at most one."""
    ready: bool = False
    tasks: dict[int, Sample] = field(default_factory=dict)
    """What it has been given and has not finished, in the order given."""

    @property
    def room(self) -> int:
        return IN_FLIGHT * self.workers - len(self.tasks)


def spread(
    processors: Mapping[str, int], working: Mapping[str, int], wanted: int | None
) -> dict[str, int]:
    """Workers for each node: one a processor, or as evenly as possible those that are wanted.

    Nodes that work already keep what they have.
    """
    shares = dict(working)
    fresh = [name for name in processors if name not in working]
    if wanted is None:
        return {**shares, **{name: processors[name] for name in fresh}}
    shares |= dict.fromkeys(fresh, 0)
    for _ in range(wanted - sum(working.values())):
        open_ = [name for name in fresh if shares[name] < processors[name]]
        if open_:
            shares[min(open_, key=lambda name: shares[name])] += 1
    return shares


def _check(address: str) -> None:
    """HostError where nothing listens at HOST:PORT; Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()) or "//" in host:
        raise UsageError(
            f"{address!r} is no address of a Ray cluster",
            hint="HOST:PORT as ray start --head prints it, or auto on a node of the cluster",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unanswered(address, error) from error


def _unanswered(address: str, error: Exception) -> HostError:
    return HostError(
        f"no Ray cluster answers at {address}: {error}",
        hint="ray start --head starts one and prints its address; docs/how-to/cluster.md",
    )


def _import_ray() -> Any:
    """Ray, told to be quiet before it is loaded."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ModuleNotFoundError:
        raise MissingExtraError("--engine ray", "ray", "ray") from None
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    return ray
