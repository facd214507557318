"""Tasks of several lines, and of broken machines, made by running tasks of one line.

The goal is the observed effect of the lines, as for a record; none of it is derived.
"""

from __future__ import annotations

import posixpath
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from shioenv.bash.words import plain_words, quoted
from shioenv.behavior.observe import SandboxRunner
from shioenv.errors import TaskError
from shioenv.recording.text_score import read_arguments
from shioenv.sandbox.base import LIMITS
from shioenv.seeding import generator
from shioenv.system.store import find_system
from shioenv_agents.tasks.goal_check import DATES, Judge, is_directory, refuse_other
from shioenv_agents.tasks.make import (
    GIVEN_AWAY,
    IDLE,
    REDUCED,
    UNSOLVED,
    UNTELLABLE,
    MadeTasks,
    Report,
    goal_of,
    job_of,
    parts_of,
    prompt_of,
    proved_with_part,
    run_jobs,
)
from shioenv_agents.tasks.prompt import LONGEST, SEVERAL, UNDONE, Content, gives_away, shows_output
from shioenv_agents.tasks.task import Fact, GoalKind, Task
from shioenv_agents.tasks.terminal import Terminal
from shioenv_agents.tasks.variants import changing, octal

LINES: Final = (2, 3, 4)
"""The numbers of lines of a composed task, each equally likely."""

ATTEMPTS: Final = 6
"""Maximum draws for one task.

Many draws fail, because their tasks concern the same files or depend on each other.
"""

UNDOING: Final = 12
"""Maximum lines that repair a broken machine. Each is omitted once, to prove that it is needed."""


def composed_tasks(
    tasks: Iterable[Task],
    *,
    lines: int,
    broken: int,
    seed: int = 0,
    system: str | None = None,
    workers: int | None = None,
    kept: Path | None = None,
    report: Report = lambda done, total: None,
) -> MadeTasks:
    """Make at most `lines` tasks of several lines and at most `broken` ones of broken machines.

    They are composed from the tasks that ask for a state and have no history. Each is proved: its
    solution passes, while doing nothing fails, and so does the solution without any one of its
    lines. The result depends only on `seed` and the given tasks. `kept` is as for `make_tasks`.
    Errors: TaskError for a task of another build; those of `find_system` and sandboxes.
    """
    chosen = [one for one in tasks if one.kind is GoalKind.STATE and not one.history]
    if not chosen:
        raise TaskError(
            "no task has only a state as its goal",
            hint="make more tasks: shioenv tasks make DIR --out FILE",
        )
    name = system or chosen[0].system
    built = find_system(name)
    for task in chosen:
        refuse_other(task, built)
    harms = [task for task in chosen if _harms(task)]
    generator(seed, "broken").shuffle(harms)
    asked = [(False, n) for n in range(lines)]
    asked += [(True, n) for n in range(2 * broken if harms else 0)]
    do = partial(_composed, tasks=chosen, harms=harms, seed=seed)
    jobs = [(job_of(do, name, built.digest, limits=LIMITS), enumerate(asked))]
    plan = [built.digest, msgspec.to_builtins(chosen), asked, seed]
    parts = parts_of(kept, "composed", plan, Task | str)
    in_order = list(run_jobs(jobs, len(asked), workers, report, parts).values())
    refused = Counter(why for why in in_order if isinstance(why, str))
    made = {number: task for number, task in enumerate(in_order) if isinstance(task, Task)}
    several = [made[number] for number in range(lines) if number in made]
    mended = [made[number] for number in range(lines, len(asked)) if number in made][:broken]
    first = "n{:06}", "b{:06}"
    composed = [
        replace(task, id=name.format(number))
        for name, group in zip(first, (several, mended), strict=True)
        for number, task in enumerate(group)
    ]
    return MadeTasks(composed, dict(refused.most_common()))


