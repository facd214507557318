"""A set of certified tasks, made from a seed in rounds, as files and as Harbor folders.

A round draws records, makes tasks from them, composes longer ones, and certifies all. The result of
a round is one file, so a restarted process resumes with the interrupted round.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shioenv.dataset.generate import Destination, Progress, generate
from shioenv.dataset.record_reader import read_records
from shioenv.dataset.split import Shares, group_of_input
from shioenv.errors import TaskError, UsageError
from shioenv.execution.local import LocalExecutor
from shioenv.files.durable import atomic_write, locked, storage_errors
from shioenv.grammar.library import shipped_headers
from shioenv.guests import package_version
from shioenv.recording.text_score import read_arguments
from shioenv.seeding import generator
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import grammars_for
from shioenv.system.store import System, find_system
from shioenv_agents.tasks.agents import AGENTS, SCRIPTS, Agent, Attempt, attempts, description_of
from shioenv_agents.tasks.certify import certify_tasks
from shioenv_agents.tasks.harbor.task_folders import export_tasks, name_of, refusal
from shioenv_agents.tasks.make import MadeTasks, make_tasks
from shioenv_agents.tasks.task import LENGTHS, GoalKind, Task, bare, decode, encode, length_of
from shioenv_agents.tasks.task_composition import composed_tasks

RECORDS: Final = 2000
"""Maximum records of a round."""

YIELD: Final = 6
"""Records drawn for each missing task of one line: one in four becomes a task."""

SPARE: Final = 20
"""Additional records for each round so far, because the missing tasks become rarer."""

SHARE: Final = 0.05
"""Default maximum fraction of the tasks of one line that hold the same command."""

LONGER: Final = 3
"""The factor by which `SHARE` is larger for longer tasks, which hold several commands each."""

POOL: Final = 400
"""Maximum tasks of one line from which a round composes longer ones, in each part."""

BARREN: Final = 3
"""The number of consecutive barren rounds that end a set.

A barren round adds less than a fiftieth of the missing tasks.
"""

PARTS: Final = Shares(test=0.1, validation=0.1)

MANIFEST: Final = "manifest.json"
ROUNDS: Final = "rounds"
HARBOR: Final = "harbor"


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPlan:
    """The parameters that determine the tasks of a set.

    Errors: UsageError for an impossible plan.
    """

    count: int
    """The number of tasks, all lengths together."""
    seed: int = 0
    k: int = 20
    """Number of runs of each solution, and of the empty attempt."""
    share: float = SHARE
    """Maximum fraction of the tasks of one line that hold the same command.

    The fraction is `LONGER` times as large for longer tasks. A broken machine counts for the
    commands that broke it.
    """
    agents: tuple[str, ...] = SCRIPTS
    """The agents that try each task, to measure its difficulty."""

    def __post_init__(self) -> None:
        if self.count < len(LENGTHS) or not 0 < self.share <= 1:
            raise UsageError(
                f"a set of {self.count} tasks with a share of {self.share} is not possible",
                hint=f"use at least {len(LENGTHS)} tasks, and a share above 0",
            )

    def wanted(self, length: str) -> int:
        """Return the requested number of tasks of a length."""
        number = LENGTHS.index(length)
        return (self.count + len(LENGTHS) - 1 - number) // len(LENGTHS)

    def bound(self, length: str) -> int:
        """Return the maximum number of tasks of a length with the same command."""
        share = self.share if length == LENGTHS[0] else min(1.0, LONGER * self.share)
        return max(1, int(share * self.wanted(length)))


@dataclass(frozen=True, slots=True)
class _Means:
    """The agents, system and callbacks of a round."""

    agents: Mapping[str, Agent]
    system: str
    workers: int | None
    tell: Callable[[str, int, int], None]
    note: Callable[[str], None]


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a round."""

    records: int
    tasks: int
    refused: dict[str, dict[str, int]]
    """The number of refusals in each step, by the reason."""


