"""Prompts for agents: the goal in plain English, without the way to reach it.

A sentence for the family of commands describes the kind of work. The goal's facts follow, each as a
line about the final state. An output is described by `asking`, never shown. The wording is in
`english.toml`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from shioenv.endpoint import Endpoint, ReplyFile
from shioenv.files.cache_directory import cache_directory
from shioenv.files.documents import parse_toml
from shioenv.grammar.arguments import on_files
from shioenv.grammar.library import load_grammar, shipped_headers
from shioenv.grammar.traits import OF_FILES
from shioenv_agents.tasks.goal_check import date_of, is_directory
from shioenv_agents.tasks.task import Fact, Goal, GoalKind, Task

LONGEST: Final = 2000
"""Maximum characters of all contents in a prompt."""

FACTS: Final = 50
"""Maximum facts in a prompt; our choice: agents read no more, and judging is quadratic."""

ENGLISH: Final[Mapping[str, Any]] = parse_toml(
    files(__package__).joinpath("english.toml").read_bytes()
)
"""The English of prompts."""

KINDS: Final[Mapping[str, Any]] = ENGLISH["kinds"]
MADE: Final[Mapping[str, str]] = KINDS["made"]
CHANGED: Final[Mapping[str, str]] = KINDS["changed"]
REMOVED: Final[str] = KINDS["removed"]
"""`MADE`, `CHANGED` and `REMOVED`: sentences for the kind of work.

The key is what the command makes, changes or removes.
"""

_FILES: Final[Mapping[str, str]] = ENGLISH["files"]
_PROMPT: Final[Mapping[str, str]] = ENGLISH["prompt"]

IsNow = Callable[[tuple[Any, ...]], bool]
"""Whether a file time, as returned by `date_of`, is the session's own."""


class Content(NamedTuple):
    """The description of a file's final content in a prompt."""

    line: str
    shown: int = 0
    """The number of characters of the content that the line shows."""


def family(commands: Sequence[str], areas: Collection[str]) -> str:
    """Return the sentence for the kind of work that an input does.

    It depends on the areas of the context that the input changes. For files, it depends on the last
    command that is known to change files.
    """
    for area in ("network", "cwd", "env", "limits"):
        if area in areas:
            return CHANGED[area]
    of_files = [said for name in commands if (said := _of_files(name))]
    return of_files[-1] if of_files else str(KINDS["else"])


def _of_files(name: str) -> str | None:
    """Return the sentence for a command's kind of work on files; None if it is unknown."""
    if name not in shipped_headers():
        return None
    traits = shipped_headers()[name].traits
    if traits.removes:
        return REMOVED
    if traits.makes:
        return MADE[traits.makes]
    if traits.changes in OF_FILES:
        return CHANGED[traits.changes]
    return KINDS["found"] if on_files(load_grammar(name)) else None


def told(
    before: Mapping[str, Any], goal: Goal, contents: Sequence[Content | None], is_now: IsNow
) -> list[str] | None:
    """Return the lines that describe a goal's machine state: one or more per fact and content.

    None if the goal cannot be described: a content or a fact has no line, contents are too long, or
    there are more than `FACTS`.
    """
    lines: list[str | None] = []
    for fact in goal.facts:
        if fact.area != "fs":
            lines.append(_outside(before, fact))
        elif fact.attribute is None or fact.code == "m":
            lines.append(_whole_file(fact, is_now))
    for name, attributes in goal.attributes.items():
        lines.extend(_changes(name, attributes, before["fs"].get(name, {}), is_now))
    lines.extend(content and content.line for content in contents)
    known = [line for line in lines if line is not None]
    shown = sum(content.shown for content in contents if content)
    return known if len(known) == len(lines) <= FACTS and shown <= LONGEST else None


