"""What an agent is told: the goal in plain English, and never how to reach it.

A sentence for the family of commands says what kind of work the task is. The goal's operations
follow, each as a fact about the end. An output is described by `asking`, never shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shioenv.domain.patch import ContextPatch
from shioenv.domain.pointer import keys
from shioenv.grammar.arguments import on_files
from shioenv.grammar.library import load_grammar, shipped_headers
from shioenv.grammar.traits import OF_FILES
from shioenv_agents.tasks.check import is_directory
from shioenv_agents.tasks.task import Goal, GoalKind

LONGEST: Final = 2000
"""Most characters of all contents together that a prompt shows."""

FACTS: Final = 50
"""Most facts that a prompt tells; ours, because nobody reads more, and judging takes the square."""

MADE: Final[Mapping[str, str]] = {
    "archive": "Something has to be packed or unpacked.",
    "copy": "Something has to be copied.",
    "directory": "Directories are wanted.",
    "download": "Something has to be fetched from a web server.",
    "fifo": "A named pipe is wanted.",
    "file": "Something has to be written to a file.",
    "link": "A link has to be made.",
    "pieces": "A file has to be cut into pieces.",
}
CHANGED: Final[Mapping[str, str]] = {
    "content": "Files have to hold something else.",
    "mode": "Who may do what with some files has to change.",
    "name": "Something has to be moved or renamed.",
    "owner": "Some files have to belong to somebody else.",
    "size": "Files have to be of another size.",
    "time": "Files are wanted, or have to be of another time.",
    "cwd": "The shell has to be somewhere else.",
    "env": "The shell's environment has to change.",
    "limits": "The shell's limits have to change.",
    "network": "The network has to be set up otherwise.",
}
REMOVED: Final = "Something has to go."
FOUND: Final = "Some files have to be found, and something done about them."
"""`MADE`, `CHANGED`, `REMOVED` and `FOUND`: what kind of work a task is, by what its command makes,
changes, removes or runs."""

ELSE: Final = "Files have to be written."
"""The kind of work of all other commands, which change files by way of a redirection."""

_KINDS = {
    "-": "file", "d": "directory", "l": "symbolic link", "p": "named pipe", "s": "socket",
    "c": "device", "b": "device",
}  # fmt: skip
_AREAS = {
    "env": "the exported variable {0} of the shell",
    "settings": "the variable or setting {0} of the shell",
    "shell_options": "the shell option {0}",
    "functions": "the function {0} of the shell",
    "aliases": "the alias {0} of the shell",
    "limits": "the shell's limit of {0}",
}


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a file in the end, as a prompt can tell it."""

    text: str | None = None
    """The whole content, where it is text; None where it is not."""
    like: str | None = None
    """The content in words, such as "what `x` held"; comes before `text`."""
    added: bool = False
    """`text` is only the part behind the content before."""


def family(commands: Sequence[str], areas: Collection[str]) -> str:
    """The sentence for the kind of work that an input does.

    It depends on the areas of the context that the input changes. Where they are files, it depends
    on the last command that is known to change files.
    """
    for area in ("network", "cwd", "env", "limits"):
        if area in areas:
            return CHANGED[area]
    of_files = [said for name in commands if (said := _of_files(name))]
    return of_files[-1] if of_files else ELSE


def _of_files(name: str) -> str | None:
    """The sentence for the kind of work on files that a command does; None where none is known."""
    if name not in shipped_headers():
        return None
    traits = shipped_headers()[name].traits
    if traits.removes:
        return REMOVED
    if traits.makes:
        return MADE[traits.makes]
    if traits.changes in OF_FILES:
        return CHANGED[traits.changes]
    return FOUND if on_files(load_grammar(name)) else None


