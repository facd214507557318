"""Make tasks from records: one for each record with a describable goal and a proved solution."""

from __future__ import annotations

import os
import posixpath
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from shioenv.bash.words import plain_words, quoted
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import NOTHING
from shioenv.domain.context import Context, keys, pointer
from shioenv.domain.inputs import Input
from shioenv.domain.names import name_bytes, name_text
from shioenv.domain.patch import ContextPatch, is_content
from shioenv.domain.record import Record
from shioenv.domain.record import encode as encode_record
from shioenv.execution.job import NumberedJob
from shioenv.execution.lanes import Lane
from shioenv.execution.local import LocalExecutor
from shioenv.files.unfinished import Parts, plan_digest
from shioenv.protocols import EXECUTION
from shioenv.recording.execution_cache import sources_digest
from shioenv.recording.session import ROW_END
from shioenv.recording.text_score import read_arguments
from shioenv.sandbox.base import LONGEST_INPUT, Limits
from shioenv.system.store import find_system
from shioenv_agents.tasks.goal_check import (
    DATES,
    Judge,
    digest_in,
    is_directory,
    is_now,
    refuse_other,
)
from shioenv_agents.tasks.output_requests import describe_output
from shioenv_agents.tasks.prompt import (
    ENGLISH,
    SEVERAL,
    UNDONE,
    Content,
    compose_prompt,
    describe_content,
    describe_goal,
    family,
    file_word,
    gives_away,
    like,
    makes,
    number_of,
    shows_output,
)
from shioenv_agents.tasks.task import Goal, Task
from shioenv_agents.tasks.terminal import Terminal, for_rows

_SOURCES = ("shioenv.bash", "shioenv.live", "shioenv_agents.tasks")
"""Packages whose code affects which tasks are made, besides those of the executor."""

LONGEST_OUTPUT: Final = 4000
"""Maximum bytes of an output that a task asks for."""

MIN_IRREDUCIBILITY: Final = 0.7
"""Default minimum irreducibility of a record that becomes a task."""

UNTELLABLE: Final = "its goal cannot be described"
GIVEN_AWAY: Final = "its prompt would reveal the solution"
UNSOLVED: Final = "its solution does not pass"
IDLE: Final = "doing nothing passes"
REDUCED: Final = "a part of its solution passes"
"""The reasons why a record makes no task."""

Report = Callable[[int, int], None]
A = TypeVar("A")
Asked = TypeVar("Asked")


