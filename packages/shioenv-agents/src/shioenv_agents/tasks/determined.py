"""Check that a prompt determines its goal, and that the solution is not readable anywhere.

A prompt is parsed fact by fact, independently of the code that wrote it. A fact is stated if its
value occurs in a line about its file, and implied if it follows from another fact.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final

from shioenv.bash.words import plain_words, unquoted
from shioenv.domain.names import name_text
from shioenv.recording.text_score import read_arguments
from shioenv.system.store import System
from shioenv_agents.tasks.goal_check import DATES, date_of, is_now
from shioenv_agents.tasks.prompt import (
    ENGLISH,
    entry_text,
    file_word,
    gives_away,
    is_worded,
    minute,
    mode,
    number_of,
    reveals_solution,
    shows_output,
    word,
)
from shioenv_agents.tasks.task import Fact, Task

LARGEST: Final = 1 << 18
"""Maximum size in bytes of a machine's file that is searched for a solution."""

PEOPLES: Final = (
    "/etc/", "/home/", "/opt/", "/root/", "/srv/", "/tmp/", "/usr/local/", "/var/",
)  # fmt: skip
"""Directories of files that people write, or that are specific to this machine."""

OTHER_WORDING: Final = "the prompt is not in this release's wording (--rebase rewrites it)"
"""The fault of a prompt that cannot be parsed."""

Read = Callable[[str], bytes | None]
"""A callable that returns a pristine file's content by its name in the start directory."""


def unstated_facts(
    task: Task,
    before: Mapping[str, Any],
    read: Read,
    instant: datetime,
    read_committed: Callable[[str, str], bytes | None] = lambda file, commit: None,
) -> Iterator[str]:
    """Yield facts that the prompt neither states nor implies, in the form of `Verdict.missing`.

    `before` is the context at the task's start, and `instant` the system's declared time.
    `read_committed` returns a file's content in a commit. The commit is described as in the prompt.
    """
    if not is_worded(task.prompt):
        yield OTHER_WORDING
        return
    changed = task.goal.attributes
    # The `-` of a bullet must not count as a stated value.
    prompt = re.sub("^- ", "", task.prompt, flags=re.MULTILINE)
    for fact in task.goal.facts:
        if fact.area != "fs":
            told = _is_stated_outside_files(prompt, fact, before)
        else:
            told = _is_stated(prompt, fact, before, changed, instant)
        if not told:
            yield fact.place
    for name, digest in task.goal.digests.items():
        if name not in task.goal.moved and not _holds(task, name, digest, read, read_committed):
            yield f"content of {name}"
    if task.goal.output is not None:
        asked = re.search(
            r"^(?:Print|The last command that you run must also print) (.+)", task.prompt, re.M
        )
        if asked is None or any(name not in task.prompt for name in _files_read(task, read)):
            yield "output"


def _is_stated(
    prompt: str,
    fact: Fact,
    before: Mapping[str, Any],
    changed: Mapping[str, Mapping[str, Any]],
    instant: datetime,
) -> bool:
    """Whether the prompt states or implies a fact about a file."""
    name = file_word(fact.names[0])
    about = "\n".join(line for line in prompt.splitlines() if f"`{name}`" in line)
    if fact.moved_to is not None:
        return f"`{name}` has been moved to `{file_word(fact.moved_to)}`" in about
    if fact.attribute is None and fact.code == "r":
        return f"`{name}` no longer exists" in about
    if fact.attribute is None:
        return all(_occurs(value, about) for value in _needed(fact.value, instant))
    old = before["fs"].get(fact.names[0], {})
    entry = {**old, **changed[fact.names[0]]}
    kind = str(entry.get("perms", "-"))[0]
    if kind != str(old.get("perms", kind))[0]:
        return all(_occurs(value, about) for value in _needed(entry, instant))
    if fact.attribute in DATES:
        is_told = is_now(date_of(entry), instant) or _occurs(minute(entry), about)
        return is_told and bool(about)
    if fact.attribute == "links" and kind == "d":
        return True  # it follows from the directories in it
    if fact.attribute == "size" and kind != "-":
        return bool(about)
    return _occurs(_TEXTS.get(fact.attribute, str)(fact.value), about)


_TEXTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "perms": mode,
    "target": file_word,
    "size": lambda size: number_of(size, "byte"),
    "links": lambda links: number_of(links, "hard link"),
}
"""The wording of attribute values in prompts, by attribute."""


