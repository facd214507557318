"""Execution of jobs on the nodes of a Ray cluster: one actor per node, with a crew of processes.

The process that owns the job draws the tasks, gives each node a few more than it can process at
once, and receives the answers. It keeps every unfinished task, so a lost node costs only the time
of its unfinished tasks.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from shioenv.behavior.observe import open_sandbox
from shioenv.errors import GenerationError, HostError, MissingExtraError, ShioenvError, UsageError
from shioenv.execution.job import NumberedJob, Opener, Tell, processes, silent, surroundings_of
from shioenv.execution.local import Crew
from shioenv.execution.schedule import STARTS, WINDOW, Failure, Schedule
from shioenv.guests import package_version
from shioenv.system.store import find_system

T = TypeVar("T")
A = TypeVar("A")

STAND_BY = 2
"""Extra tasks for each worker of a node, in addition to those that its crew distributes.

They keep the workers busy while more tasks are requested.
"""

LOOK_SECONDS = 2.0
"""Seconds between two checks of the cluster's nodes."""

CONNECT_SECONDS = 10.0
"""Time limit in seconds for a cluster to accept a connection."""

STORE_BYTES = 100_000_000
"""Bytes of shared memory of a cluster started here; answers are not transferred through it."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",
    "RAY_worker_oom_score_adjustment": "0",
}
"""Settings of a cluster started here: no usage reports, and unchanged priorities."""

_OOM = Path("/proc/self/oom_score_adj")


@dataclass(frozen=True, slots=True)
class Priority:
    """Inherited process priorities, which inputs can see (`nice`, `/proc/self/oom_score_adj`)."""

    niceness: int
    oom_score: int

    @classmethod
    def here(cls) -> Priority:
        """Return the priority of the calling process."""
        return cls(os.getpriority(os.PRIO_PROCESS, 0), int(_OOM.read_text()))

    def take(self) -> None:
        """Set the priority of this process.

        HostError if the process has another priority that cannot be changed.
        """
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, self.niceness)
        with suppress(PermissionError):
            _OOM.write_text(str(self.oom_score))
        now = Priority.here()
        if now != self:
            raise HostError(
                f"Ray's workers have niceness {now.niceness} and OOM score {now.oom_score}, which "
                f"inputs can see; this process has {self.niceness} and {self.oom_score}",
                hint=f"start Ray with equal values: RAY_worker_niceness={self.niceness} "
                f"RAY_worker_oom_score_adjustment={self.oom_score} ray start ...",
            )


@dataclass(frozen=True, slots=True)
class Host:
    """A node's first report about itself."""

    name: str
    kernels: frozenset[str]
    layers: frozenset[str]
    refusal: Failure | None
    """The reason why no sandbox opens on the node; None if one opened."""


@dataclass(frozen=True, slots=True)
class Made:
    """A node's results since the last call: answers, and counts of retries and restarts."""

    answers: list[tuple[int, Any]]
    retried: int
    restarts: int


class NodeCrew:
    """The crew of one node, created by Ray as an actor there; it handles one call at a time."""

    def __init__(self, given: bytes, workers: int, priority: Priority, version: str) -> None:
        self._given, self._workers = given, workers
        self._priority, self._version = priority, version
        self._crew: Crew
        self._schedule: Schedule[Any]

    def start(self) -> Host:
        """Open a first sandbox and return the node's report about itself."""
        refusal, kernels, layers = None, frozenset({platform.release()}), frozenset[str]()
        try:
            if (installed := package_version()) != self._version:
                raise HostError(
                    f"shioenv {installed} is installed there, {self._version} here",
                    hint=f"pip install 'shioenv[ray]=={self._version}'",
                )
            self._priority.take()
            job, opener, cache_bytes = pickle.loads(self._given)
            self._crew = Crew(job, opener, cache_bytes, self._workers)
            self._schedule = Schedule(what=job.what)
            self._crew.start()
            kernels, layers = surroundings_of(opener, job.system, job.limits)
        except ShioenvError as error:
            refusal = Failure.of(error)
        return Host(platform.node(), kernels, layers, refusal)

    def exchange(self, tasks: list[tuple[int, Any]]) -> Made | Failure:
        """Accept tasks and wait until some are finished; at least one must be unfinished."""
        crew, schedule = self._crew, self._schedule
        retried, restarts = schedule.retried, crew.restarts
        answers: list[tuple[int, Any]] = []
        try:
            for number, task in tasks:
                schedule.add(number, task)
            while not answers:
                answers = crew.take(schedule)
        except ShioenvError as error:
            return Failure.of(error)
        return Made(answers, schedule.retried - retried, crew.restarts - restarts)