def of_lines(tasks: Sequence[Task], random: Random, machine: SandboxRunner) -> Task | str:
    """Return a task of several lines, drawn from tasks of one line, or the reason for failing.

    A later line operates on a file made by an earlier one, if possible.
    """
    found: Task | str = ""
    for _ in range(ATTEMPTS):
        first = random.choice(tasks)
        here = [task for task in tasks if task.cwd == first.cwd]
        others = [task for task in here if task.solution != first.solution]
        count = random.choice(LINES)
        if len(others) < count - 1:
            found = "too few tasks begin in its directory"
            continue
        drawn = [first, *random.sample(others, count - 1)]
        new: list[str] = []
        rows = []
        for task in drawn:
            rows.append(_taken_up(task, new, random, machine) if new else task.solution)
            new += task.goal.made
        if any("\n" in row for row in rows):
            found = "one of its lines is a text of several lines"
            continue
        commands = [name for task in drawn for name in task.commands]
        found = proved_rows(machine, first, (), rows, commands, kind=SEVERAL)
        if isinstance(found, Task):
            return found
    return found


def repair_of(harms: Sequence[Task], machine: SandboxRunner) -> Task | str:
    """Return the task to undo the solutions of these tasks, or the reason why it is impossible.

    The solutions were typed one after the other, in the directory of the first task.
    """
    cwd = harms[0].cwd
    pristine = machine.context(cwd).document
    rows = []
    for name in [name for task in harms for name in task.goal.digests]:
        if name in pristine["fs"]:
            rows.append(_content(name, cwd, machine))
    for fact in [one for task in harms for one in task.goal.facts]:
        rows.append(_undone(fact, pristine, cwd, machine))
    if any(row is None for row in rows):
        return "its effect cannot be undone from a prompt"
    needed = [row for row in dict.fromkeys(rows) if row]
    if len(needed) > UNDOING:
        return "undoing it takes too many lines"
    commands = list(dict.fromkeys(row.split()[0] for row in needed))
    typed = [task.solution for task in harms]
    return proved_rows(machine, harms[0], typed, needed, commands, kind=UNDONE)


def _harms(task: Task) -> bool:
    """Whether a task's solution removes or changes something that existed."""
    return any(
        fact.code != "a" and set(DATES).isdisjoint(fact.names[-1:]) for fact in task.goal.facts
    )


def _taken_up(task: Task, new: list[str], random: Random, machine: SandboxRunner) -> str:
    """Return a task's solution, in which a file's name may be replaced by a `new` one."""
    known = machine.system.index
    old = [
        word
        for word in plain_words(task.solution)[1:]
        if posixpath.normpath(posixpath.join(task.cwd, word)) in known and "/" in word
    ]
    if not old or random.random() < 0.3:
        return task.solution
    return task.solution.replace(random.choice(old), quoted(random.choice(new)))


def proved_rows(
    machine: SandboxRunner,
    base: Task,
    history: Sequence[str],
    rows: Sequence[str],
    commands: list[str],
    *,
    kind: str,
    known: Mapping[str, Content] = MappingProxyType({}),
    output: str | None = None,
) -> Task | str:
    """Return the proved task that these rows solve, or the reason why there is none.

    `base` provides the start state and the system. `known` has descriptions of files' contents, by
    name, and `output` is the request for the last row's output in words (None: any output).
    """
    if not rows:
        return "there is nothing to undo"
    terminal = Terminal(machine, base.cwd, history)
    before = terminal.before()
    solution = "\n".join(rows)
    behavior = terminal.run(solution)
    if behavior.exit_code or behavior.timed_out or behavior.patch_truncated or behavior.limits_hit:
        return "its lines fail"
    goal = goal_of(terminal, behavior.patch, terminal.done().content_digests, before)
    draft = replace(
        base,
        history=list(history),
        goal=goal if output is None else replace(goal, output=behavior.text),
        solution=solution,
        commands=commands,
        certificate=None,
    )
    prompt = prompt_of(draft, terminal, before, output, kind, known)
    if prompt is None:
        return UNTELLABLE
    if gives_away(prompt, solution, rows) or shows_output(prompt, draft.goal):
        return GIVEN_AWAY
    read = read_arguments(solution if len(rows) == 1 else rows[-1], machine.system).input
    arguments = [read_arguments(row, machine.system).input.n_arguments for row in rows]
    draft = replace(draft, n_arguments=max(1, sum(arguments)), necessary=None)
    if len(rows) == 1:
        return proved_with_part(draft, prompt, read, machine)
    judge = Judge(draft, machine)

    def passes(text: str) -> bool:
        tried = Terminal(machine, draft.cwd, draft.history)
        tried.run(text)
        return judge.judge(tried).passed

    parts = ["\n".join((*rows[:n], *rows[n + 1 :])) for n in range(len(rows))]
    if not passes(solution):
        return UNSOLVED
    if passes(":"):
        return IDLE
    if any(map(passes, parts)):
        return REDUCED
    return replace(draft, prompt=prompt, reduced=parts[-1])


