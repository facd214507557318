"""Certify tasks: determine the contents of each task's `Certificate`, and verify it again."""

from __future__ import annotations

import hashlib
import os
import posixpath
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.domain.names import name_bytes
from shioenv.errors import TaskError
from shioenv.files.durable import (
    atomic_write,
    cache_directory,
    locked,
    refuse_existing,
    storage_errors,
)
from shioenv.protocols import CHANNEL
from shioenv.system.store import System, find_system
from shioenv_agents.tasks.attacks import ATTACKS, forgeries, kinds
from shioenv_agents.tasks.certificate import JUDGE, Certificate, JudgeCertificate, digest_of
from shioenv_agents.tasks.determined import leaks, lines_of, unstated_facts
from shioenv_agents.tasks.goal_check import Judge, Verdict, refuse_other
from shioenv_agents.tasks.history import read_committed
from shioenv_agents.tasks.make import (
    Report,
    job_of,
    on_machines,
    parts_of,
    reworded,
    run_jobs,
)
from shioenv_agents.tasks.task import Task, bare, read_tasks, write_tasks
from shioenv_agents.tasks.terminal import Terminal
from shioenv_agents.tasks.variants import ALTERNATIVES, candidates, near_misses, neighbours, reaches

ATTACKED: Final = 50
"""Maximum number of attacked tasks of a file."""

NOTHING: Final = ":"
"""The row that does nothing."""

RUNS: Final = 20
"""Default number of runs of the solution, and of runs that do nothing."""

SEALED: Final = (
    "commands", "irreducibility", "necessary", "n_arguments", "record", "judged_by.forged",
    "judged_by.tasks",
)  # fmt: skip
"""Fields of a task and its certificate that a check does not determine again.

An edit of such a field is detected by the certificate's digest, unless someone recomputes it."""

UNSEALED: Final = ("id", "solved_by")
"""Fields of a task that may change after its certification, and that no check reads."""

_BURN: Final = "import select\nwhile not select.select([0], [], [], 0)[0]: pass"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A task, and the solutions of similar tasks."""

    task: Task
    near: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.task.id}: {self.task.solution}"


class Trial:
    """Run inputs as answers to a task, each on a pristine machine."""

    def __init__(self, task: Task, machine: SandboxRunner) -> None:
        self.task, self.machine = task, machine
        self._judge = Judge(task, machine)
        self._before = Terminal(machine, task.cwd, task.history).before()

    def passes(self, text: str) -> bool:
        """Whether an input passes the check."""
        return self.verdict(text).passed

    def verdict(self, text: str) -> Verdict:
        """Return the verdict on an input."""
        return self._judge.judge(self.typed(text)[0])

    def tried(self, text: str) -> tuple[bool, bool]:
        """Return whether an input passes the check, and whether its effect is exactly the goal."""
        terminal, exact = self.typed(text)
        return self._judge.judge(terminal).passed, exact

    def typed(self, text: str) -> tuple[Terminal, bool]:
        """Return a terminal after an input, and whether the input's effect is exactly the goal."""
        terminal = Terminal(self.machine, self.task.cwd, self.task.history)
        behavior: Behavior = terminal.run(text)
        return terminal, reaches(self.task, behavior, self._before)

    def untold(self) -> Iterator[str]:
        """Yield facts of the goal that the prompt leaves open."""

        def read(name: str) -> bytes | None:
            if self.task.history:
                return None
            path = posixpath.join(self.task.cwd, os.fsdecode(name_bytes(name)))
            return self.machine.read(posixpath.normpath(path))

        instant = self.machine.system.declaration.instant
        committed = partial(read_committed, self.machine, self.task.cwd)
        return unstated_facts(self.task, self._before.document, read, instant, committed)

    def altered(self) -> list[str]:
        """Return the task's files that differ from the exported ones."""
        return []

    def digests(self, inputs: Iterable[str]) -> dict[str, str]:
        """Return digests of goal, prompt, system, and of all inputs that are run, with `inputs`."""
        task = self.task
        return {
            "goal": digest_of(msgspec.to_builtins(task.goal)),
            "prompt": hashlib.sha256(task.prompt.encode()).hexdigest(),
            "system": task.system_digest,
            "tests": digest_of([task.cwd, task.history, task.solution, *inputs]),
        }


@cache
def judge_digests() -> tuple[str, str]:
    """Return the digests of this package's judge and of its evidence channel."""
    return digest_of(["judge", JUDGE, kinds()]), channel_digest()


def channel_digest() -> str:
    """Return the digest of this package's evidence channel."""
    return digest_of(["channel", CHANNEL])