class RayExecutor:
    """Executes jobs on the nodes of a Ray cluster, as `LocalExecutor` does on one machine.

    `workers` limits the processes on all nodes together (None: one per processor). `address` is the
    address of the cluster. None: `RAY_ADDRESS`, or if it is not set, a cluster of only this
    machine, which ends with this executor.

    If a system is declared in a custom file, nodes look it up by its name. Errors:
    MissingExtraError if Ray is not installed, UsageError for less than one worker.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        address: str | None = None,
        opener: Opener = open_sandbox,
        cache_bytes: int = 0,
    ) -> None:
        if workers is not None:
            processes(workers)
        self._ray = _import_ray()
        self._wanted = workers
        self._address = address or os.environ.get("RAY_ADDRESS") or "local"
        self._opener, self._cache_bytes = opener, cache_bytes
        self._priority = Priority.here()
        self._job: NumberedJob[Any, Any] | None = None
        self._given = b""
        self._nodes: dict[str, _Node] = {}
        self._refused: dict[str, ShioenvError] = {}
        self._dead_starts: Counter[str] = Counter()
        self._looked = float("-inf")
        self._ours = False
        self._directory: str | None = None
        self._tell: Tell = silent
        self.kernels: set[str] = set()
        self.layers: set[str] = set()
        self.retried = 0
        self.restarts = 0

    @property
    def workers(self) -> int:
        """The number of worker processes of the nodes in use."""
        return sum(node.workers for node in self._nodes.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def check(self, job: NumberedJob[Any, Any]) -> None:
        """Do nothing: inputs run on the nodes, and each node reports what is missing."""

    def map(
        self, job: NumberedJob[T, A], tasks: Iterable[tuple[int, T]], tell: Tell = silent
    ) -> Iterator[tuple[int, A]]:
        """Execute a job, as in every executor; `tell` reports joining, lost and excluded nodes.

        Further errors: HostError if no cluster answers. UsageError for an invalid address. The
        error of a node if no node can open a sandbox. GenerationError if no node is left.
        """
        schedule = Schedule(tasks, what=job.what)
        if not schedule.left:
            return
        self._tell = tell
        if job is not self._job:
            self._end_nodes()
            named = job
            if job.system.endswith(".toml"):
                named = replace(job, system=find_system(job.system).name)
            self._job = job
            self._given = pickle.dumps((named, self._opener, self._cache_bytes))
        self._connect()
        try:
            while schedule.left:
                self._look()
                schedule.window = max(WINDOW, 8 * self.workers)
                self._hand_out(schedule)
                calls = {node.call: node for node in self._nodes.values() if node.call is not None}
                done, _ = self._ray.wait(list(calls), num_returns=1, timeout=LOOK_SECONDS)
                for call in done:
                    yield from self._receive(calls[call], schedule)
        finally:
            self.retried += schedule.retried
            if schedule.unfinished:  # nodes must not answer after this job
                self._end_nodes()

    def close(self) -> None:
        """End all workers, and the cluster if it was started here."""
        self._end_nodes()
        if self._ours:
            self._ray.shutdown()
            self._ours = False
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _end_nodes(self) -> None:
        for node in self._nodes.values():
            self._kill(node)
        self._nodes.clear()
        self._refused.clear()
        self._dead_starts.clear()
        self.kernels.clear()
        self.layers.clear()
        self._looked = float("-inf")

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        options: dict[str, Any] = {"address": self._address}
        if self._address == "local":
            # a short path, because the length of socket paths is limited
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
        """Start an actor on each node that has none, at most once in LOOK_SECONDS."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        alive = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        working = {name: node.workers for name, node in self._nodes.items()}
        usable = {
            name: int(node["Resources"].get("CPU", 0))
            for name, node in alive.items()
            if name not in self._refused
        }
        for name, workers in workers_per_node(usable, working, self._wanted).items():
            if name not in working and workers:
                self._start(name, alive[name]["NodeManagerAddress"], workers)
        if not self._nodes:
            raise self._nobody()

    def _start(self, name: str, address: str, workers: int) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        kind = self._ray.remote(NodeCrew).options(
            num_cpus=workers, scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False)
        )
        actor = kind.remote(self._given, workers, self._priority, package_version())
        self._nodes[name] = _Node(name, address, workers, actor, actor.start.remote())

    def _nobody(self) -> ShioenvError:
        """Return the error that explains why no node is available."""
        nothing = GenerationError(
            "the Ray cluster has no node with a free processor",
            hint="finished parts are saved: run the same command to resume",
        )
        return next(iter(self._refused.values()), nothing)

    # tasks

    def _hand_out(self, schedule: Schedule[Any]) -> None:
        """Give each node without a pending call as many tasks as it has room for.

        A task that a lost node may have started is given to a node that has no other task. So if a
        task kills its node each time, only the attempts of that task are counted.
        """
        assert self._job is not None
        for node in self._nodes.values():
            if not node.ready or node.call is not None:
                continue
            given: list[tuple[int, Any]] = []
            most = (self._job.lanes + 1 + STAND_BY) * node.workers
            while len(node.tasks) < most and not schedule.alone(node.tasks):
                if (task := schedule.take(beside=bool(node.tasks))) is None:
                    break
                node.tasks[task[0]] = None
                given.append(task)
            if node.tasks:
                node.call = node.actor.exchange.remote(given)

    def _receive(self, node: _Node, schedule: Schedule[Any]) -> list[tuple[int, Any]]:
        """Return the answers of a node; the tasks of a lost node are returned to the schedule."""
        call, node.call = node.call, None
        try:
            answer = self._ray.get(call)
        except self._ray.exceptions.RayTaskError as error:
            raise GenerationError(f"the node {node.address} failed: {error}") from error
        except self._ray.exceptions.RayError as error:
            self._bury(node, error, schedule)
            return []
        if isinstance(answer, Failure):
            raise answer.error()
        if isinstance(answer, Host):
            self._welcome(node, answer)
            return []
        self._dead_starts.pop(node.name, None)
        self.retried += answer.retried
        self.restarts += answer.restarts
        for number, _ in answer.answers:
            del node.tasks[number]
            schedule.done(number)
        return list(answer.answers)

    def _welcome(self, node: _Node, host: Host) -> None:
        """Add a node, or exclude a node that cannot run sandboxes."""
        if host.refusal is None:
            node.ready = True
            self.kernels |= host.kernels
            self.layers |= host.layers
            self._tell(
                f"node {node.address} ({host.name}) is ready (workers: {node.workers}, "
                f"Linux {', '.join(host.kernels)})"
            )
            return
        del self._nodes[node.name]
        self._kill(node)
        error = self._refused[node.name] = host.refusal.error()
        hint = f"; fix it there: {error.hint}" if error.hint else ""
        self._tell(f"node {node.address} ({host.name}) is excluded: {error.message}{hint}")
        self._looked = float("-inf")

    def _bury(self, node: _Node, error: Exception, schedule: Schedule[Any]) -> None:
        """Remove a node that is lost, or whose actor is lost; its tasks go to other nodes."""
        del self._nodes[node.name]
        self._kill(node)
        first, *_, last = [*str(error).strip().splitlines(), ""]
        why = f"{type(error).__name__}: {first} {last}".rstrip()
        if node.ready:
            moved = f"its {len(node.tasks)} {schedule.what}s are moved to other nodes"
            self._tell(f"node {node.address} is lost, {moved}: {why}")
            self.restarts += node.workers
        assert self._job is not None
        alone = schedule.alone(node.tasks)
        begun = self._job.lanes * node.workers
        tasks = sorted(node.tasks)  # the order in which the node starts them
        for number in tasks[begun:]:
            schedule.back(number)
        for number in tasks[:begun]:
            schedule.again(number, why)
        if not alone:  # otherwise the only task is the cause, and `schedule` counts its attempts
            self._dead_starts[node.name] += 1
        if self._dead_starts[node.name] >= STARTS:
            self._refused[node.name] = GenerationError(f"node {node.address} fails: {why}")
            self._tell(f"node {node.address} is excluded: {why}")
        self._looked = float("-inf")

    def _kill(self, node: _Node) -> None:
        with suppress(self._ray.exceptions.RayError, ValueError):  # the actor has already ended
            self._ray.kill(node.actor)