@dataclass(frozen=True, slots=True)
class MadeTasks:
    """The tasks that were made, and the reasons why the other records made none."""

    tasks: list[Task]
    refused: Mapping[str, int]
    """The count of each reason, the most frequent first."""


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
    """Make tasks from records, in order, and count the reasons why other records make none.

    A record makes a task if all of this holds:

    - The record is suitable (`unsuited`): made on this system, with exit code 0, not volatile,
      within all limits, with at least `min_irreducibility`.
    - Its goal can be described without revealing how to reach it.
    - The task is proved: the recorded input passes, doing nothing fails, and so does the input
      without one of its arguments.

    A goal is about the machine, about the output, or about both. Intermediate results are kept in
    the directory `kept`, from which a later call with the same arguments resumes. Errors: those of
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
    do = partial(make_task, digest=built.digest)
    job = job_of(do, system or built.name, built.digest, limits=limits or Limits(), what="record")
    plan = [
        built.digest,
        [encode_record(one).decode() for one in chosen],
        repr(limits and asdict(limits)),
    ]
    parts: Parts[Task | str] = parts_of(kept, "made", plan, Task | str)
    in_order = run_jobs([(job, enumerate(chosen))], len(chosen), workers, report, parts).values()
    refused.update(why for why in in_order if isinstance(why, str))
    made = [task for task in in_order if isinstance(task, Task)]
    return MadeTasks(made, dict(refused.most_common()))


def job_of(
    do: Callable[[Asked, SandboxRunner], A],
    system: str,
    digest: str | None,
    *,
    limits: Limits | None = None,
    what: str = "task",
) -> NumberedJob[Asked, A]:
    """Return a job that calls `do` with each item and a machine of a system.

    `limits` default to those of rows. `what` is the noun for an item in messages.
    """
    limits = limits or for_rows(None)
    return NumberedJob(
        partial(_on_machine, do=do), system=system, limits=limits, digest=digest, what=what
    )


def _on_machine(
    lane: Lane, asked: tuple[int, Asked], *, do: Callable[[Asked, SandboxRunner], A]
) -> A:
    machine = lane.open()
    assert isinstance(machine, SandboxRunner)
    return do(asked[1], machine)


def run_jobs(
    jobs: Iterable[tuple[NumberedJob[Any, A], Iterable[tuple[int, Any]]]],
    total: int,
    workers: int | None,
    report: Report = lambda done, total: None,
    parts: Parts[A] | None = None,
) -> dict[int, A]:
    """Run jobs on numbered items, `total` in all, and return the results by number, in order.

    Results in `parts` are reused. Errors: those of the jobs.
    """
    found: dict[int, A] = {}
    with LocalExecutor(workers) as executor, parts or nullcontext():
        for job, asked in jobs:
            run = partial(executor.map, job)
            for number, one in parts.completed(run, asked) if parts else run(asked):
                found[number] = one
                report(len(found), total)
    return dict(sorted(found.items()))


def parts_of(
    kept: Path | None, name: str, plan: object, kind: Any, sources: Iterable[str] = ()
) -> Parts[Any]:
    """Open the stored results of earlier calls with the same plan and code, by number.

    `kind` is their type; `sources` are further packages whose code affects them.
    """
    digest = plan_digest([plan, EXECUTION, sources_digest(*_SOURCES, *sources)])
    return Parts(
        kept,
        f"{name}-{digest[:24]}",
        msgspec.to_builtins,
        lambda part: msgspec.convert(part, kind),
    )


def on_machines(
    do: Callable[[Task, SandboxRunner], A],
    tasks: Sequence[Task],
    *,
    system: str | None = None,
    workers: int | None = None,
    report: Report = lambda done, total: None,
    parts: Parts[A] | None = None,
) -> list[A]:
    """Call `do` with each task and a machine of its system, and return the results in order.

    `system` is the name under which the tasks' system is built here, if it differs from the name in
    the tasks. Results in `parts` are reused. Errors: TaskError for a task of another build of the
    system; those of `find_system`, sandboxes and `do`.
    """
    names = [system or task.system for task in tasks]
    systems = {name: find_system(name) for name in names}
    for name, task in zip(names, tasks, strict=True):
        refuse_other(task, systems[name])
    jobs = (
        (
            job_of(do, name, built.digest),
            [(n, task) for n, task in enumerate(tasks) if names[n] == name],
        )
        for name, built in systems.items()
    )
    return list(run_jobs(jobs, len(tasks), workers, report, parts).values())


def unsuited(record: Record, system: str, min_irreducibility: float) -> str | None:
    """Return why a record's fields exclude it from becoming a task; None if they do not.

    In addition to the conditions of `make_tasks`, the record must hold one row with at least one
    argument, and no mistake.
    """
    score = record.irreducibility
    reasons = (
        (record.system != system or not record.cwd, "it belongs to another system"),
        (record.exit_code != 0, "its input failed"),
        (record.mistake is not None, "its input contains a mistake"),
        (
            record.timed_out or record.output_truncated or record.patch_truncated,
            "it reached a limit",
        ),
        (bool(record.limits_hit), "it reached a limit"),
        (record.volatile, "its input is volatile"),
        (record.n_arguments == 0, "its input has no argument"),
        (ROW_END in record.input_args, "its input has several rows"),
        (score is None or score < min_irreducibility, "its irreducibility is too low or unknown"),
    )
    return next((why for wrong, why in reasons if wrong), None)


def _done(task: Task, machine: SandboxRunner, rows: Iterable[str]) -> Terminal:
    terminal = Terminal(machine, task.cwd, task.history)
    for row in rows:
        terminal.run(row)
    return terminal


def make_task(record: Record, machine: SandboxRunner, digest: str = "") -> Task | str:
    """Return the proved task that a record makes, or the reason why it makes none.

    `digest` is the system's digest, if already known. Errors: those of sandboxes.
    """
    shell_input = Input.from_marked(record.input_args)
    solution = shell_input.text
    terminal = Terminal(machine, record.cwd, record.history)
    before = terminal.before()
    behavior = terminal.run(solution)
    goal = goal_of(terminal, behavior.patch, behavior.content_digests, before)
    if any(set("*?[") & set(name) for name in goal.made):
        return "its file is named by a pattern that matched nothing"
    if (behavior.exit_code, behavior.output) != (record.exit_code, record.output_bytes):
        return "its input has another effect in a persistent shell"
    output = _output(shell_input, terminal, goal.digests)
    if not goal.patch and not behavior.content_digests and output is None:
        return "it changes nothing, and its output cannot be described"
    draft = Task(
        id=f"{record.session_id:06}",
        prompt="",
        cwd=record.cwd,
        history=list(record.history),
        goal=goal if output is None else replace(goal, output=behavior.text),
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
    prompt = prompt_of(draft, terminal, before, output)
    parts = [Input(shell_input.tokens[a:b]).text for a, b in shell_input.spans()]
    if prompt is None:
        return UNTELLABLE
    if gives_away(prompt, solution, parts) or shows_output(prompt, draft.goal):
        return GIVEN_AWAY
    return proved_with_part(draft, prompt, shell_input, machine)


def proved_with_part(
    draft: Task, prompt: str, shell_input: Input, machine: SandboxRunner
) -> Task | str:
    """Return the task if it is proved, otherwise the reason why it is not.

    `reduced` omits the first argument that the goal needs.
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
            return replace(draft, prompt=prompt, reduced=reduced)
    return REDUCED