def _needed(entry: Mapping[str, Any], instant: datetime) -> Iterator[object]:
    """Yield the values of a new file that the prompt must state."""
    kind = str(entry["perms"])[0]
    yield ENGLISH["types"][kind].format(target=file_word(str(entry.get("target") or "")))
    if kind != "l":
        yield mode(str(entry["perms"]))
    yield from (entry["owner"], entry["group"])
    if kind == "-":
        yield _TEXTS["size"](entry["size"])
    if kind != "d" and entry["links"] > 1:
        yield _TEXTS["links"](entry["links"])
    if kind != "d" and not is_now(date_of(entry), instant):
        yield minute(entry)


def _is_stated_outside_files(prompt: str, fact: Fact, before: Mapping[str, Any]) -> bool:
    """Whether the prompt states a fact outside the file system."""
    if fact.code == "r":
        return _occurs((fact.area, *fact.names)[-1], prompt)
    value = fact.value
    if isinstance(value, bool):
        return _occurs("on" if value else "off", prompt)
    if not isinstance(value, list):
        shown = word(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return any(_occurs(text, prompt) for text in (shown, str(value)))
    old = fact.before(before)
    before_it = old if isinstance(old, list) else []
    changed = [one for one in (*before_it, *value) if (one in before_it) != (one in value)]
    return bool(changed) and all(f"`{entry_text(str(one))}`" in prompt for one in changed)


def _occurs(value: object, text: str) -> bool:
    """Whether a value occurs in a text, as one or more whole words."""
    return re.search(rf"(?<![\w.]){re.escape(str(value))}(?!\w)", text) is not None


def _holds(
    task: Task,
    name: str,
    digest: str,
    read: Read,
    read_committed: Callable[[str, str], bytes | None],
) -> bool:
    """Whether the prompt gives the content of a file, so that it could be written."""
    file = re.escape(f"`{file_word(name)}`")
    sizes = rf"^- (?:{file} is a regular file: .*, size|the size of {file} is) (\d+) bytes?\b"
    match = re.search(sizes, task.prompt, re.M)
    size = int(match[1]) if match else 0
    old = read(name) or b""
    contents: list[bytes | None] = []
    for line in re.split(rf"^- {file} ", task.prompt, flags=re.M)[1:]:
        said, _, after = line.partition("\n")
        if said == "is empty":
            contents.append(b"")
        elif match := re.fullmatch(
            r"(?:has the original content of|is a hard link to) `(.+)`", said
        ):
            contents.append(read(name_text(os.fsencode(unquoted(match[1])))))
        elif match := re.fullmatch(r"contains only the first (\d+) bytes? of its .*", said):
            contents.append(old[: int(match[1])])
        elif match := re.fullmatch(r"has the content that `(.+?)` has in (.+)", said):
            contents.append(read_committed(unquoted(match[1]), match[2]))
        elif said == "contains its original content, followed by null bytes":
            contents.append(old.ljust(size, b"\0"))
        elif said == "contains only null bytes":
            contents.append(bytes(size))
        elif said.startswith("contains exactly this text"):
            contents.append(_fenced(after, said))
        elif said.startswith("contains its original content, followed by this text"):
            contents.append(old + _fenced(after, said))
    return any(hashlib.sha256(one).hexdigest() == digest for one in contents if one is not None)


def _fenced(after: str, said: str) -> bytes:
    fence, _, rest = after.partition("\n")
    text = rest.partition(f"\n{fence}")[0] if not rest.startswith(fence) else ""
    return (text + ("" if said.endswith("without a newline at the end:") else "\n")).encode()


def _files_read(task: Task, read: Read) -> Iterator[str]:
    """Yield words of the solution that name a file of the machine."""
    for name in plain_words(task.solution):
        if "/" in name.strip("/") and read(name) is not None:
            yield name.rpartition("/")[2]


def leaks(task: Task, lines_of_machine: Mapping[str, str]) -> Iterator[str]:
    """Yield the places that reveal the solution: `prompt`, or a file that contains it as a line.

    `lines_of_machine` maps each line of the machine's files to its file.
    """
    shell_input = read_arguments(task.solution).input
    parts = [type(shell_input)(shell_input.tokens[a:b]).text for a, b in shell_input.spans()]
    told, _, facts = task.prompt.partition("You are ")
    if (
        gives_away(facts, task.solution, parts)
        or shows_output(task.prompt, task.goal)
        or reveals_solution(told, task.solution)
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