@dataclass(frozen=True, slots=True)
class JudgeKind:
    """A judge of answers to tasks: its trial, its code, and the attacks on it."""

    trial: Callable[[Task, SandboxRunner], Trial] = Trial
    digests: Callable[[], tuple[str, str]] = judge_digests
    """Returns the digests of the judge and of the evidence channel."""
    attacked: Callable[[Task, SandboxRunner], list[str]] = forgeries
    """Returns the kinds of attacks that pass on a task."""


OURS: Final = JudgeKind()
"""The judge of rows in a persistent shell, by `Judge`."""


def certify_tasks(
    tasks: Iterable[Task],
    *,
    k: int,
    judge_kind: JudgeKind = OURS,
    kept: Path | None = None,
    system: str | None = None,
    workers: int | None = None,
    report: Report = lambda done, total: None,
    note: Callable[[str], None] = lambda text: None,
) -> list[Task]:
    """Return the tasks in order, each with a new certificate, which may have `faults`.

    The judge is certified first, by the attacks on `ATTACKED` of the tasks, unless this build of
    the judge was certified before. `kept` is a directory for intermediate results, from which a
    later call with the same tasks resumes. `system` is the name under which the tasks' system is
    built here, if it differs from the name in the tasks. Errors: TaskError for tasks of several
    systems, or of another build; those of `find_system` and sandboxes; DatasetStorageError.
    """
    tasks = [replace(task, certificate=None) for task in tasks]
    built = _system_of(tasks, system)
    name = system or built.name
    judged_by = certified_judge(tasks, built, name, workers, note, judge_kind)
    asked = map(_Asked, tasks, map(tuple, neighbours(tasks)))
    do = partial(_certified, judge_kind=judge_kind, k=k, judged_by=judged_by)
    calm = [(job_of(do, name, built.digest), enumerate(asked))]
    plan = [k, msgspec.to_builtins([judged_by, *tasks])]
    with _kept(kept):
        parts = parts_of(kept, "certified", plan, Certificate)
        found = run_jobs(calm, len(tasks), workers, report, parts)
        right = [(n, task) for n, task in enumerate(tasks) if found[n].solved == k]
        loaded = [(job_of(partial(_loaded, judge_kind=judge_kind), name, built.digest), right)]
        with _load():
            runs = run_jobs(loaded, len(right), workers, parts=parts_of(kept, "loaded", plan, int))
    return [sealed(task, replace(found[n], loaded=runs.get(n, 0))) for n, task in enumerate(tasks)]


def sealed(task: Task, certificate: Certificate) -> Task:
    """Return the task with this certificate, whose `digest` is filled in."""
    return replace(task, certificate=replace(certificate, digest=_seal(task, certificate)))


def _seal(task: Task, certificate: Certificate) -> str:
    fields = msgspec.to_builtins(bare(task))
    for name in UNSEALED:
        del fields[name]
    return digest_of([fields, msgspec.to_builtins(replace(certificate, digest=""))])


def certify_file(
    file: Path, out: Path, *, rebase: bool = False, system: str | None = None, **options: Any
) -> list[Task]:
    """Certify the tasks of a file, and return them in order, each with a new certificate.

    Tasks without `faults` are written to the new file `out`. With `rebase` the tasks are treated as
    tasks of the present build of their system (`rebased`), and get prompts in this release's
    wording (`reworded`). Other options are those of `certify_into`. Errors: those of `certify_into`
    and `read_tasks`.
    """
    refuse_existing(out)
    tasks = read_tasks(file)
    if rebase:
        tasks = rebased(tasks, _found(tasks, system))
        tasks = on_machines(reworded, tasks, system=system, workers=options.get("workers"))
    return certify_into(out, tasks, partial(write_tasks, path=out), system=system, **options)


def rebased(tasks: Sequence[Task], built: System) -> list[Task]:
    """Return the tasks as tasks of this build of their system, without certificates.

    Goals and prompts are unchanged, so the tasks may be unsolvable on this build until they are
    proved or certified. Errors: TaskError for a task of another system, or one that does not match
    its certificate.
    """
    for task in tasks:
        known = task.certificate
        prompt = hashlib.sha256(task.prompt.encode()).hexdigest()
        goal = digest_of(msgspec.to_builtins(task.goal))
        if known is None:
            changed = ""
        elif (known.prompt, known.goal) != (prompt, goal):
            changed = "the prompt or the goal of "
        else:
            changed = "" if known.digest in {"", _seal(task, known)} else "the certificate or "
        if changed:
            raise TaskError(
                f"{changed}task {task.id} was changed after certification",
                hint="certify the changed task without --rebase, on the build that it names",
            )
        if task.system != built.name:
            raise TaskError(
                f"task {task.id} was made on {task.system}, not on {built.name}",
                hint=f"use --system {task.system}",
            )
    return [replace(task, system_digest=built.digest, certificate=None) for task in tasks]


