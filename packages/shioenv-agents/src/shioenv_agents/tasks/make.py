"""Makes tasks of records: of each record whose goal can be told and whose task is proved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.context import Context
from shioenv.domain.inputs import Input
from shioenv.domain.patch import ContextPatch, without_contents
from shioenv.domain.pointer import keys, pointer
from shioenv.domain.record import Record
from shioenv.domain.record import encode as encode_record
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import Lane
from shioenv.execution.local import LocalExecutor
from shioenv.files.unfinished import Parts, digest_of
from shioenv.live.terminal import Terminal, contents
from shioenv.protocols import EXECUTION
from shioenv.recording.cache import sources_digest
from shioenv.recording.session import ROW_END
from shioenv.sandbox.base import Limits
from shioenv.system.store import find_system
from shioenv_agents.tasks.asking import asks
from shioenv_agents.tasks.check import (
    DATES,
    Judge,
    Verdict,
    date_of,
    digest_in,
    is_directory,
    is_now,
    refuse_other,
)
from shioenv_agents.tasks.prompt import (
    MADE,
    Content,
    family,
    gives_away,
    shows_output,
    told,
    written,
)
from shioenv_agents.tasks.task import Goal, Task

_SOURCES = ("shioenv.bash", "shioenv.live", "shioenv_agents.tasks")
"""The packages whose code decides, beside what executes, which tasks are made."""

LONGEST_OUTPUT: Final = 4000
"""Most bytes of an output that is asked for."""

MIN_IRREDUCIBILITY: Final = 0.7
"""Least irreducibility of a record that becomes a task, by default."""

UNTELLABLE: Final = "no prompt tells its goal"
GIVEN_AWAY: Final = "its prompt would give it away"
UNSOLVED: Final = "its solution does not pass"
IDLE: Final = "doing nothing passes"
REDUCED: Final = "a part of its solution passes"
"""Why something makes no task."""

ZEROS: Final = "zero bytes alone"
"""How the content of a file is told that holds nothing else."""

Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Proof:
    """The three verdicts that prove a task, or show what is wrong with it."""

    solved: Verdict
    """The verdict on the recorded solution."""
    idle: Verdict
    """The verdict on doing nothing."""
    reduced: Verdict
    """The verdict on the solution without one of its arguments."""

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with the task; empty where the task is proved."""
        faults = []
        if not self.solved.passed:
            left = ", ".join((*self.solved.missing, *self.solved.extra))
            faults.append(f"the recorded solution fails: {left}")
        if self.idle.passed:
            faults.append("doing nothing passes")
        if self.reduced.passed:
            faults.append("a part of the solution passes")
        return tuple(faults)


@dataclass(frozen=True, slots=True)
class MadeTasks:
    """Tasks that were made, and what became of everything else."""

    tasks: list[Task]
    refused: Mapping[str, int]
    """How often something made no task, by the reason; the most frequent first."""


def make_tasks(
    records: Iterable[Record],
    *,
    min_irreducibility: float = MIN_IRREDUCIBILITY,
    system: str | None = None,
    limits: Limits | None = None,
    workers: int | None = None,
    kept: Path | None = None,
    report: Report = lambda done, total: None,
) -> MadeTasks:
    """The tasks of all records that make one, in the records' order, and why others make none.

    A record makes a task where all of this holds:

    - The record suits (`unsuited`): made on this system, with exit code 0, not volatile, within all
      limits, with at least `min_irreducibility`.
    - Its goal can be told without telling how to reach the goal.
    - The task is proved: the recorded input passes, doing nothing fails, and so does the input
      without one of its arguments.

    A goal is about the machine, about the output, or about both. What is made is kept in the
    directory `kept`, where a later call with the same arguments goes on. Errors: those of
    `find_system` and sandboxes.
    """
    built = find_system(system)
    refused: Counter[str] = Counter()
    chosen = []
    for record in records:
        why = unsuited(record, built.name, min_irreducibility)
        if why is None:
            chosen.append(record)
        else:
            refused[why] += 1
    job = NumberedJob(
        partial(_made, digest=built.digest),
        system=system or built.name,
        limits=limits or Limits(),
        digest=built.digest,
        what="record",
    )
    found: dict[int, Task | str] = {}
    plan = [built.digest, [encode_record(one).decode() for one in chosen], repr(limits)]
    with LocalExecutor(workers) as executor, parts_of(kept, "made", plan) as parts:
        answers = parts.completed(partial(executor.map, job), enumerate(chosen))
        for number, task in answers:
            found[number] = task
            report(len(found), len(chosen))
    in_order = [found[number] for number in sorted(found)]
    refused.update(why for why in in_order if isinstance(why, str))
    made = [task for task in in_order if isinstance(task, Task)]
    return MadeTasks(made, dict(refused.most_common()))