@dataclass(slots=True)
class _Gathered:
    """The tasks so far, with the counts that limit further ones."""

    plan: SetPlan
    known_commands: tuple[str, ...] = ()
    """The commands that have a grammar and exist in the system."""
    tasks: list[Task] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Tasks by length and part."""
    commands: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Tasks by length and command."""
    known: set[bytes] = field(default_factory=set)
    """The prompts so far, each with its directory, history and output."""

    def of(self, length: str) -> int:
        """Return the number of tasks of a length."""
        return sum(self.counts[length, part] for part in PARTS.names)

    def left(self, length: str) -> int:
        """Return the number of missing tasks of a length."""
        return self.plan.wanted(length) - self.of(length)

    def add(self, part: str, task: Task) -> None:
        """Add a task."""
        length = length_of(task)
        self.tasks.append(task)
        self.parts.append(part)
        self.counts[length, part] += 1
        for name in commands_of(task):
            self.commands[length, name] += 1
        self.known.add(_task_key(task))

    def chosen(
        self, drafts: Iterable[tuple[str, Task]], refused: Counter[str]
    ) -> Iterator[tuple[str, Task]]:
        """Yield the drafts that the limits allow, counting the earlier ones as added."""
        known = set(self.known)
        commands = Counter(self.commands)
        counts = Counter({length: self.of(length) for length in LENGTHS})
        for part, task in drafts:
            length = length_of(task)
            if _task_key(task) in known:
                refused["it is a duplicate"] += 1
            elif counts[length] >= self.plan.wanted(length):
                refused["its length has enough tasks"] += 1
            elif any(commands[length, n] >= self.plan.bound(length) for n in commands_of(task)):
                refused["its command has enough tasks"] += 1
            else:
                known.add(_task_key(task))
                counts[length] += 1
                for name in commands_of(task):
                    commands[length, name] += 1
                yield part, task

    def wanted_commands(self) -> tuple[str, ...]:
        """Return the commands that are needed more often.

        While tasks of one line are missing, these are all commands below their limit. Afterwards
        they are those that can break a machine.
        """
        harms = {
            name
            for name, header in shipped_headers().items()
            if header.traits.removes or header.traits.changes
        }
        length = LENGTHS[0] if self.left(LENGTHS[0]) > 0 else LENGTHS[2]
        return tuple(
            name
            for name in self.known_commands
            if self.commands[length, name] < self.plan.bound(length)
            and (length == LENGTHS[0] or name in harms)
        )


@dataclass(frozen=True, slots=True)
class MadeSet:
    """The result of making a set."""

    directory: Path
    manifest: Mapping[str, Any]

    @property
    def complete(self) -> bool:
        """Whether the set has the requested number of tasks."""
        return bool(self.manifest["tasks"] == self.manifest["plan"]["count"])


def make_set(
    directory: Path,
    plan: SetPlan,
    *,
    agents: Mapping[str, Agent] = AGENTS,
    harbor: bool = True,
    system: str | None = None,
    workers: int | None = None,
    tell: Callable[[str, int, int], None] = lambda label, done, total: None,
    note: Callable[[str], None] = lambda text: None,
) -> MadeSet:
    """Make the set of a plan in a directory; resume if an earlier call was interrupted.

    One-line tasks come first in each round. Longer tasks are composed within one part, so that no
    line occurs in two parts. A one-line task belongs to the part of its group (`group_of_input`).
    The directory holds a file of tasks and a directory of Harbor folders for each part, and the
    manifest, which is written last.

    `agents` maps the names in the plan to agents. `tell` is called with a label, the number done
    and the total. Errors: TaskError if no task could be made, or the directory holds the set of
    another plan; those of `find_system`, sandboxes and `new_directory`.
    """
    built = find_system(system)
    with storage_errors(directory):
        (directory / ROUNDS).mkdir(parents=True, exist_ok=True)
    with locked(directory), storage_errors(directory):
        _start_plan(
            directory, plan, built, {one: description_of(agents[one]) for one in plan.agents}
        )
        gathered = _Gathered(plan, tuple(one.name for one in grammars_for(built, Drawing())))
        means = _Means(agents, system or built.name, workers, tell, note)
        counted: list[_Round] = []
        exported: list[_Exported] = []
        barren = 0
        for number in itertools.count():
            if all(gathered.left(length) <= 0 for length in LENGTHS) or barren == BARREN:
                break
            tell("tasks of the set", len(gathered.tasks), plan.count)
            place = directory / ROUNDS / f"{number:04}"
            file = place.with_suffix(".jsonl")
            if not file.exists():
                made, about = _run_round(place, number, gathered, means)
                _write(file, made, about)
            rmtree(place, ignore_errors=True)
            missing, before = plan.count - len(gathered.tasks), len(gathered.tasks)
            counted.append(_read(file, gathered))
            if harbor:
                new = zip(gathered.parts[before:], gathered.tasks[before:], strict=True)
                exported.append(_exported(directory, place, list(new), tell))
            barren = barren + 1 if 50 * counted[-1].tasks < missing else 0
        if not gathered.tasks:
            raise TaskError("no task could be made", hint="use another --seed or a larger --count")
        return MadeSet(directory, _finished(directory, gathered, counted, exported, built))


