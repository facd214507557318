"""What a prompt leaves open of its goal, and where a solution can be read.

A prompt is read again, fact for fact, without what wrote it. A fact counts as told where its value
stands in a line about its file, and as implied where it follows from another fact.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final

from shioenv.bash.words import plain_words
from shioenv.domain.behavior import NOTHING
from shioenv.domain.patch import Operation
from shioenv.domain.pointer import keys
from shioenv.recording.text import read_arguments
from shioenv.system.store import System
from shioenv_agents.tasks.check import DATES, date_of, is_now
from shioenv_agents.tasks.prompt import gives_away, shows_output
from shioenv_agents.tasks.rephrase import tells_how
from shioenv_agents.tasks.task import Task

LARGEST: Final = 1 << 18
"""Bytes of a file of the machine in which a solution is looked for, at most."""

PEOPLES: Final = (
    "/etc/", "/home/", "/opt/", "/root/", "/srv/", "/tmp/", "/usr/local/", "/var/",
)  # fmt: skip
"""Where files lie that people write, or that are about this machine."""

Read = Callable[[str], bytes | None]
"""The content of a file of the pristine machine by its name from the task's start directory."""


def untold(task: Task, before: Mapping[str, Any], read: Read, instant: datetime) -> Iterator[str]:
    """Facts of a goal that the prompt neither names nor implies, as `Verdict.missing` has them.

    `before` is the context that the task begins in, and `instant` the system's present.
    """
    changed: dict[str, dict[str, Any]] = {}
    for code, place, *values in task.patch.operations:
        area, *parts = keys(place)
        if area == "fs" and len(parts) == 2 and code != "m":
            changed.setdefault(parts[0], {})[parts[1]] = values[0] if values else None
    for operation in task.patch.operations:
        if not _told(task.prompt, operation, before, changed, instant):
            yield str(operation[1])
    moved = {keys(one[2])[1] for one in task.patch.operations if one[0] == "m"}
    for name, digest in task.goal.digests.items():
        if name not in moved and not _holds(task, name, digest, read):
            yield f"content of {name}"
    if task.goal.output is not None:
        asked = re.search(r"^(?:Print|And the last command you run prints) (.+)", task.prompt, re.M)
        if asked is None or any(word not in task.prompt for word in _files_read(task, read)):
            yield "output"


def _told(
    prompt: str,
    operation: Operation,
    before: Mapping[str, Any],
    changed: Mapping[str, Mapping[str, Any]],
    instant: datetime,
) -> bool:
    code, place = operation[0], operation[1]
    area, *parts = keys(place)
    if area != "fs":
        return _told_outside(prompt, operation, before)
    about = "\n".join(line for line in prompt.splitlines() if f"`{parts[0]}`" in line)
    if code == "m":
        return f"`{parts[0]}` is called `{keys(operation[2])[1]}`" in about
    if len(parts) == 1 and code == "r":
        return f"`{parts[0]}` is gone" in about
    if len(parts) == 1:
        return all(_stands(value, about) for value in _needed(operation[2], instant))
    old = before["fs"].get(parts[0], {})
    key, value = parts[1], None if code == "r" else operation[2]
    if key in DATES:
        is_of_session = is_now(date_of({**old, **changed[parts[0]]}), instant)
        return _stands(value, about) or (is_of_session and bool(about))
    is_file = str(old.get("perms", "-")).startswith("-")
    return _stands(value, about) or (key in ("size", "links") and not is_file and bool(about))


def _needed(entry: Mapping[str, Any], instant: datetime) -> Iterator[object]:
    """The values of a new file that have to be told."""
    kind = str(entry["perms"])[:1]
    if kind == "l":
        yield entry["target"]
        return
    yield from (entry["perms"], entry["owner"], entry["group"])
    if kind == "-":
        yield entry["size"]
        if entry["links"] > 1:
            yield entry["links"]
    if kind != "d" and not is_now(date_of(entry), instant):
        yield from date_of(entry)