def parts_of(kept: Path | None, name: str, plan: object) -> Parts[Task | str]:
    """Tasks that were made in an earlier call by the same plan and the same code, by number."""
    digest = digest_of([plan, EXECUTION, sources_digest(*_SOURCES)])
    return Parts(
        kept,
        f"{name}-{digest[:24]}",
        msgspec.to_builtins,
        lambda part: msgspec.convert(part, Task | str),
    )


def prove_tasks(
    tasks: Iterable[Task],
    *,
    system: str | None = None,
    workers: int | None = None,
    report: Report = lambda done, total: None,
) -> list[Proof]:
    """The proof of each task, in order, on the system that the task names.

    `system` is another name of that system. Errors: TaskError for a task of another build of the
    system; those of `find_system` and sandboxes.
    """
    tasks = list(tasks)
    systems = {name: find_system(name) for name in {system or task.system for task in tasks}}
    for task in tasks:
        refuse_other(task, systems[system or task.system])
    proofs: dict[int, Proof] = {}
    done = 0
    with LocalExecutor(workers) as executor:
        for name in dict.fromkeys(system or task.system for task in tasks):
            own = [(i, one) for i, one in enumerate(tasks) if (system or one.system) == name]
            for number, proof in executor.map(NumberedJob(_proved, system=name, what="task"), own):
                proofs[number] = proof
                done += 1
                report(done, len(tasks))
    return [proofs[number] for number in range(len(tasks))]


def unsuited(record: Record, system: str, min_irreducibility: float) -> str | None:
    """Why a record can be no task, as far as its own fields say; None where it may be one.

    Beside the conditions of `make_tasks`, the record holds one row with at least one argument, and
    no mistake.
    """
    score = record.irreducibility
    reasons = (
        (record.system != system or not record.cwd, "a record of another system"),
        (record.exit_code != 0, "its input failed"),
        (record.mistake is not None, "its input holds a mistake"),
        (record.timed_out or record.output_truncated or record.patch_truncated, "a limit was met"),
        (bool(record.limits_hit), "a limit was met"),
        (record.volatile, "its input is volatile"),
        (record.n_arguments == 0, "its input has no argument"),
        (ROW_END in record.input_args, "its input has several rows"),
        (score is None or score < min_irreducibility, "its input can do with less"),
    )
    return next((why for wrong, why in reasons if wrong), None)


def prove(task: Task, machine: SandboxRunner) -> Proof:
    """The proof of a task on a machine. Errors: those of `Judge` and sandboxes."""
    judge = Judge(task, machine)
    return Proof(*(judge.judge(_done(task, machine, rows)) for rows in _attempts(task)))


def _attempts(task: Task) -> Iterator[list[str]]:
    yield from ([task.solution], [], [task.reduced])


def _done(task: Task, machine: SandboxRunner, rows: Iterable[str]) -> Terminal:
    terminal = Terminal(machine, task.cwd, task.history)
    for row in rows:
        terminal.run(row)
    return terminal


def _proved(lane: Lane, task: tuple[int, Task]) -> Proof:
    return prove(task[1], sandbox_of(lane))


def _made(lane: Lane, task: tuple[int, Record], digest: str) -> Task | str:
    return made_of(task[1], sandbox_of(lane), digest)