def commands_of(task: Task) -> set[str]:
    """Return the commands of a task's solution; for a broken machine, those that broke it."""
    if not task.history:
        return set(task.commands)
    return {one.command for row in task.history for one in read_arguments(row).input.segments}


def _task_key(task: Task) -> bytes:
    return msgspec.json.encode([task.cwd, task.history, task.prompt, task.goal.output])


# ---- a round


def _run_round(
    place: Path, number: int, gathered: _Gathered, means: _Means
) -> tuple[list[tuple[str, Task]], _Round]:
    """Run a round; return its certified tasks, tried by agents, with parts and counts."""
    plan = gathered.plan
    kept = place / "parts"
    with storage_errors(kept):
        kept.mkdir(parents=True, exist_ok=True)
    seed = plan.seed * 100_003 + number
    refused: dict[str, Counter[str]] = {}
    drafts: list[tuple[str, Task]] = []
    records = 0
    fresh: list[tuple[str, Task]] = []
    lacking = max(gathered.left(LENGTHS[0]), gathered.left(LENGTHS[2]))
    if lacking > 0 and gathered.wanted_commands():
        records = min(RECORDS, YIELD * lacking + SPARE * (number + 1))
        made = _of_records(place, records, seed, gathered, means)
        refused["records"] = Counter(made.refused)
        fresh = [(PARTS.part_of(group_of_input(x.solution), plan.seed), x) for x in made.tasks]
        refused["tasks of one line"] = Counter()
        drafts += gathered.chosen(fresh, refused["tasks of one line"])
    refused["longer tasks"] = Counter()
    longer = list(_longer(gathered, fresh, number, seed, refused, means, kept))
    drafts += gathered.chosen(longer, refused["longer tasks"])
    if not drafts:
        return [], _counted(records, 0, refused)
    named = [replace(task, id=f"r{number:04}-{n:05}") for n, (_, task) in enumerate(drafts)]
    certified = certify_tasks(
        named,
        k=plan.k,
        kept=place / "certificates",
        system=means.system,
        workers=means.workers,
        report=partial(means.tell, "certificates"),
        note=means.note,
    )
    refused["certificates"] = Counter()
    sound = []
    numbers = Counter({length: gathered.of(length) for length in LENGTHS})
    for (part, _), task in zip(drafts, certified, strict=True):
        faults = task.certificate.faults if task.certificate else ("the certificate is missing",)
        refused["certificates"].update(fault.partition(":")[0] for fault in faults[:1])
        if not faults:
            length = length_of(task)
            sound.append((part, replace(task, id=f"{length[0]}{numbers[length]:06}")))
            numbers[length] += 1
    tasks = [task for _, task in sound]
    for one in plan.agents:
        tried = attempts(
            tasks,
            one,
            agent=means.agents[one],
            system=means.system,
            workers=means.workers,
            kept=kept,
            report=partial(means.tell, f"tries of {one}"),
        )
        tasks = [_with(task, attempt) for task, attempt in zip(tasks, tried, strict=True)]
    parts = [part for part, _ in sound]
    return list(zip(parts, tasks, strict=True)), _counted(records, len(tasks), refused)


def _with(task: Task, attempt: Attempt) -> Task:
    return replace(task, solved_by={**task.solved_by, attempt.agent: attempt.solved})


def _counted(records: int, tasks: int, refused: Mapping[str, Counter[str]]) -> _Round:
    return _Round(
        records=records,
        tasks=tasks,
        refused={step: dict(why.most_common()) for step, why in refused.items() if why},
    )