def certify_into(
    out: Path, tasks: Iterable[Task], write: Callable[[list[Task]], None], **options: Any
) -> list[Task]:
    """Certify tasks, write those without `faults`, and return all in order.

    Intermediate results are kept next to `out` until it is written. Options and errors are those of
    `certify_tasks`; TaskError if no task passes.
    """
    kept = out.with_name(f"{out.name}.partial")
    tasks = certify_tasks(tasks, kept=kept, **options)
    passed = [task for task in tasks if task.certificate and not task.certificate.faults]
    if not passed:
        raise TaskError(
            f"all tasks ({len(tasks):,}) have faults",
            hint="shioenv tasks verify FILE lists faults; add more tasks",
        )
    write(passed)
    rmtree(kept)
    return tasks


def recheck_tasks(
    tasks: Iterable[Task],
    *,
    k: int = RUNS,
    judge_kind: JudgeKind = OURS,
    system: str | None = None,
    workers: int | None = None,
    report: Report = lambda done, total: None,
) -> list[tuple[str, ...]]:
    """Check certificates again; return each task's faults, in order of tasks (empty: none).

    `faults_now` defines the checks; the runs under load are repeated as well. A missing certificate
    is a fault. Errors: those of `certify_tasks`.
    """
    tasks = list(tasks)
    where = partial(on_machines, system=system, workers=workers)
    faults = where(partial(faults_now, judge_kind=judge_kind, k=k), tasks, report=report)
    left = [number for number, found in enumerate(faults) if not found]
    if left:
        with _load():
            loaded = where(
                partial(_loaded, judge_kind=judge_kind), [tasks[number] for number in left]
            )
        for number, passed in zip(left, loaded, strict=True):
            known = tasks[number].certificate
            assert known is not None
            faults[number] = replace(known, loaded=passed).faults
    return faults


def verify_tasks(tasks: Iterable[Task], **where: Any) -> list[tuple[str, ...]]:
    """Check the proofs of tasks; return each task's faults, in order of tasks (empty: none).

    Options and errors are those of `on_machines`.
    """
    return on_machines(proof_faults, list(tasks), **where)


def proof_faults(task: Task, machine: SandboxRunner) -> tuple[str, ...]:
    """Return the faults of a task's proof; empty if it is proved. Errors: those of `Judge`."""
    trial = Trial(task, machine)
    solved = trial.verdict(task.solution)
    failed = f"the recorded solution fails: {', '.join((*solved.missing, *solved.extra))}"
    lines = (
        (not solved.passed, failed),
        (trial.passes(NOTHING), "doing nothing passes"),
        (trial.passes(task.reduced), "a part of the solution passes"),
    )
    return tuple(text for wrong, text in lines if wrong)