def sandbox_of(lane: Lane) -> SandboxRunner:
    """The machine of a lane."""
    sandbox = lane.open()
    assert isinstance(sandbox, SandboxRunner)
    return sandbox


def made_of(record: Record, machine: SandboxRunner, digest: str = "") -> Task | str:
    """The proved task that a record makes, or why it makes none.

    `digest` is the system's, if known already. Errors: those of sandboxes.
    """
    shell_input = Input.from_marked(record.input_args)
    solution = shell_input.text
    terminal = Terminal(machine, record.cwd, record.history)
    before = terminal.before()
    behavior = terminal.run(solution)
    patch = wanted(behavior.patch, before)
    if any(set("*?[") & set(name) for name in made_files(patch)):
        return "a pattern that matched nothing names its file"
    if (behavior.exit_code, behavior.output) != (record.exit_code, record.output_bytes):
        return "its input does something else in a shell that stays"
    digests = digests_of(machine, record.cwd, record.history, patch, behavior.content_digests)
    output = _output(shell_input, terminal, digests)
    if not patch and not behavior.content_digests and output is None:
        return "it changes nothing, and no template asks for its output"
    draft = Task(
        id=f"{record.session_id:06}",
        prompt="",
        cwd=record.cwd,
        history=list(record.history),
        goal=Goal(
            patch=[list(operation) for operation in patch.operations],
            digests=digests,
            output=None if output is None else behavior.text,
        ),
        solution=solution,
        reduced="",
        commands=[segment.command for segment in shell_input.segments],
        irreducibility=record.irreducibility or 0.0,
        necessary=record.necessary,
        n_arguments=record.n_arguments,
        record=record.session_id,
        system=machine.system.name,
        system_digest=digest or machine.system.digest,
    )
    prompt = prompt_of(draft, terminal, machine, before, output)
    parts = [Input(shell_input.tokens[a:b]).text for a, b in shell_input.spans()]
    if prompt is None:
        return UNTELLABLE
    if gives_away(prompt, solution, parts) or shows_output(prompt, draft.goal):
        return GIVEN_AWAY
    return proved_with_part(draft, prompt, shell_input, machine)


def proved_with_part(
    draft: Task, prompt: str, shell_input: Input, machine: SandboxRunner
) -> Task | str:
    """The task, if it is proved, else why it is not.

    `reduced` leaves out the first argument that the goal needs.
    """
    judge = Judge(draft, machine)
    solved, idle = (judge.judge(_done(draft, machine, rows)) for rows in ([draft.solution], []))
    if not solved.passed:
        return UNSOLVED
    if idle.passed:
        return IDLE
    everything = range(shell_input.n_arguments)
    for left_out in everything:
        reduced = shell_input.keep(index for index in everything if index != left_out).text
        if not judge.judge(_done(draft, machine, [reduced])).passed:
            fields = {name: getattr(draft, name) for name in Task.__struct_fields__}
            return Task(**{**fields, "prompt": prompt, "reduced": reduced})
    return REDUCED


def made_files(patch: ContextPatch) -> list[str]:
    """The names in `fs` of the files that a patch adds."""
    added = (keys(one[1]) for one in patch.operations if one[0] == "a")
    return [parts[1] for parts in added if parts[0] == "fs" and len(parts) == 2]


def wanted(patch: ContextPatch, before: Context) -> ContextPatch:
    """The patch as a goal holds it: without `PWD`, `OLDPWD` and times of directories.

    `PWD` follows the working directory, and nobody wants a shell to have been somewhere before.
    Whatever is made or removed in a directory changes the directory's time. A changed content is
    left out as well: the goal's digests say it.
    """
    paths = {pointer("env", "PWD"), pointer("env", "OLDPWD")}
    files = patch.apply(before.document)["fs"]

    def counts(place: str) -> bool:
        area, *parts = keys(place) or [""]
        dated = area == "fs" and len(parts) == 2 and parts[1] in DATES
        return place not in paths and not (dated and is_directory(files[parts[0]]))

    kept = ContextPatch(tuple(one for one in patch.operations if counts(one[1])))
    return without_contents(kept)