def _of_records(
    place: Path, count: int, seed: int, gathered: _Gathered, means: _Means
) -> MadeTasks:
    """Make tasks from a round's records, drawn from the commands that are needed more often."""

    def report(progress: Progress) -> None:
        if not progress.note:
            means.tell("records", progress.done, progress.count)

    generate(
        Destination(place / "records"),
        count=count,
        drawing=Drawing(seed=seed, commands=gathered.wanted_commands()),
        system=means.system,
        executor=LocalExecutor(means.workers),
        report=report,
    )
    return make_tasks(
        read_records(place / "records"),
        system=means.system,
        workers=means.workers,
        kept=place / "parts",
        report=partial(means.tell, "records as tasks"),
    )


def _longer(
    gathered: _Gathered,
    fresh: Sequence[tuple[str, Task]],
    number: int,
    seed: int,
    refused: Mapping[str, Counter[str]],
    means: _Means,
    kept: Path,
) -> Iterator[tuple[str, Task]]:
    """Yield longer tasks of each part, composed of its tasks of one line.

    Tasks of this round come first, even those that the set has no room for; then older ones.
    """
    pools: list[dict[str, list[Task]]] = []
    for pairs in (fresh, list(zip(gathered.parts, gathered.tasks, strict=True))):
        pool: dict[str, list[Task]] = {part: [] for part in PARTS.names}
        for part, task in pairs:
            if length_of(task) == LENGTHS[0] and task.kind is GoalKind.STATE:
                pool[part].append(bare(task))
        pools.append(pool)
    new, old = pools
    whole = sum(len(tasks) for pool in pools for tasks in pool.values())
    for part in PARTS.names:
        generator(seed, "pool", part).shuffle(old[part])
        tasks = [*new[part], *old[part]]
        if len(tasks) < 2:
            continue
        share = len(tasks) / whole
        lines, broken = (
            min(POOL, 2 * round(share * left) + 1 + number * (left > 0))
            for left in (max(0, gathered.left(x)) for x in LENGTHS[1:])
        )
        composed = composed_tasks(
            tasks[:POOL],
            lines=lines,
            broken=broken,
            seed=seed,
            system=means.system,
            workers=means.workers,
            kept=kept,
            report=partial(means.tell, "longer tasks"),
        )
        refused["longer tasks"].update(composed.refused)
        yield from ((part, task) for task in composed.tasks)


# ---- files


def _start_plan(directory: Path, plan: SetPlan, built: System, agents: Mapping[str, str]) -> None:
    """Store the plan of these rounds; refuse a directory of another plan, agent or build."""
    file = directory / ROUNDS / "plan.json"
    about = {"system": built.name, "digest": built.digest, "agents": agents}
    document = {**msgspec.to_builtins(plan), **about}
    content = json.dumps(document, sort_keys=True).encode()
    if not file.exists():
        if any(entry.name != ROUNDS for entry in directory.iterdir()):
            raise TaskError(f"{directory} is not a set of tasks", hint="use a new directory")
        atomic_write(file, content)
    elif file.read_bytes() != content:
        raise TaskError(
            f"{directory} contains a set with other options, another agent or model, or another "
            "build of the system",
            hint="use the options of that set, or a new directory",
        )


def _write(file: Path, tasks: Iterable[tuple[str, Task]], about: _Round) -> None:
    """Write a round: its counts in the first line, then each task on a line after its part."""
    lines = [msgspec.json.encode(about) + b"\n"]
    lines += [part.encode() + b" " + encode(task) for part, task in tasks]
    with storage_errors(file):
        atomic_write(file, b"".join(lines))


def _read(file: Path, gathered: _Gathered) -> _Round:
    """Add the tasks of a round. Errors: TaskError for an invalid file."""
    first, *lines = file.read_bytes().splitlines()
    try:
        about = msgspec.json.decode(first, type=_Round)
    except msgspec.DecodeError:
        raise TaskError(
            f"{file} is not a valid round of a set", hint="delete it; the next call makes it again"
        ) from None
    for line in lines:
        part, _, text = line.partition(b" ")
        gathered.add(part.decode(), decode(text, str(file)))
    return about