def in_file(prompt: str, file: str) -> str | None:
    """Reword a prompt that asks for an output, so that it asks for the same in a file.

    This is for judges that read only files. None if the prompt does not ask for an output in the
    wording of `written`.
    """
    before, both, after = prompt.rpartition(f"\n\n{_PROMPT['and_prints']}")
    if both:
        return f"{before}\n\n{_PROMPT['and_in_file'].format(file=file, asked=after)}"
    before, alone, after = prompt.rpartition(_PROMPT["alone"])
    begin, found, asked = before.rpartition(f"\n\n{_PROMPT['print']}")
    if not (alone and found):
        return None
    told = _PROMPT["in_file"].format(file=file, asked=asked)
    return f"{begin}\n\n{told}{after.removeprefix(_PROMPT['nothing'])}"


def written(*, user: str, cwd: str, kind: str, state: Sequence[str], asked: str | None) -> str:
    """Return the complete prompt.

    `kind` is the sentence of `family`, `state` are the lines of `told`, and `asked` is the output
    to print (None: any).
    """
    parts = [_PROMPT["begin"].format(user=user, cwd=cwd)]
    if state:
        parts[0] += f" {kind}"
        parts.append(_PROMPT["state"])
        parts.append("\n".join(f"- {line}" for line in state))
        if asked is not None:
            parts.append(f"{_PROMPT['and_prints']}{asked}")
    elif asked is not None:
        parts.append(f"{_PROMPT['print']}{asked}")
        parts.append(f"{_PROMPT['alone']}{_PROMPT['nothing']}")
    if any("`" in line for line in (*state, asked or "")):
        parts.append(_PROMPT["relative"].format(cwd=cwd))
    return "\n\n".join(parts)


def like(how: str, name: str, **values: object) -> Content:
    """Describe a content without showing it; `how` is the key of a sentence in `contents`."""
    return Content(ENGLISH["contents"][how].format(name=name, **values))


def shown(name: str, text: str, *, added: bool = False) -> Content:
    """Show a content; with `added`, only the part after the old content."""
    if not text:
        return like("empty", name)
    end = "" if text.endswith("\n") else ENGLISH["contents"]["no_newline"]
    fence = "````" if "```" in text else "```"
    told = like(
        "added" if added else "whole", name, end=end, fence=fence, text=text.removesuffix("\n")
    )
    return Content(told.line, len(text))


def _whole_file(fact: Fact, is_now: IsNow) -> str:
    name = fact.names[0]
    if fact.code == "m":
        return _FILES["moved"].format(name=name, moved_to=fact.moved_to)
    if fact.code == "r":
        return _FILES["gone"].format(name=name)
    entry = fact.value
    kind = ENGLISH["types"].get(str(entry["perms"])[:1], "file")
    if kind == "symbolic link":
        return _FILES["link"].format(name=name, target=entry.get("target", ""))
    said = _FILES["new"].format(**{**entry, "name": name, "kind": kind})
    if kind == "file":
        said += _FILES["new_size"].format(**entry)
        if entry["links"] > 1:
            said += _FILES["new_links"].format(**entry)
    if not (is_directory(entry) or is_now(date_of(entry))):
        said += _FILES["new_date"].format(date=_FILES["moment"].format(**entry))
    return said


def _changes(
    name: str, attributes: Mapping[str, Any], was: Mapping[str, Any], is_now: IsNow
) -> Iterator[str]:
    """Yield lines for the changes of an existing file."""
    entry = {**was, **attributes}
    kind = str(entry.get("perms", "-"))[:1]
    untold = {"links"} if kind == "d" else {"size"} if kind == "l" else set()
    for key in ("perms", "owner", "group", "target", "links", "size"):
        if key in attributes and key not in untold:
            yield _FILES[key].format(name=name, value=attributes[key])
    dates = {"month", "day", "year", "time"} & set(attributes)
    if dates and not is_now(date_of(entry)):
        yield _FILES["date"].format(name=name, date=_FILES["moment"].format(**entry))
    elif dates == set(attributes):
        yield _FILES["now"].format(name=name)