def told(
    before: Mapping[str, Any],
    patch: ContextPatch,
    contents: Mapping[str, Content],
    is_now: Callable[[Mapping[str, Any]], bool],
) -> list[str] | None:
    """What a goal says about the machine: a line or more for each operation and content.

    None where the goal cannot be told. A content that is no text, or is too long, cannot be told.
    Nor can an operation that no sentence fits, nor more than `FACTS`. `is_now` says whether a
    file's time is the session's own.
    """
    changed: dict[str, dict[str, Any]] = {}
    lines: list[str] = []
    for operation in patch.operations:
        area, *parts = keys(operation[1])
        if area != "fs":
            line = _outside(before, operation[0], area, parts, operation)
            if line is None:
                return None
            lines.append(line)
        elif operation[0] == "m":
            lines.append(f"`{parts[0]}` is called `{keys(operation[2])[1]}`")
        elif operation[0] == "r" and len(parts) == 1:
            lines.append(f"`{parts[0]}` is gone")
        elif len(parts) == 1:
            lines.append(f"`{parts[0]}` is {_entry(operation[2], is_now)}")
        else:
            changed.setdefault(parts[0], {})[parts[1]] = (
                None if operation[0] == "r" else operation[2]
            )
    for name, attributes in changed.items():
        was = before["fs"].get(name, {})
        now = is_now({**was, **attributes})
        lines.extend(_changes(name, attributes, was, now=now))
    if sum(len(content.text or "") for content in contents.values()) > LONGEST:
        return None
    for name, content in contents.items():
        line = _holds(name, content)
        if line is None:
            return None
        lines.append(line)
    return lines if len(lines) <= FACTS else None


_PRINT: Final = "Print "
_AND_PRINTS: Final = "And the last command you run prints "
_ALONE: Final = "The last command you run prints that and nothing else."
_NOTHING: Final = " Nothing on the machine changes."


def in_file(prompt: str, file: str) -> str | None:
    """A prompt that asks for an output, in words that ask for the same in a file.

    For who is judged by files alone. None where the prompt asks for no output in the words of
    `written`.
    """
    before, both, after = prompt.rpartition(f"\n\n{_AND_PRINTS}")
    if both:
        return f"{before}\n\nAnd `{file}` holds {after}"
    before, alone, after = prompt.rpartition(_ALONE)
    if not alone or f"\n\n{_PRINT}" not in before:
        return None
    begin, _, asked = before.rpartition(f"\n\n{_PRINT}")
    return (
        f"{begin}\n\nWrite into the file `{file}` {asked}The file holds that and nothing else. "
        f"But for the file, nothing on the machine changes.{after.removeprefix(_NOTHING)}"
    )


def written(*, user: str, cwd: str, kind: str, state: Sequence[str], asked: str | None) -> str:
    """The whole prompt.

    `kind` is the sentence of `family`, `state` are the lines of `told`, and `asked` is the output
    to print (None: any).
    """
    parts = [f"You are {user}, in a shell in `{cwd}`."]
    if state:
        parts[0] += f" {kind}"
        parts.append("In the end this is so, and everything else as it was:")
        parts.append("\n".join(f"- {line}" for line in state))
        if asked is not None:
            parts.append(f"{_AND_PRINTS}{asked}")
    elif asked is not None:
        parts.append(f"{_PRINT}{asked}")
        parts.append(f"{_ALONE}{_NOTHING}")
    if any("`" in line for line in (*state, asked or "")):
        parts.append(f"Names that do not begin with a slash are relative to `{cwd}`.")
    return "\n\n".join(parts)


def _entry(entry: Mapping[str, Any], is_now: Callable[[Mapping[str, Any]], bool]) -> str:
    kind = _KINDS.get(str(entry["perms"])[:1], "file")
    if kind == "symbolic link":
        return f"a symbolic link to `{entry.get('target', '')}`"
    said = f"a {kind}, {entry['perms']}, of {entry['owner']} and the group {entry['group']}"
    if kind == "file":
        said += f", {entry['size']} bytes"
        if entry["links"] > 1:
            said += f", with {entry['links']} hard links"
    return said if is_directory(entry) or is_now(entry) else f"{said}, {_date(entry)}"


