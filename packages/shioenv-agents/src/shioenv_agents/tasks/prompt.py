"""Prompts for agents: the goal in plain English, without the way to reach it.

A sentence describes the kind of work. The goal's facts follow, each as a line about the final
state. `output_requests` describes an output, which is never shown. The wording is in
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

from shioenv.bash.words import quoted
from shioenv.domain.context import MONTHS
from shioenv.domain.names import name_bytes
from shioenv.domain.readable import mode_of
from shioenv.endpoint import Endpoint, ReplyFile
from shioenv.files.documents import parse_toml
from shioenv.files.durable import cache_directory
from shioenv.grammar.library import shipped_headers
from shioenv_agents.tasks.goal_check import DATES, date_of
from shioenv_agents.tasks.task import Fact, Goal, GoalKind, Task

LONGEST: Final = 2000
"""Maximum characters of all contents in a prompt."""

FACTS: Final = 50
"""Maximum facts in a prompt; our choice: agents read no more, and judging takes quadratic time."""

ENGLISH: Final[Mapping[str, Any]] = parse_toml(
    files(__package__).joinpath("english.toml").read_bytes()
)
"""The wording of prompts."""

SEVERAL: Final[str] = ENGLISH["kinds"]["several"]
UNDONE: Final[str] = ENGLISH["kinds"]["undone"]
"""`SEVERAL` and `UNDONE`: the sentences of composed tasks."""

_KINDS: Final[Mapping[str, Any]] = ENGLISH["kinds"]
_FILES: Final[Mapping[str, str]] = ENGLISH["files"]
_PROMPT: Final[Mapping[str, str]] = ENGLISH["prompt"]

_KIND_OF_ATTRIBUTE: Final[Mapping[str, str]] = {
    "perms": "mode", "owner": "owner", "group": "owner", "target": "target", "size": "content",
    **dict.fromkeys(DATES, "time"),
}  # fmt: skip
"""The kind of work for each changed attribute of a file. A changed number of links has no kind."""

_AGREEING: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(("archive", "download", "pieces"), frozenset({"created", "content"})),
    "copy": frozenset({"created", "content", "mode", "owner", "time"}),
    "name": frozenset({"moved", "removed"}),
    "owner": frozenset({"owner"}),
}
"""For what a command makes or changes: the kinds of facts that agree; one of them is needed."""

IsNow = Callable[[tuple[Any, ...]], bool]
"""Whether a file time, as returned by `date_of`, lies in the session."""


class Content(NamedTuple):
    """The description of a file's final content in a prompt."""

    line: str
    shown: int = 0
    """The number of characters of the content that the line shows."""


# ---- words in backquotes

_PLAIN: Final = re.compile(r"(?!~)[\w@%+=:,./~-]+")
"""A word that Bash takes literally, also one with letters beyond ASCII."""


def word(text: str) -> str:
    """Return a text as a Bash word on one line, without backquotes; quoted only if necessary."""
    if _PLAIN.fullmatch(text):
        return text
    return quoted(text) if _is_shown(text) else f"$'{''.join(map(_escaped, text))}'"


def file_word(name: str) -> str:
    """Return the Bash word for a file's name in `fs`."""
    return word(name_bytes(name).decode("utf-8", "surrogateescape"))


def _is_shown(text: str) -> bool:
    return text.isprintable() and "`" not in text


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if _is_shown(character):
        return character
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    octets = character.encode("utf-8", "surrogateescape")
    return known.get(character) or "".join(f"\\{octet:03o}" for octet in octets)


# ---- the kind of work


def family(commands: Collection[str], goal: Goal, before: Mapping[str, Any]) -> str:
    """Return the sentence for the kind of work that reaches a goal.

    The sentence depends on the facts of the goal. If all commands make or change the same thing,
    and a fact agrees with that, the more specific sentence for the thing is used. `before` is the
    context at the task's start.
    """
    found: dict[str, dict[str, str]] = {}
    for kind, name, noun in _kinds(goal, before):
        found.setdefault(kind, {})[name] = noun
    if "shell" in found:
        found.pop("env", None)
    changed = {name for kind in found if kind != "time" for name in found[kind]}
    if "time" in found and changed.issuperset(found["time"]):
        del found["time"]
    done = {makes(name) for name in commands} - {None}
    by_command = done.pop() if len(done) == 1 else None
    agreeing = [found[kind] for kind in found if kind in _AGREEING.get(by_command or "", ())]
    files = {name: noun for names in agreeing for name, noun in names.items()}
    if files and not (by_command == "copy" and set(files.values()) == {"l"}):
        return str(_KINDS["commands"][by_command].format(files=_noun(files)))
    if len(found) != 1:
        return SEVERAL
    ((kind, files),) = found.items()
    return str(_KINDS[kind].format(files=_noun(files)))