def certified_judge(
    tasks: Sequence[Task],
    built: System,
    name: str,
    workers: int | None,
    note: Callable[[str], None] = lambda text: None,
    judge_kind: JudgeKind = OURS,
) -> JudgeCertificate:
    """Run the attacks against this build of the judge, on tasks taken evenly from the given ones.

    An earlier result with at least as many tasks is read from the user's cache directory.
    """
    judge, channel = judge_kind.digests()
    count = min(ATTACKED, len(tasks))
    path = cache_directory() / "judges" / f"{judge:.16}-{channel:.16}-{built.digest:.16}.json"
    if path.exists():
        known = msgspec.json.decode(path.read_bytes(), type=JudgeCertificate)
        if known.tasks >= count and (known.judge, known.channel) == (judge, channel):
            return known
    note(f"running {len(ATTACKS)} kinds of attacks on {count} tasks, once for this judge")
    chosen = [tasks[number * len(tasks) // count] for number in range(count)]

    def report(done: int, total: int) -> None:
        if done % 10 == 0:
            note(f"{done} of {total} tasks attacked")

    job = job_of(judge_kind.attacked, name, built.digest)
    paid = run_jobs([(job, enumerate(chosen))], count, workers, report)
    forged = [f"{chosen[number].id}: {kind}" for number, kinds in paid.items() for kind in kinds]
    found = JudgeCertificate(
        judge=judge, channel=channel, attacks=len(ATTACKS), tasks=count, forged=tuple(forged)
    )
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, msgspec.json.encode(found))
    return found


def certificate_of(
    task: Task,
    near: Iterable[str],
    machine: SandboxRunner,
    *,
    k: int,
    judged_by: JudgeCertificate,
    judge_kind: JudgeKind = OURS,
) -> Certificate:
    """Return a task's certificate without the runs under load. Errors: those of `Judge`."""
    trial = judge_kind.trial(task, machine)
    solved = sum(trial.passes(task.solution) for _ in range(k))
    idle = sum(trial.passes(NOTHING) for _ in range(k))
    misses: list[str] = []
    mistaken: list[str] = []
    right: list[str] = []
    refused: list[str] = []
    for text in near_misses(task, near, machine.system):
        passed, exact = trial.tried(text)
        if not exact:
            misses.append(text)
            mistaken += [text] if passed else []
        elif len(right) < ALTERNATIVES:
            right.append(text)
            refused += [] if passed else [text]
    for text in candidates(task, machine.system):
        if len(right) >= ALTERNATIVES:
            break
        if text in right or text in misses:
            continue
        passed, exact = trial.tried(text)
        if exact:
            right.append(text)
            refused += [] if passed else [text]
    return Certificate(
        k=k,
        solved=solved,
        idle=idle,
        loaded=0,
        near_misses=tuple(misses),
        mistaken=tuple(mistaken),
        alternatives=tuple(right),
        refused=tuple(refused),
        untold=tuple(trial.untold()),
        leaks=tuple(leaks(task, _lines_of(machine))),
        altered=tuple(trial.altered()),
        judged_by=judged_by,
        **trial.digests((*misses, *right)),
    )


def faults_now(
    task: Task, machine: SandboxRunner, judge_kind: JudgeKind = OURS, *, k: int = RUNS
) -> tuple[str, ...]:
    """Check a task's certificate again, and return its faults. Errors: those of `Judge`.

    - Each fault recorded in the certificate is included.
    - All digests are recomputed: an edit of the task or of the certificate is a fault.
    - The solution, and an input that does nothing, are run `k` times each, but at most as
      often as for the certificate. The reduced solution and all certified inputs are run once.
    - Facts that the prompt lacks, leaks, and altered files of the folder are determined again.

    `loaded` is copied from the certificate (`recheck_tasks` repeats those runs), and so are the
    results of the attacks.
    """
    known = task.certificate
    if known is None:
        return ("the certificate is missing",)
    trial = judge_kind.trial(task, machine)
    digests = trial.digests((*known.near_misses, *known.alternatives))
    faults = [
        f"changed after certification: {name}"
        for name in digests
        if digests[name] != getattr(known, name)
    ]
    if not known.digest:
        faults.append("the certificate has no digest")
    elif not faults and known.digest != _seal(task, known):
        faults.append("the task or its certificate was changed after certification")
    if (known.judged_by.judge, known.judged_by.channel) != judge_kind.digests():
        faults.append("the judge was changed after certification")
    elif known.judged_by.attacks != len(ATTACKS):
        faults.append("the number of attacks was changed after certification")
    if trial.passes(task.reduced):
        faults.append("a part of the solution passes")
    runs = min(known.k, k)
    now = replace(
        known,
        k=runs,
        solved=sum(trial.passes(task.solution) for _ in range(runs)),
        idle=sum(trial.passes(NOTHING) for _ in range(runs)),
        loaded=2,
        mistaken=tuple(text for text in known.near_misses if trial.passes(text)),
        refused=tuple(text for text in known.alternatives if not trial.passes(text)),
        untold=tuple(trial.untold()),
        leaks=tuple(leaks(task, _lines_of(machine))),
        altered=tuple(trial.altered()),
    )
    return tuple(dict.fromkeys((*faults, *now.faults, *known.faults)))


_lines: dict[str, Mapping[str, str]] = {}


def _lines_of(machine: SandboxRunner) -> Mapping[str, str]:
    digest = machine.system.digest
    if digest not in _lines:
        _lines[digest] = lines_of(machine.system, machine.read)
    return _lines[digest]


def _system_of(tasks: Sequence[Task], system: str | None) -> System:
    built = _found(tasks, system)
    for task in tasks:
        refuse_other(task, built)
    return built


def _found(tasks: Sequence[Task], system: str | None) -> System:
    names = {system or task.system for task in tasks}
    if len(names) > 1:
        raise TaskError(
            f"the tasks belong to several systems: {', '.join(sorted(names))}",
            hint="certify the tasks of each system separately",
        )
    return find_system(names.pop())


def _certified(asked: _Asked, machine: SandboxRunner, **options: Any) -> Certificate:
    return certificate_of(asked.task, asked.near, machine, **options)


def _loaded(task: Task, machine: SandboxRunner, *, judge_kind: JudgeKind) -> int:
    trial = judge_kind.trial(task, machine)
    return sum(trial.passes(task.solution) for _ in range(2))


@contextmanager
def _load() -> Iterator[None]:
    """Keep every processor busy with two processes, until the end of the block."""
    count = 2 * len(os.sched_getaffinity(0))
    busy = [
        subprocess.Popen([sys.executable, "-c", _BURN], stdin=subprocess.PIPE) for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.communicate()  # closes their input and waits for them


@contextmanager
def _kept(directory: Path | None) -> Iterator[None]:
    """Lock the directory of intermediate results, which is made if it is missing."""
    if directory is None:
        yield
        return
    with storage_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
    with locked(directory):
        yield