def _undone(
    fact: Fact, pristine: Mapping[str, Any], cwd: str, machine: SandboxRunner
) -> str | None:
    """Return the row that undoes a fact; empty if another row does, None if none can."""
    if fact.area == "env" and len(fact.names) == 1 and fact.code != "m":
        name = fact.names[0]
        if fact.code == "a":
            return f"unset {name}"
        return f"export {name}={quoted(str(pristine['env'][name]), always=True)}"
    if fact.file is None:
        return None
    file = quoted(fact.file)
    if fact.moved_to is not None:
        return f"mv {quoted(fact.moved_to)} {file}"
    if fact.file.startswith("-"):
        return None
    if fact.of_whole_file and fact.code == "a":
        return f"rm -rf {file}"
    was = pristine["fs"][fact.file]
    if fact.attribute is None:
        return _made_again(file, fact.file, was, cwd, machine)
    if fact.attribute == "target" or (
        fact.attribute == "perms" and str(fact.value)[0] != was["perms"][0]
    ):
        return None  # the file has become another kind of file
    if fact.attribute in (*DATES, "size", "links"):
        return ""
    return changing(file, fact.attribute, was[fact.attribute])


def _made_again(
    file: str, name: str, was: Mapping[str, Any], cwd: str, machine: SandboxRunner
) -> str | None:
    own = f"chown -h {was['owner']}:{was['group']} {file}"
    if was["perms"].startswith("l"):
        return f"ln -s {quoted(str(was['target']))} {file} && {own}"
    after = f"{own} && chmod {octal(was['perms'])} {file}"
    if is_directory(was):
        return f"mkdir {file} && {after}"
    written = _content(name, cwd, machine)
    alone = was["perms"].startswith("-") and was["links"] == 1
    return f"{written} && {after}" if written and alone else None


def _content(name: str, cwd: str, machine: SandboxRunner) -> str | None:
    """Return the row that writes a file's old content; None if a prompt cannot show it."""
    content = machine.read(posixpath.normpath(posixpath.join(cwd, name)))
    if content is None or len(content) > LONGEST:
        return None
    if not content:
        return f"truncate -s 0 {quoted(name)}"
    return f"echo {b64encode(content).decode()} | base64 -d > {quoted(name)}"


def _composed(
    asked: tuple[bool, int], machine: SandboxRunner, *,
    tasks: Sequence[Task], harms: Sequence[Task], seed: int,
) -> Task | str:  # fmt: skip
    """Make a task of several lines, or of a machine broken by one or two tasks of `harms`."""
    is_broken, number = asked
    if not is_broken:
        return of_lines(tasks, generator(seed, "lines", number), machine)
    if number < len(harms):
        return repair_of([harms[number]], machine)
    random = generator(seed, "harms", number)
    first = random.choice(harms)
    others = [task for task in harms if task.cwd == first.cwd and task.solution != first.solution]
    if not others:
        return "no other harmful task begins in its directory"
    return repair_of([first, random.choice(others)], machine)