def _output(shell_input: Input, terminal: Terminal, digests: Mapping[str, str]) -> str | None:
    """How the input's output is asked for; None where it is not asked for.

    Of several commands, as in `rm x; wc y`, only the last pipeline may print.
    """
    printed = terminal.printed
    if not printed.strip() or len(printed) > LONGEST_OUTPUT:
        return None
    try:
        printed.decode()
    except UnicodeDecodeError:
        return None
    written_to = [name for name, one in digests.items() if one == sha256(printed).hexdigest()]
    if written_to:
        return f"what `{written_to[0]}` holds then."
    spans = list(shell_input.spans())
    begin = 0
    for number, (start, _) in enumerate(spans):
        if number and shell_input.tokens[start - 1].argument.text in {";", "&&", "||"}:
            begin = start
    if begin:
        first = terminal.fork()
        first.undo()
        if first.run(Input(shell_input.tokens[: begin - 1]).text).output:
            return None
    return asks(Input(shell_input.tokens[begin:]))


def digests_of(
    machine: SandboxRunner,
    cwd: str,
    history: Sequence[str],
    patch: ContextPatch,
    changed: Mapping[str, str],
) -> dict[str, str]:
    """Digests of the files whose content a goal says, by name; `changed` are those of a behavior.

    A moved file is among them only where there is no history and the file can be read.
    """
    digests = dict(changed)
    for operation in patch.operations:
        if operation[0] == "m" and not history:
            known = digest_in(machine, cwd, keys(operation[1])[1])
            if known is not None:
                digests[keys(operation[2])[1]] = known
    return dict(sorted(digests.items()))


def prompt_of(
    draft: Task,
    terminal: Terminal,
    machine: SandboxRunner,
    before: Context,
    output: str | None = None,
    kind: str | None = None,
) -> str | None:
    """The prompt of a task; None where the goal cannot be told.

    The terminal has reached the goal, and began in the context `before`. `output` is the output
    that is asked for, in words. `kind` is the sentence for the kind of work (None: `family`).
    """
    instant = machine.system.declaration.instant
    patch = draft.patch
    held = contents(terminal, draft.goal.digests)
    described = {}
    moved = {keys(one[2])[1] for one in patch.operations if one[0] == "m"}
    for name in draft.goal.digests:
        if name not in moved:
            described[name] = _content(draft, terminal, name, held.get(name))
    lines = told(before.document, patch, described, lambda one: is_now(date_of(one), instant))
    if lines is None or (not lines and output is None):
        return None
    kind = kind or family(draft.commands, {keys(one[1])[0] for one in patch.operations})
    if kind == MADE["archive"] and any(one.like == ZEROS for one in described.values()):
        return None  # an archive of nothing, which no prompt tells as one
    return written(
        user=str(before.document["user"]),
        cwd=draft.cwd,
        kind=kind,
        state=lines,
        asked=output,
    )


def _content(draft: Task, terminal: Terminal, name: str, content: bytes | None) -> Content:
    """How a file's content is told: by another file, by what it held, as text, or not at all."""
    machine, cwd = terminal.machine, draft.cwd
    for word in () if draft.history else draft.solution.split():
        if word != name and digest_in(machine, cwd, word) == draft.goal.digests[name]:
            return Content(like=f"what `{word}` held")
    if content is None or sha256(content).hexdigest() != draft.goal.digests[name]:
        return Content()
    path = name if name.startswith("/") else f"{cwd.rstrip('/')}/{name}"
    old = None if draft.history else machine.read(path)
    if old and old.startswith(content):
        return Content(like=f"the first {len(content)} bytes of what it held")
    if len(content) > len(old or b"") and content.strip(b"\0") == (old or b""):
        return Content(like="what it held, then zero bytes" if old else ZEROS)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return Content()
    if not all(line.isprintable() for line in text.replace("\t", " ").split("\n")):
        return Content()
    if old and content.startswith(old) and old.endswith(b"\n"):
        return Content(text=content[len(old) :].decode(), added=True)
    return Content(text=text)