def _kinds(goal: Goal, before: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the kind of work of each fact, with the file's name, and the key of its noun."""
    for fact in goal.facts:
        if fact.file is None:
            areas = {"umask", "settings", "shell_options", "functions", "aliases"}
            area = "shell" if fact.area in areas else fact.area
            yield "network" if area == "firewall" else area, "", "-"
            continue
        entry = before["fs"].get(fact.file, {})
        if fact.attribute is None and fact.code in "a=":
            entry = fact.value
            is_hard = entry["perms"].startswith("-") and entry["links"] > 1
            yield "created", fact.file, "hard" if is_hard else entry["perms"][0]
            continue
        noun = str(entry.get("perms", "-"))[0]
        if fact.attribute is None:
            yield "moved" if fact.code == "m" else "removed", fact.file, noun
        elif noun != (new := str(goal.attributes[fact.file].get("perms", noun))[0]):
            yield "created", fact.file, new
        elif kind := _KIND_OF_ATTRIBUTE.get(fact.attribute):
            yield kind, fact.file, noun
    for name in sorted(set(goal.digests) - set(goal.made) - goal.moved):
        was = str(before["fs"].get(name, {}).get("perms", "-"))
        if was.startswith("-"):
            yield "content", name, "-"


def makes(command: str) -> str | None:
    """Return what a command makes or changes, by its traits, or `removed`; None if nothing."""
    if command not in shipped_headers():
        return None
    traits = shipped_headers()[command].traits
    return "removed" if traits.removes else traits.makes or traits.changes


def _noun(files: Mapping[str, str]) -> str:
    keys = set(files.values())
    key = keys.pop() if len(keys) == 1 else "mixed" if "d" in keys else "-"
    one, some = ENGLISH["nouns"].get(key, ENGLISH["nouns"]["-"])
    return str(one if len(files) == 1 else some)


# ---- facts


def describe_goal(
    before: Mapping[str, Any], goal: Goal, contents: Sequence[Content | None], is_now: IsNow
) -> list[str] | None:
    """Return the lines that describe a goal's machine state: one or more per fact and content.

    None if the goal cannot be described: a content or a fact has no line, contents are too long, or
    there are more than `FACTS`.
    """
    lines: list[str | None] = []
    for fact in goal.facts:
        if fact.area != "fs":
            lines.extend(_outside(before, fact))
        elif fact.attribute is None or fact.code == "m":
            lines.append(_whole_file(fact, is_now))
    for name, attributes in goal.attributes.items():
        written = name in goal.digests
        lines.extend(_changes(name, attributes, before["fs"].get(name, {}), is_now, written))
    lines.extend(content and content.line for content in contents)
    known = [line for line in lines if line is not None]
    shown = sum(content.shown for content in contents if content)
    return known if len(known) == len(lines) <= FACTS and shown <= LONGEST else None


def in_file(prompt: str, file: str) -> str | None:
    """Reword a prompt that asks for an output, so that it asks for the same in a file.

    This is for judges that read only files. None if the prompt does not ask for an output in the
    wording of `compose_prompt`.
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


def compose_prompt(
    *, user: str, cwd: str, kind: str, state: Sequence[str], asked: str | None
) -> str:
    """Return the complete prompt.

    `kind` is the sentence of `family`, `state` are the lines of `describe_goal`, and `asked` is the
    output to print (None: any).
    """
    parts = [_PROMPT["begin"].format(user=user, cwd=word(cwd))]
    if state:
        parts[0] += f" {kind}"
        parts.append(_PROMPT["state"])
        parts.append("\n".join(f"- {line}" for line in state))
        if asked is not None:
            parts.append(f"{_PROMPT['and_prints']}{asked}")
    elif asked is not None:
        parts.append(f"{_PROMPT['print']}{asked}")
        parts.append(f"{_PROMPT['alone']}{_PROMPT['nothing']}")
    lines = [line.partition("\n")[0] for line in (*state, asked or "")]
    words = [word for line in lines for word in re.findall("`[^`]*`", line)]
    if words:
        is_quoted = any("'" in word for word in (*words, word(cwd)))
        end = _PROMPT["quoted"] if is_quoted else ""
        parts.append(_PROMPT["relative"].format(cwd=word(cwd)) + end)
    return "\n\n".join(parts)


def is_worded(prompt: str) -> bool:
    """Whether a prompt describes its goal in the wording of `compose_prompt`."""
    begins = (_PROMPT["state"], _PROMPT["print"], _PROMPT["and_prints"])
    return any(line.startswith(begins) for line in prompt.splitlines())


def like(how: str, name: str, **values: object) -> Content:
    """Describe a content without showing it; `how` is the key of a sentence in `contents`."""
    return Content(ENGLISH["contents"][how].format(name=file_word(name), **values))


def describe_content(name: str, text: str, *, added: bool = False) -> Content:
    """Show a content; with `added`, only the part after the old content."""
    if not text:
        return like("empty", name)
    end = ENGLISH["contents"]["newline" if text.endswith("\n") else "no_newline"]
    told = like("added" if added else "whole", name, end=end, **_fenced(text.removesuffix("\n")))
    return Content(told.line, len(text))


def number_of(count: int, noun: str) -> str:
    """Return a count and its noun, in the plural unless the count is 1: `3 bytes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def minute(entry: Mapping[str, Any]) -> str:
    """Return a file's modification time, as `2025-09-30 15:15 UTC`."""
    year, month, day, time = date_of(entry)
    return f"{year}-{MONTHS.index(month) + 1:02}-{day:02} {time} UTC"


def mode(perms: str) -> str:
    """Return permissions in octal and in letters, without the letter for the kind of file."""
    return f"{mode_of(perms):04o} ({perms[1:]})"


def _fenced(text: str) -> dict[str, str]:
    longest = max(map(len, re.findall("`+", text)), default=0)
    return {"text": text, "fence": "`" * max(3, longest + 1)}


def _whole_file(fact: Fact, is_now: IsNow) -> str:
    name = file_word(fact.names[0])
    if fact.code == "m":
        return _FILES["moved"].format(name=name, moved_to=file_word(str(fact.moved_to)))
    if fact.code == "r":
        return _FILES["gone"].format(name=name)
    return _entry(fact.names[0], fact.value, is_now)


def _entry(name: str, entry: Mapping[str, Any], is_now: IsNow) -> str:
    """Return the line with everything that a prompt states about a new file."""
    perms, parts = str(entry["perms"]), ENGLISH["entry"]
    kind = ENGLISH["types"][perms[0]].format(target=file_word(str(entry.get("target") or "")))
    said = [] if perms[0] == "l" else [parts["perms"].format(perms=mode(perms))]
    said += [parts[key].format(**{key: entry[key]}) for key in ("owner", "group")]
    if perms[0] == "-":
        said.append(parts["size"].format(size=number_of(entry["size"], "byte")))
    if perms[0] != "d" and entry["links"] > 1:
        said.append(parts["links"].format(links=number_of(entry["links"], "hard link")))
    if not (perms[0] == "d" or is_now(date_of(entry))):
        said.append(parts["date"].format(date=minute(entry)))
    return str(parts["begin"].format(name=file_word(name), kind=kind)) + ", ".join(said)


def _changes(
    name: str, attributes: Mapping[str, Any], was: Mapping[str, Any], is_now: IsNow, written: bool
) -> Iterator[str]:
    """Yield lines for the changes of an existing file.

    `written`: another line describes the content. Then a time of the session needs no line.
    """
    entry = {**was, **attributes}
    kind = str(entry.get("perms", "-"))[0]
    if kind != str(was.get("perms", kind))[0]:
        yield _entry(name, entry, is_now)
        return
    what = _FILES["itself"].format(name=file_word(name)) if kind == "l" else f"`{file_word(name)}`"
    values: dict[str, Callable[[Any], str]] = {
        "perms": mode, "owner": str, "group": str, "target": file_word,
        "links": lambda count: number_of(count, "hard link"),
        "size": lambda count: number_of(count, "byte"),
    }  # fmt: skip
    untold = {"-": set(), "d": {"links", "size"}, "l": {"perms", "size"}}.get(kind, {"size"})
    for key, text in values.items():
        if key in attributes and key not in untold:
            yield _FILES[key].format(what=what, **{key: text(attributes[key])})
    dates = set(DATES) & set(attributes)
    if dates and kind != "d":
        if not is_now(date_of(entry)):
            yield _FILES["date"].format(what=what, date=minute(entry))
        elif dates == set(attributes) and not written:
            yield _FILES["now"].format(what=what)


# ---- facts outside the file system


def _outside(before: Mapping[str, Any], fact: Fact) -> list[str | None]:
    """Return the lines for a fact outside the file system; `[None]` if there is no wording."""
    if fact.code == "m":
        return [None]
    if fact.area == "hostname":
        return [ENGLISH["machine"]["hostname"].format(value=word(str(fact.value)))]
    if fact.area in ("network", "firewall"):
        return _of_machine(before, fact)
    if fact.area == "cwd":
        return [ENGLISH["shell"]["cwd"].format(value=file_word(str(fact.value)))]
    if fact.area == "umask":
        return [ENGLISH["shell"]["umask"].format(value=fact.value)]
    return [_of_shell(fact) if len(fact.names) == 1 else None]


def _of_shell(fact: Fact) -> str | None:
    """Return the line for a fact about a named value of the shell."""
    texts, name, value = ENGLISH["shell"], fact.names[0], fact.value
    if fact.code == "r":
        text = ENGLISH["unset"].get(fact.area)
        return None if text is None else str(text.format(name=word(name)))
    if isinstance(value, bool):
        state = "on" if value else "off"
        return str(texts["option"].format(name=word(name.removeprefix("-o ")), value=state))
    if fact.area not in texts or not isinstance(value, str):
        return None
    if fact.area == "functions":
        return str(texts["functions"].format(name=word(name), **_fenced(value)))
    if fact.area == "limits":
        return str(texts["limits"].format(name=name, value=value))
    key = "declared" if fact.area == "settings" and value.startswith("declare ") else fact.area
    return str(texts[key].format(name=word(name), value=word(value)))


def _of_machine(before: Mapping[str, Any], fact: Fact) -> list[str | None]:
    """Return the lines for a fact about the network or the firewall."""
    texts, value = ENGLISH["machine"], fact.value
    if fact.code == "r":
        return [_place(fact, ENGLISH["gone"])]
    place = _place(fact, ENGLISH["places"])
    if not isinstance(value, list):
        said = f"`{entry_text(value)}`" if isinstance(value, str) else json.dumps(value)
        return [texts["value"].format(place=place, value=said)]
    old = fact.before(before)
    was = old if isinstance(old, list) else []
    lines: list[str | None] = [
        texts[how].format(value=entry_text(str(line)), place=place)
        for how, lines, others in (("lacks", was, value), ("has", value, was))
        for line in lines
        if line not in others
    ]
    return lines or [None]


def entry_text(text: str) -> str:
    """Return a value of the machine for use between backquotes: literal if possible."""
    return text if _is_shown(text) else word(text)


def _place(fact: Fact, places: Mapping[str, str]) -> str:
    """Return the text for a place in the machine's values."""
    keys = (fact.area, *fact.names)
    for form, text in places.items():
        parts = form.split(" ")
        if len(parts) == len(keys):
            pairs = list(zip(parts, keys, strict=True))
            if all(part in (key, "{}") for part, key in pairs):
                return str(text.format(*(key for part, key in pairs if part == "{}")))
    return str(places["other"].format(" ".join(keys)))


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
The user's message describes a task on a Linux machine. Ask for the same as a colleague would, in \
one to three sentences of plain English. Mention the purpose if it is easy to guess. Do not name \
any command, option or flag. Do not repeat the contents of files, because they are listed \
elsewhere. Reply with only these sentences.
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

    A reply that is empty or reveals the solution (`reveals_solution`) is dropped. Replies are
    stored in the file `replay` (None: a file in the user's cache directory), and reused the next
    time. `url` is the endpoint's address. Errors: those of `checked_endpoint` and `Endpoint.reply`.
    """
    tasks = list(tasks)
    kept = ReplyFile(replay or cache_directory() / "prompts.jsonl")
    endpoint = checked_endpoint(url)
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
        tells = not said or reveals_solution(said, task.solution)
        done.append(task if tells else replace(task, prompt=f"{said}\n\n{task.prompt}"))
        report(number, len(tasks))
    return done


def checked_endpoint(url: str) -> Endpoint:
    """Return the checked endpoint for `rephrased`. Errors: those of `Endpoint.check`."""
    endpoint = Endpoint("writing prompts", url)
    endpoint.check()
    return endpoint


def reveals_solution(said: str, solution: str) -> bool:
    """Whether a text holds an option of the solution, or two words of the solution in a row."""
    words = {word.strip("`'\"().,;:") for word in said.split()}
    given = solution.split()
    options = {word for word in given if word.startswith("-") and len(word) > 1}
    return bool(options & words) or any(f"{one} {next_}" in said for one, next_ in pairwise(given))