@dataclass(slots=True, eq=False)
class _Node:
    """A node whose actor works or is being started."""

    name: str
    address: str
    workers: int
    actor: Any
    call: Any
    """The pending call, at most one; else None."""
    ready: bool = False
    tasks: dict[int, None] = field(default_factory=dict)
    """The numbers of the node's unfinished tasks, in the order given."""


def workers_per_node(
    processors: Mapping[str, int], working: Mapping[str, int], wanted: int | None
) -> dict[str, int]:
    """Return the number of workers for each node.

    Without `wanted`, a node gets one per processor. Otherwise the nodes share `wanted` as evenly as
    possible, at most one per processor. Nodes that are already working keep their workers.
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
    """Check an address.

    HostError if nothing listens at HOST:PORT, UsageError for an invalid address.

    Ray itself would try to connect for many minutes.
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()) or "//" in host:
        raise UsageError(
            f"{address!r} is not an address of a Ray cluster",
            hint="use HOST:PORT as printed by `ray start --head`, or auto on a node of the cluster",
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _unanswered(address, error) from error


def _unanswered(address: str, error: Exception) -> HostError:
    return HostError(
        f"no Ray cluster responds at {address}: {error}",
        hint="start one with `ray start --head`, which prints its address (docs/how-to/cluster.md)",
    )


def _import_ray() -> Any:
    """Import Ray with its messages turned off."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ModuleNotFoundError:
        raise MissingExtraError("--engine ray", "ray", "ray") from None
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    return ray
