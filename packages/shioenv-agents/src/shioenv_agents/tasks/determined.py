"""Check that a prompt determines its goal, and that the solution is not readable anywhere.

A prompt is parsed fact by fact, independently of the code that wrote it. A fact is stated if its
value occurs in a line about its file, and implied if it follows from another fact.
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
from shioenv.recording.text_score import read_arguments
from shioenv.system.store import System
from shioenv_agents.tasks.goal_check import DATES, date_of, is_now
from shioenv_agents.tasks.prompt import gives_away, shows_output, tells_how
from shioenv_agents.tasks.task import Fact, Task

LARGEST: Final = 1 << 18
"""Maximum size in bytes of a machine's file that is searched for a solution."""

PEOPLES: Final = (
    "/etc/", "/home/", "/opt/", "/root/", "/srv/", "/tmp/", "/usr/local/", "/var/",
)  # fmt: skip
"""Directories of files that people write, or that are specific to this machine."""

Read = Callable[[str], bytes | None]
"""A callable that returns a pristine file's content by its name from the start directory."""


def untold(task: Task, before: Mapping[str, Any], read: Read, instant: datetime) -> Iterator[str]:
    """Yield facts that the prompt neither states nor implies, in the form of `Verdict.missing`.

    `before` is the context at the task's start, and `instant` the system's present.
    """
    changed = task.goal.attributes
    for fact in task.goal.facts:
        if fact.area != "fs":
            told = _told_outside(task.prompt, fact, before)
        else:
            told = _told(task.prompt, fact, before, changed, instant)
        if not told:
            yield fact.place
    for name, digest in task.goal.digests.items():
        if name not in task.goal.moved and not _holds(task, name, digest, read):
            yield f"content of {name}"
    if task.goal.output is not None:
        asked = re.search(r"^(?:Print|And the last command you run prints) (.+)", task.prompt, re.M)
        if asked is None or any(word not in task.prompt for word in _files_read(task, read)):
            yield "output"


def _told(
    prompt: str,
    fact: Fact,
    before: Mapping[str, Any],
    changed: Mapping[str, Mapping[str, Any]],
    instant: datetime,
) -> bool:
    """Whether the prompt states or implies a fact about a file."""
    name = fact.names[0]
    about = "\n".join(line for line in prompt.splitlines() if f"`{name}`" in line)
    if fact.moved_to is not None:
        return f"`{name}` is called `{fact.moved_to}`" in about
    if fact.attribute is None and fact.code == "r":
        return f"`{name}` is gone" in about
    if fact.attribute is None:
        return all(_stands(value, about) for value in _needed(fact.value, instant))
    if _stands(fact.value, about):
        return True
    old = before["fs"].get(name, {})
    if fact.attribute in DATES:
        return is_now(date_of({**old, **changed[name]}), instant) and bool(about)
    is_file = str(old.get("perms", "-")).startswith("-")
    return fact.attribute in ("size", "links") and not is_file and bool(about)


def _needed(entry: Mapping[str, Any], instant: datetime) -> Iterator[object]:
    """Yield the values of a new file that the prompt must state."""
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


def _told_outside(prompt: str, fact: Fact, before: Mapping[str, Any]) -> bool:
    """Whether the prompt states a fact outside the file system."""
    if fact.code == "r":
        return _stands((fact.area, *fact.names)[-1], prompt)
    value = fact.value
    if not isinstance(value, list):
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return _stands(shown, prompt)
    old = fact.before(before)
    before_it = old if isinstance(old, list) else []
    changed = [one for one in (*before_it, *value) if (one in before_it) != (one in value)]
    return bool(changed) and all(json.dumps(one) in prompt for one in changed)


def _stands(value: object, text: str) -> bool:
    """Whether a value occurs in a text, as one or more whole words."""
    return re.search(rf"(?<![\w.]){re.escape(str(value))}(?!\w)", text) is not None


def _holds(task: Task, name: str, digest: str, read: Read) -> bool:
    """Whether the prompt gives the content of a file, so that it could be written."""
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
    """Yield words of the solution that name a file of the machine."""
    for word in plain_words(task.solution):
        if "/" in word.strip("/") and read(word) is not None:
            yield word.rpartition("/")[2]


def leaks(task: Task, lines_of_machine: Mapping[str, str]) -> Iterator[str]:
    """Yield the places that reveal the solution: `prompt`, or a file that contains it as a line.

    `lines_of_machine` maps lines of the machine's files to their file.
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
    """Return lines of a pristine machine's text files that people write, each with its file."""
    found: dict[str, str] = {}
    for path, entry in system.index.items():
        if entry.size and entry.size <= LARGEST and path.startswith(PEOPLES):
            content = read(path)
            if content and b"\0" not in content:
                lines = content.decode("utf-8", "replace").splitlines()
                found.update(dict.fromkeys(map(str.strip, chain(lines)), path))
    return found
