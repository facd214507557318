"""Tasks in a Git repository: restore files, repair a failing test, count over a log.

The tasks concern the project in the home tree of `debian-12-dev`. Each solution has at least four
lines, all of them necessary. A prompt names the content of a file by a commit in words, as "the tag
`v1.0`". `read_committed` finds that content in another way than the solutions do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner
from shioenv.sandbox.base import LIMITS
from shioenv.seeding import generator
from shioenv.system.store import find_system
from shioenv_agents.tasks.make import MadeTasks, Report, job_of, parts_of, run_jobs
from shioenv_agents.tasks.prompt import ENGLISH, Content, like
from shioenv_agents.tasks.task import Goal, Task
from shioenv_agents.tasks.task_composition import proved_rows
from shioenv_agents.tasks.terminal import Terminal

SYSTEM: Final = "debian-12-dev"
"""The system whose home tree has the project."""

PROJECT: Final = "/home/ubuntu/project"

LAST: Final = "the last commit that contains it"
TESTED: Final = "the last commit of `main` in which `make test` succeeds"
"""`LAST` and `TESTED`: commits that a prompt describes and an agent has to find."""

_READ: Final[Mapping[str, str]] = {
    r"the (?:tag|branch) `([\w./-]+)`": 'git cat-file blob "$1:$FILE"',
    r"the commit `(.+)`": (
        "git log --all --format='%H %s' | while read -r commit subject; do "
        'if [ "$subject" = "$1" ]; then git cat-file blob "$commit:$FILE"; fi; done'
    ),
    re.escape(LAST): (
        "git rev-list HEAD | while read -r commit; do "
        'git cat-file blob "$commit:$FILE" 2> /dev/null && break; done'
    ),
    re.escape(TESTED): (
        "git rev-list --first-parent main | while read -r commit; do there=$(mktemp -d); "
        'GIT_INDEX_FILE=$there/.index git --work-tree="$there" checkout -q "$commit" -- . && '
        '(cd "$there" && python3 tests/run.py > /dev/null) && '
        'git cat-file blob "$commit:$FILE" && break; done'
    ),
}
"""Rows that print the content of `$FILE` in a commit, by the words for the commit."""

_WANTED: Final = (
    ("tag", "v1.0", ("README.md", "data/items.json", "logs/requests.jsonl", "stock/prices.py")),
    ("tag", "v1.0", ("tests/test_report.py", "docs/runbook.md")),
    ("branch", "table", ("stock/report.py", "data/items.json")),
    ("branch", "report", ("Makefile", "docs/runbook.md", "stock/prices.py")),
    ("commit", "Add a Makefile and the first tests", ("Makefile", "README.md", "data/items.json")),
    ("commit", "Keep the requests of June", ("logs/requests.jsonl",)),
    ("commit", "Write the runbook", ("docs/runbook.md", "Makefile")),
)  # fmt: skip
"""Files to restore: the kind of commit, its name, and files that differ at the end of `main`."""

_HARM: Final = (
    ("stock/prices.py", "s/:02d/:2d/"),
    ("stock/report.py", "s/item.count [*] cents/cents/"),
    ("stock/report.py", "s/in items)/in items[1:])/"),
    ("stock/items.py", "s/in json.load(file)/in json.load(file)[1:]/"),
    ("stock/items.py", "s/[*][*]row/**{**row, 'id': 1}/"),
    ("data/items.json", 's/"4.35"/"14.35"/'),
    ("data/items.json", 's/"id": 3/"id": 30/'),
)
"""Edits that make tests fail: the file, and the program for `sed`. Each edit changes the size."""

_MODES: Final = ("400", "440", "600", "640", "664")
_OWNERS: Final = ("alice", "bob", "ubuntu")


@dataclass(frozen=True, slots=True)
class _Plan:
    """A task before it is run."""

    rows: list[str]
    kind: str = ""
    """The key of the sentence for the kind of work; empty if only an output is asked for."""
    history: list[str] = field(default_factory=list)
    known: dict[str, Content] = field(default_factory=dict)
    output: str | None = None


def read_committed(machine: SandboxRunner, cwd: str, file: str, commit: str) -> bytes | None:
    """Return a file's content in a commit, which is given in the words of a prompt.

    None if the words are unknown, or the commit lacks the file. Errors: those of sandboxes.
    """
    for words, row in _READ.items():
        if match := re.fullmatch(words, commit):
            name = quoted(match[1]) if match.groups() else ""
            found = Terminal(machine, cwd).run(f"set -- {name}\nFILE={quoted(file)}\n{row}")
            return None if found.exit_code or found.output_truncated else found.output
    return None


def history_tasks(
    count: int,
    *,
    seed: int = 0,
    system: str | None = None,
    workers: int | None = None,
    kept: Path | None = None,
    report: Report = lambda done, total: None,
) -> MadeTasks:
    """Make at most `count` distinct tasks, of each family in turn.

    Each is proved like a composed task: its solution passes, doing nothing fails, and so does the
    solution without any one of its lines. The result depends only on `seed` and the system. `kept`
    is as for `make_tasks`. Errors: those of `find_system` and sandboxes.
    """
    built = find_system(system or SYSTEM)
    job = job_of(partial(_drawn, seed=seed), system or SYSTEM, built.digest, limits=LIMITS)
    parts = parts_of(kept, "history", [built.digest, seed, count], Task | str)
    jobs = [(job, enumerate(range(2 * count)))]
    in_order = run_jobs(jobs, 2 * count, workers, report, parts).values()
    refused = Counter(why for why in in_order if isinstance(why, str))
    made: dict[str, Task] = {}
    for task in in_order:
        if isinstance(task, Task) and len(made) < count:
            made.setdefault(task.prompt, task)
    return MadeTasks(list(made.values()), dict(refused.most_common()))


def _drawn(number: int, machine: SandboxRunner, *, seed: int) -> Task | str:
    family = _FAMILIES[number % len(_FAMILIES)]
    plan = family(generator(seed, "history", number))
    base = Task(
        id=f"h{number:06}", prompt="", cwd=PROJECT, goal=Goal(), solution="", reduced="",
        commands=[], irreducibility=1.0, n_arguments=1, record=number,
        system=machine.system.name, system_digest=machine.system.digest,
    )  # fmt: skip
    commands = [row.split()[0] for row in plan.rows if re.match(r"\w+ ", row)]
    kind = str(ENGLISH["kinds"].get(plan.kind, ""))
    return proved_rows(
        machine, base, plan.history, plan.rows, commands,
        kind=kind, known=plan.known, output=plan.output,
    )  # fmt: skip


def _committed(name: str, file: str, commit: str) -> dict[str, Content]:
    return {name: like("history", name, other=file, commit=commit)}


def _restored(random: Random) -> _Plan:
    """Restore a file of another commit into a new directory, or a deleted one to its place."""
    mode, owner = random.choice(_MODES), random.choice(_OWNERS)
    if random.random() < 0.25:
        name = file = "docs/runbook.md"
        words, found = LAST, "$(git rev-list -n 1 HEAD -- docs/runbook.md)^"
    else:
        kind, found, files = random.choice(_WANTED)
        file = random.choice(files)
        name = f"{random.choice(('old', 'kept', 'review'))}/{file.rpartition('/')[2]}"
        words = f"the {kind} `{found}`"
        if kind == "commit":
            found = f"$(git rev-list -n 1 --all --grep={quoted(found, always=True)})"
    rows = [
        f"mkdir {name.partition('/')[0]}",
        f'git show "{found}:{file}" > {name}',
        f"chmod {mode} {name}",
        f"chown {owner} {name}",
    ]
    return _Plan(rows, "restored", known=_committed(name, file, words))


def _repaired(random: Random) -> _Plan:
    """Repair files that make tests fail: one broken by a commit, others broken by edits.

    The first one also gets a mode and an owner, so that solutions of such tasks differ.
    """
    mode, owner = random.choice(_MODES), random.choice(_OWNERS)
    harm = dict(random.sample(_HARM, random.choice((0, 1, 2))))
    files = sorted({"stock/prices.py", *harm})
    rows = [
        "mkdir /tmp/tried",
        "git rev-list main | while read -r commit; do "
        'git archive "$commit" | tar -x -C /tmp/tried; '
        'make -sC /tmp/tried test > /dev/null 2>&1 && echo "$commit" && break; done > /tmp/good',
        *(f'git show "$(cat /tmp/good):{file}" > {file}' for file in files),
        f"chmod {mode} stock/prices.py",
        f"chown {owner} stock/prices.py",
        "rm -r /tmp/tried /tmp/good",
    ]
    known: dict[str, Content] = {}
    for file in files:
        known |= _committed(file, file, TESTED)
    history = [f"sed -i {quoted(edit, always=True)} {file}" for file, edit in harm.items()]
    return _Plan(rows, "repaired", history, known)


def _counted(random: Random) -> _Plan:
    """Count over the log of requests."""
    by = random.choice(("user", "path", "method", "status"))
    filters = {
        "status": ("whose `status` is {}", random.choice((200, 304, 401, 404, 500)), "=="),
        "ms": ("whose `ms` is greater than {}", random.choice((50, 100, 150, 200)), ">"),
    }
    key = "ms" if by == "status" else random.choice(tuple(filters))
    words, value, operator = filters[key]
    most = random.choice(("max", "min", "add"))
    label = {"max": "slowest", "min": "fastest", "add": "sum"}[most]
    what = {"max": "largest `ms`", "min": "smallest `ms`", "add": "sum of the `ms`"}[most]
    rows = [
        f"jq -c 'select(.{key} {operator} {value})' logs/requests.jsonl > /tmp/wanted",
        f"jq -rs 'group_by(.{by})[] | \"\\(.[0].{by}) \\(length)\"' /tmp/wanted > /tmp/counts",
        f"jq -rs '\"{label} \\(map(.ms) | {most})\"' /tmp/wanted >> /tmp/counts",
        "rm /tmp/wanted",
        "cat /tmp/counts && rm /tmp/counts",
    ]
    output = (
        f"a line for each `{by}` of the requests in `logs/requests.jsonl` {words.format(value)}: "
        f"the `{by}`, a blank and the number of these requests, sorted by the `{by}`. Then a line "
        f"with `{label}`, a blank and the {what} of these requests."
    )
    return _Plan(rows, output=output)


_FAMILIES: Final[tuple[Callable[[Random], _Plan], ...]] = (_restored, _repaired, _counted)
