"""Tasks as a dataset of a hub: a row for each task, a split for each part, and a card."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from shioenv.dataset.write import README, data_files
from shioenv.errors import UsageError
from shioenv.files.durable import atomic_write
from shioenv_agents.tasks.sets import MANIFEST, PARTS
from shioenv_agents.tasks.task import Task, encode, read_tasks

COLUMNS: Final[Mapping[str, str]] = {
    "id": "string",
    "prompt": "string",
    "cwd": "string",
    "commands": "list",
    "n_arguments": "int64",
    "irreducibility": "float64",
    "system": "string",
    "system_digest": "string",
    "task": "string",
}
"""The columns of a row and their types. `task` is the whole task as JSON, as in a file of tasks."""


def write_layout(source: Path, directory: Path, licence: str) -> dict[str, int]:
    """Write tasks to a new directory in the hub's layout; return the number of tasks by split.

    `source` is a directory of `shioenv tasks set`, or a file of tasks, which is the split `train`.
    Errors: those of `read_tasks`; UsageError for another directory, or one without tasks.
    """
    parts = {"train": source}
    if source.is_dir():
        if not (source / MANIFEST).is_file():
            raise UsageError(
                f"{source} is not a set of tasks", hint="give a directory of `shioenv tasks set`"
            )
        parts = {part: source / f"{part}.jsonl" for part in PARTS.names}
    read = {part: read_tasks(file) for part, file in parts.items()}
    splits = {part: tasks for part, tasks in read.items() if tasks}
    if not splits:
        raise UsageError(f"{source} has no tasks")
    (directory / "data").mkdir(parents=True)
    for part, tasks in splits.items():
        lines = "".join(f"{json.dumps(_row(task))}\n" for task in tasks)
        atomic_write(directory / "data" / f"{part}.jsonl", lines.encode())
    if source.is_dir():
        atomic_write(directory / MANIFEST, (source / MANIFEST).read_bytes())
    atomic_write(directory / README, "\n".join(_card(splits, licence)).encode())
    return {part: len(tasks) for part, tasks in splits.items()}


def _row(task: Task) -> dict[str, object]:
    row = {name: getattr(task, name) for name in COLUMNS if name != "task"}
    return {**row, "task": encode(task).decode().strip()}


def _card(splits: Mapping[str, list[Task]], licence: str) -> Iterator[str]:
    """Yield the lines of the card: a header for the hub, then a description."""
    tasks = [task for part in splits.values() for task in part]
    yield "---"
    yield f"license: {licence}"
    yield "pretty_name: Shell tasks"
    yield "tags: [bash, shell, agents, reinforcement-learning]"
    yield from data_files({part: f"data/{part}.jsonl" for part in splits})
    yield "dataset_info:"
    yield "  features:"
    for name, kind in COLUMNS.items():
        yield f"  - name: {name}"
        yield "    list: string" if kind == "list" else f"    dtype: {kind}"
    yield "  splits:"
    for part, each in splits.items():
        yield f"  - name: {part}"
        yield f"    num_examples: {len(each)}"
    yield "---"
    yield "# Shell tasks"
    yield ""
    yield "Each asks an agent for a state or an output of a machine. A program checks the result."
    yield "`task` holds the whole task: written to a file, a line each, `shioenv tasks` reads it."
    yield ""
    for system in sorted({f"`{task.system}`, digest `{task.system_digest}`" for task in tasks}):
        yield f"- system: {system}"
    yield f"- certified: {sum(task.certificate is not None for task in tasks)} of {len(tasks)}"
    yield ""
    yield "Goals quote output and files of the system's programs, which have licences of their own."
    yield "The licence above is that of whoever published this collection."
    yield ""