def wanted(patch: ContextPatch, before: Context) -> ContextPatch:
    """Return the patch for a goal: without `PWD`, `OLDPWD` and times of directories.

    `PWD` follows the working directory, and a previous directory is never part of a goal. A
    directory's time changes with every file made or removed in it. Changed contents are omitted as
    well: the goal's digests define them.
    """
    paths = {pointer("env", "PWD"), pointer("env", "OLDPWD")}
    files = patch.apply(before.document)["fs"]

    def counts(place: str) -> bool:
        area, *parts = keys(place) or [""]
        dated = area == "fs" and len(parts) == 2 and parts[1] in DATES
        return place not in paths and not (dated and is_directory(files[parts[0]]))

    operations = (one for one in patch.operations if not is_content(one))
    return ContextPatch(tuple(one for one in operations if counts(one[1])))


def _output(shell_input: Input, terminal: Terminal, digests: Mapping[str, str]) -> str | None:
    """Return the request for the input's output in words; None if the output cannot be a goal.

    If there are several commands, as in `rm x; wc y`, only the last pipeline may print.
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
        return str(ENGLISH["prompt"]["of_file"].format(name=file_word(written_to[0])))
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
    return describe_output(Input(shell_input.tokens[begin:]))


def goal_of(
    terminal: Terminal, patch: ContextPatch, changed: Mapping[str, str], before: Context
) -> Goal:
    """Return the goal of reaching the state in which a terminal's rows left the machine.

    `before` is the context before the rows, `patch` their effect, and `changed` the digests of new
    contents. A moved file has a digest only if there is no history and the file can be read.
    """
    goal = Goal(patch=[list(operation) for operation in wanted(patch, before).operations])
    digests = dict(changed)
    for fact in goal.facts:
        if fact.moved_to is not None and not terminal.start.history:
            known = digest_in(terminal.machine, terminal.start.cwd, fact.names[0])
            if known is not None:
                digests[fact.moved_to] = known
    return replace(goal, digests=dict(sorted(digests.items())))


def prompt_of(
    draft: Task,
    terminal: Terminal,
    before: Context,
    output: str | None = None,
    kind: str | None = None,
    known: Mapping[str, Content] = MappingProxyType({}),
) -> str | None:
    """Return the prompt of a task; None if the goal cannot be described.

    The terminal has reached the goal, and began in the context `before`. `output` is the request
    for an output in words. `kind` is the sentence for the kind of work (None: `family`). `known`
    has descriptions of contents, by the file's name, that replace those made here.
    """
    instant = terminal.machine.system.declaration.instant
    goal = draft.goal
    held = contents(terminal, goal.digests)
    described = {
        name: known.get(name) or _content(draft, terminal, name, held.get(name))
        for name in goal.digests
        if name not in goal.moved
    }
    lines = describe_goal(
        before.document, goal, [*described.values()], lambda date: is_now(date, instant)
    )
    if lines is None or (not lines and output is None):
        return None
    is_archive = any(makes(name) == "archive" for name in draft.commands)
    if is_archive and any(one == like("zeros", name) for name, one in described.items()):
        return None  # an archive of nothing, which no prompt describes
    return compose_prompt(
        user=str(before.document["user"]),
        cwd=draft.cwd,
        kind=kind or family(draft.commands, goal, before.document),
        state=lines,
        asked=output,
    )


def contents(terminal: Terminal, names: Iterable[str]) -> Mapping[str, bytes]:
    """Return contents of regular files after all rows, by name in `fs`, without unreadable files.

    A separate shell prints them as base64, which represents any byte. Files whose names do not fit
    into one row are left out too.
    """
    wanted = list(names)
    if not wanted:
        return {}
    paths = [name_bytes(name).decode("utf-8", "surrogateescape") for name in wanted]
    fits = [number for number, path in enumerate(paths) if _is_text(path)]
    row = "exec 2> /dev/null"
    for fit in fits:
        asked = f"{row}\necho {fit} $(/usr/bin/base64 -w0 < {quoted(paths[fit])})"
        if len(asked.encode()) > LONGEST_INPUT // 2:
            break
        row = asked
    told = terminal.fork().beside(row).output
    found = {}
    for line in told.decode("ascii", "replace").splitlines():
        number, _, text = line.partition(" ")
        if number.isdecimal() and int(number) < len(wanted):
            try:
                found[wanted[int(number)]] = b64decode(text, validate=True)
            except ValueError:
                continue
    return found


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def reworded(task: Task, machine: SandboxRunner) -> Task:
    """Return the task with the prompt that this release writes for it, without a certificate.

    An introduction by a language model, which precedes the facts, is kept. If the goal cannot be
    described after the solution has run here, the task is returned unchanged. Errors: those of
    sandboxes.
    """
    terminal = Terminal(machine, task.cwd, task.history)
    before = terminal.before()
    terminal.run(task.solution)
    output = None
    if task.goal.output is not None:
        shell_input = read_arguments(task.solution, machine.system).input
        output = _output(shell_input, terminal, task.goal.digests)
    kind = next((one for one in (SEVERAL, UNDONE) if one in task.prompt), None)
    prompt = prompt_of(task, terminal, before, output, kind)
    if prompt is None or (output is None) != (task.goal.output is None):
        return task
    words, _, _ = task.prompt.partition("You are ")
    return replace(task, prompt=words + prompt, certificate=None)


def _content(draft: Task, terminal: Terminal, name: str, content: bytes | None) -> Content | None:
    """Describe a file's content: by another file, by its old content, as text, or not (None)."""
    machine, cwd = terminal.machine, draft.cwd
    if draft.goal.digests[name] == NOTHING:
        return like("empty", name)
    for other in () if draft.history else _others(draft, name):
        if digest_in(machine, cwd, other) == draft.goal.digests[name]:
            how = "hard" if _is_hard_link(draft.goal, name, other) else "copy"
            return like(how, name, other=file_word(other))
    if content is None or sha256(content).hexdigest() != draft.goal.digests[name]:
        return None
    path = posixpath.join(cwd, os.fsdecode(name_bytes(name)))
    old = None if draft.history else machine.read(path)
    if old and old.startswith(content):
        return like("first", name, size=number_of(len(content), "byte"))
    if len(content) > len(old or b"") and content.strip(b"\0") == (old or b""):
        return like("longer" if old else "zeros", name)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    if not all(line.isprintable() for line in text.replace("\t", " ").split("\n")):
        return None
    if old and content.startswith(old) and old.endswith(b"\n"):
        return describe_content(name, content[len(old) :].decode(), added=True)
    return describe_content(name, text)


def _others(draft: Task, name: str) -> list[str]:
    """Return the words of the solution that may name a file with the content of another one.

    Words that are a prefix of `name` come first: `x` for the backup `x~`.
    """
    words = (os.fsencode(word) for word in plain_words(draft.solution))
    others = [one for one in map(name_text, words) if one != name]
    return sorted(others, key=lambda one: not name.startswith(one))


def _is_hard_link(goal: Goal, name: str, other: str) -> bool:
    """Whether a goal creates `name` as a hard link to `other`, judging by their link counts."""
    made = [fact.value for fact in goal.facts if fact.names == (name,) and fact.code == "a"]
    links = goal.attributes.get(other, {}).get("links", 1)
    return bool(made) and links > 1 and made[0]["links"] == links