def _date(entry: Mapping[str, Any]) -> str:
    moment = "{day} {month} {year}, {time} (UTC)".format(**entry)
    return f"last changed on {moment}"


def _changes(
    name: str, attributes: Mapping[str, Any], was: Mapping[str, Any], *, now: bool
) -> Iterator[str]:
    """Lines for what changed of a file that was there before; `now`: its time is the session's."""
    kind = str({**was, **attributes}.get("perms", "-"))[:1]
    if "perms" in attributes:
        yield f"`{name}` has the permissions {attributes['perms']}"
    for key, word in (("owner", "owner"), ("group", "group")):
        if key in attributes:
            yield f"the {word} of `{name}` is {attributes[key]}"
    if "target" in attributes:
        yield f"`{name}` leads to `{attributes['target']}`"
    if "links" in attributes and kind != "d":
        yield f"`{name}` has {attributes['links']} hard links"
    if "size" in attributes and kind != "l":
        yield f"`{name}` has {attributes['size']} bytes"
    dates = {"month", "day", "year", "time"} & set(attributes)
    if dates and not now:
        yield f"`{name}` was {_date({**was, **attributes})}"
    elif dates == set(attributes):
        yield f"`{name}` was last changed just now"


def _holds(name: str, content: Content) -> str | None:
    if content.like is not None:
        return f"`{name}` holds {content.like}"
    if content.text is None:
        return None
    if not content.text:
        return f"`{name}` is empty"
    missing = "" if content.text.endswith("\n") else " (without a newline at its end)"
    what = "ends with these lines, behind what it held" if content.added else "holds this"
    fence = "````" if "```" in content.text else "```"
    return f"`{name}` {what}{missing}:\n{fence}\n{content.text.removesuffix(chr(10))}\n{fence}"


def _outside(
    before: Mapping[str, Any], code: str, area: str, parts: Sequence[str], operation: Sequence[Any]
) -> str | None:
    """The line for an operation of a goal that is about no file; None where it cannot be told."""
    if code == "m":
        return None
    value = None if code == "r" else operation[2]
    if area == "cwd":
        return f"the shell's working directory is `{value}`"
    if area == "umask":
        return f"the shell's umask is {value}"
    if area == "hostname":
        return f"the host is called {value}"
    if area in _AREAS and len(parts) == 1:
        what = _AREAS[area].format(f"`{parts[0]}`" if area != "limits" else parts[0])
        if code == "r":
            return f"{what} is unset"
        shown = f"`{value}`" if isinstance(value, str) else json.dumps(value)
        return f"{what} is {shown}"
    place = " ".join([area, *parts])
    if code == "r":
        return f"of {place} nothing is left"
    if isinstance(value, list):
        old = _at(before, [area, *parts])
        lost = [line for line in old if line not in value] if isinstance(old, list) else []
        new = [line for line in value if not isinstance(old, list) or line not in old]
        said = [f"lacks {json.dumps(line)}" for line in lost]
        said += [f"has {json.dumps(line)}" for line in new]
        return f"{place}: {', '.join(said)}" if said else None
    return f"{place} is {json.dumps(value, ensure_ascii=False)}"


def _at(document: Mapping[str, Any], names: Sequence[str]) -> Any:
    found: Any = document
    for name in names:
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def gives_away(prompt: str, solution: str, segments: Sequence[str]) -> bool:
    """Whether a prompt holds the solution, or one of its commands with all its arguments."""
    return any(text in prompt for text in (solution, *segments) if " " in text.strip())


def shows_output(prompt: str, goal: Goal) -> bool:
    """Whether a goal is an output alone, and a prompt holds each line of that output.

    Whoever prints what was told has then looked at nothing.
    """
    if goal.kind is not GoalKind.OUTPUT or goal.output is None:
        return False
    lines = {" ".join(line.split()) for line in goal.output.splitlines()} - {""}
    return all(re.search(rf"(?<!\w){re.escape(line)}(?!\w)", prompt) for line in lines)