def _told_outside(prompt: str, operation: Operation, before: Mapping[str, Any]) -> bool:
    """Whether an operation that is about no file is told."""
    names = [
        name for name in keys(operation[1]) if name not in ("settings", "env", "shell_options")
    ]
    if operation[0] == "r":
        return _stands(names[-1], prompt)
    value = operation[2]
    if not isinstance(value, list):
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return _stands(shown, prompt)
    old: Any = before
    for name in keys(operation[1]):
        old = old.get(name, {}) if isinstance(old, Mapping) else {}
    before_it = old if isinstance(old, list) else []
    changed = [one for one in (*before_it, *value) if (one in before_it) != (one in value)]
    return bool(changed) and all(json.dumps(one) in prompt for one in changed)


def _stands(value: object, text: str) -> bool:
    """Whether a value stands in a text, as a word or several."""
    return re.search(rf"(?<![\w.]){re.escape(str(value))}(?!\w)", text) is not None


def _holds(task: Task, name: str, digest: str, read: Read) -> bool:
    """Whether the prompt says the content of a file, so that it could be written."""
    begin = f"- `{name}` "
    said, _, after = f"\n{task.prompt}".partition(f"\n{begin}holds ")[2].partition("\n")
    old = read(name) or b""
    if f"{begin}is empty" in task.prompt:
        return digest == NOTHING
    contents: list[bytes | None] = []
    if match := re.fullmatch(r"what `(.+)` held", said):
        contents.append(read(match[1]))
    if match := re.fullmatch(r"the first (\d+) bytes of what it held", said):
        contents.append(old[: int(match[1])])
    if size := re.search(rf"`{re.escape(name)}` (?:is a file, .* |has )(\d+) bytes", task.prompt):
        if said == "what it held, then zero bytes":
            contents.append(old.ljust(int(size[1]), b"\0"))
        elif said == "zero bytes alone":
            contents.append(bytes(int(size[1])))
    if said.startswith("this"):
        contents.append(_fenced(after, said))
    added = f"\n{task.prompt}".partition(f"\n{begin}ends with these lines, behind what it held")[2]
    if added:
        said, _, after = added.partition("\n")
        contents.append(old + _fenced(after, said))
    return any(hashlib.sha256(one).hexdigest() == digest for one in contents if one is not None)


def _fenced(after: str, said: str) -> bytes:
    fence, _, rest = after.partition("\n")
    text = rest.partition(f"\n{fence}")[0] if not rest.startswith(fence) else ""
    return (text + ("" if "without a newline" in said else "\n")).encode()


def _files_read(task: Task, read: Read) -> Iterator[str]:
    """Words of the solution that name a file of the machine."""
    for word in plain_words(task.solution):
        if "/" in word.strip("/") and read(word) is not None:
            yield word.rpartition("/")[2]


def leaks(task: Task, lines_of_machine: Mapping[str, str]) -> Iterator[str]:
    """Where the solution can be read: `prompt`, or a file that has it as a line.

    `lines_of_machine` are lines of the machine's files, each with its file.
    """
    shell_input = read_arguments(task.solution).input
    parts = [type(shell_input)(shell_input.tokens[a:b]).text for a, b in shell_input.spans()]
    told, _, facts = task.prompt.partition("You are ")
    if (
        gives_away(facts, task.solution, parts)
        or shows_output(task.prompt, task.goal)
        or tells_how(told, task.solution)
    ):
        yield "prompt"
    if " " in task.solution and task.solution in lines_of_machine:
        yield lines_of_machine[task.solution]


def lines_of(system: System, read: Callable[[str], bytes | None]) -> dict[str, str]:
    """Lines of the texts of a pristine machine that people write, each with its file."""
    found: dict[str, str] = {}
    for path, entry in system.index.items():
        if entry.size and entry.size <= LARGEST and path.startswith(PEOPLES):
            content = read(path)
            if content and b"\0" not in content:
                lines = content.decode("utf-8", "replace").splitlines()
                found.update(dict.fromkeys(map(str.strip, chain(lines)), path))
    return found