class _Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of exporting a round's tasks to Harbor."""

    written: dict[str, int]
    """Folders by part."""
    refused: dict[str, int]
    """Tasks that cannot be exported, by the reason."""


def _exported(
    directory: Path,
    place: Path,
    tasks: Sequence[tuple[str, Task]],
    tell: Callable[[str, int, int], None],
) -> _Exported:
    """Write a round's Harbor folders, each into the directory of its part."""
    about, fresh = place.with_suffix(".harbor.json"), place.with_suffix(".harbor")
    if about.exists():
        return msgspec.json.decode(about.read_bytes(), type=_Exported)
    parts = {name_of(task): part for part, task in tasks}
    reasons = [refusal(task, find_system(task.system)) for _, task in tasks]
    refused = Counter(why for why in reasons if why is not None)
    told = [task for (_, task), why in zip(tasks, reasons, strict=True) if why is None]
    if told and not fresh.exists():
        try:
            done = export_tasks(told, fresh, report=partial(tell, "Harbor's folders"))
            refused.update(done.refused.values())
        except TaskError as error:
            refused[error.message] += len(told)
    for folder in sorted(fresh.iterdir()) if fresh.exists() else ():
        (directory / HARBOR / parts[folder.name]).mkdir(parents=True, exist_ok=True)
        folder.rename(_folder(directory, parts[folder.name], folder.name))
    found = {name: part for name, part in parts.items() if _folder(directory, part, name).exists()}
    made = _Exported(written=dict(Counter(found.values())), refused=dict(refused))
    atomic_write(about, msgspec.json.encode(made))
    rmtree(fresh, ignore_errors=True)
    return made


def _finished(
    directory: Path,
    gathered: _Gathered,
    counted: Sequence[_Round],
    exported: Sequence[_Exported],
    built: System,
) -> dict[str, Any]:
    """Write the file of each part, then the manifest, and return the manifest."""
    for part in PARTS.names:
        tasks = (
            task for of, task in zip(gathered.parts, gathered.tasks, strict=True) if of == part
        )
        atomic_write(directory / f"{part}.jsonl", b"".join(map(encode, tasks)))
    harbor: dict[str, Counter[str]] = {"written": Counter(), "refused": Counter()}
    for one in exported:
        harbor["written"].update(one.written)
        harbor["refused"].update(one.refused)
    told = {what: dict(counts.most_common()) for what, counts in harbor.items()}
    manifest = manifest_of(gathered, counted, built, told)
    atomic_write(directory / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")
    return manifest


def _folder(directory: Path, part: str, name: str) -> Path:
    return directory / HARBOR / part / name


def manifest_of(
    gathered: _Gathered, counted: Sequence[_Round], built: System, harbor: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a document that describes a set, all refusals, and its difficulty."""
    plan, tasks = gathered.plan, gathered.tasks
    refused: dict[str, Counter[str]] = {}
    for one in counted:
        for step, reasons in one.refused.items():
            refused.setdefault(step, Counter()).update(reasons)
    certificate = next((task.certificate for task in tasks if task.certificate), None)
    return {
        "plan": msgspec.to_builtins(plan),
        "made_by": package_version(),
        "system": {"name": built.name, "digest": built.digest},
        "judged_by": msgspec.to_builtins(certificate.judged_by) if certificate else None,
        "rounds": len(counted),
        "records": sum(one.records for one in counted),
        "tasks": len(tasks),
        "lengths": {length: gathered.of(length) for length in LENGTHS},
        "parts": {
            part: {length: gathered.counts[length, part] for length in LENGTHS}
            for part in PARTS.names
        },
        "kinds": dict(Counter(task.kind.value for task in tasks).most_common()),
        "commands": {
            length: {
                name: number
                for (of, name), number in gathered.commands.most_common()
                if of == length
            }
            for length in LENGTHS
        },
        "most_of_a_command": {length: plan.bound(length) for length in LENGTHS},
        "refused": {step: dict(why.most_common()) for step, why in refused.items()},
        "solved_by": {
            agent: {
                length: [
                    sum(
                        task.solved_by.get(agent, False)
                        for task in tasks
                        if length_of(task) == length
                    ),
                    gathered.of(length),
                ]
                for length in LENGTHS
            }
            for agent in plan.agents
        },
        "harbor": dict(harbor),
    }