def _outside(before: Mapping[str, Any], fact: Fact) -> str | None:
    """Return the line for a fact outside the file system; None if there is no wording for it."""
    if fact.code == "m":
        return None
    value = fact.value
    if fact.area in ENGLISH["areas"]:
        return str(ENGLISH["areas"][fact.area].format(value=value))
    if fact.area in ENGLISH["named"] and len(fact.names) == 1:
        what = ENGLISH["named"][fact.area].format(fact.names[0])
        if fact.code == "r":
            return f"{what} is unset"
        return f"{what} is {f'`{value}`' if isinstance(value, str) else json.dumps(value)}"
    place = " ".join([fact.area, *fact.names])
    if fact.code == "r":
        return f"of {place} nothing is left"
    if not isinstance(value, list):
        return f"{place} is {json.dumps(value, ensure_ascii=False)}"
    old = fact.before(before)
    was = old if isinstance(old, list) else []
    said = [f"lacks {json.dumps(line)}" for line in was if line not in value]
    said += [f"has {json.dumps(line)}" for line in value if line not in was]
    return f"{place}: {', '.join(said)}" if said else None


def gives_away(prompt: str, solution: str, segments: Sequence[str]) -> bool:
    """Whether a prompt holds the solution, or one of its commands with all its arguments."""
    return any(text in prompt for text in (solution, *segments) if " " in text.strip())


def shows_output(prompt: str, goal: Goal) -> bool:
    """Whether a goal is only an output, and the prompt contains each line of that output.

    An agent could then copy the output from the prompt without looking at the machine.
    """
    if goal.kind is not GoalKind.OUTPUT or goal.output is None:
        return False
    lines = {" ".join(line.split()) for line in goal.output.splitlines()} - {""}
    return all(re.search(rf"(?<!\w){re.escape(line)}(?!\w)", prompt) for line in lines)


# ---- prompts reworded by a language model, behind any endpoint with OpenAI's protocol

TOKENS: Final = 400
"""Maximum tokens of a reply."""

INSTRUCTIONS: Final = """\
You will be shown what has to be done on a Linux machine. Say it as a colleague would who wants \
it done: plain English, one to three sentences, what for if that is easy to guess. Name no \
command, no option and no flag. Contents of files are listed elsewhere: do not repeat them. Reply \
with these sentences alone.
"""


def rephrased(
    tasks: Iterable[Task],
    model: str,
    *,
    url: str = "",
    replay: Path | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Task]:
    """Put a model's wording before each task's prompt, which is kept because it holds the facts.

    A reply that is empty or reveals how the task is done (`tells_how`) is dropped. Replies are
    stored in the file `replay` (None: a file in the user's cache directory), and reused the next
    time. `url` is the endpoint's address. Errors: those of `asked` and `Endpoint.reply`.
    """
    tasks = list(tasks)
    kept = ReplyFile(replay or cache_directory() / "prompts.jsonl")
    endpoint = asked(url)
    done = []
    for number, task in enumerate(tasks, 1):
        request = {
            "model": model,
            "messages": [
                {"role": "system", "content": INSTRUCTIONS},
                {"role": "user", "content": task.prompt},
            ],
            "temperature": 0,
            "seed": 0,
            "max_tokens": TOKENS,
        }
        reply = kept.get(request) or kept.keep(request, endpoint.reply(request))
        said = " ".join(reply["text"].split())
        tells = not said or tells_how(said, task.solution)
        done.append(task if tells else replace(task, prompt=f"{said}\n\n{task.prompt}"))
        report(number, len(tasks))
    return done


def asked(url: str) -> Endpoint:
    """Return the checked endpoint for `rephrased`. Errors: those of `Endpoint.check`."""
    endpoint = Endpoint("writing prompts", url)
    endpoint.check()
    return endpoint


def tells_how(said: str, solution: str) -> bool:
    """Whether a text holds an option of the solution, or two words of the solution in a row."""
    words = {word.strip("`'\"().,;:") for word in said.split()}
    given = solution.split()
    options = {word for word in given if word.startswith("-") and len(word) > 1}
    return bool(options & words) or any(f"{one} {next_}" in said for one, next_ in pairwise(given))
