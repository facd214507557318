"""Anyone's inputs rewritten for a system, so that the system has what they name."""

from __future__ import annotations

import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

from shioenv.bash.words import split_words
from shioenv.dataset.questions import Question
from shioenv.errors import UsageError
from shioenv.files.documents import parse_toml
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.grammar.spelling import SHOWN, SUBSTITUTION, VARIABLE, plain
from shioenv.seeding import generator
from shioenv.system.store import System
from shioenv_eval.adapting.names import SystemNames
from shioenv_eval.adapting.roles import roles_of
from shioenv_eval.adapting.unfit import unfit
from shioenv_eval.places import PlacedWord, Places, read_places

LONGEST = 4096
"""Bytes of an input that is adapted, at most: nobody types more."""

ATTEMPTS = 5
"""How often an adaptation is drawn, until it is an input that was not made yet."""


@cache
def placeholder_table() -> Mapping[str, Mapping[str, Any]]:
    """By generic word: what it is `about`, and the `values` or system `tokens` it is drawn from."""
    path = files("shioenv_eval").joinpath("adapting/placeholders.toml")
    return parse_toml(path.read_bytes())


_NAMES = "|".join(sorted(placeholder_table(), key=len, reverse=True))
_PLACEHOLDER = re.compile(rf"(?<![A-Za-z0-9_])(?:{_NAMES})(?![A-Za-z0-9_])")
"""A generic word anywhere in a text."""
_WHOLE = re.compile(rf"(?<![^\s=:;|&(<>])(?:\[({_NAMES})\]|({_NAMES}))(?![^\s:;|&)<>])")
"""A generic word that stands alone: a whole word, what follows `=`, either side of `:`."""
_QUOTED = re.compile(rf"([^\"']*=)?(\"(?:{_NAMES})\"|'(?:{_NAMES})')")
"""A word that is a generic word in quotes, perhaps behind `=`: `--name="Regex"`."""
_ANGLES = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*"|\\.)|(?<![^\s=:])<([A-Za-z][\w -]*)>(?!\S)""")
"""Words in angle brackets outside of quotes, such as `<file name>`."""
_ELLIPSIS = re.compile(r"(?<!\S)(?:\.\.\.|…)(?!\S)")
_VARIABLE = re.compile(r"\$(?:(\w+|[@*])|\{(\w+|[@*])\})")
_OF_BASH = frozenset(
    (
        "_", "BASH", "BASHOPTS", "BASHPID", "BASH_COMMAND", "BASH_LINENO", "BASH_REMATCH",
        "BASH_SOURCE", "BASH_SUBSHELL", "BASH_VERSINFO", "BASH_VERSION", "COLUMNS", "DIRSTACK",
        "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD", "HISTFILE",
        "HISTSIZE", "HOME", "HOSTNAME", "HOSTTYPE", "IFS", "LINENO", "LINES", "LOGNAME", "MACHTYPE",
        "MAPFILE", "OLDPWD", "OPTARG", "OPTERR", "OPTIND", "OSTYPE", "PATH", "PIPESTATUS", "PPID",
        "PS1", "PS2", "PS4", "PWD", "RANDOM", "REPLY", "SECONDS", "SHELL", "SHELLOPTS", "SHLVL",
        "SRANDOM", "UID", "USER",
        "0", "$", "?", "!", "#", "-",
    )
)  # fmt: skip
"""Variables that every Bash has."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """Inputs as they were adapted, and inputs that were set aside."""

    questions: tuple[Question, ...]
    """The adapted inputs, each with its start directory.

    `template` in `extra` is the id of the input that an adapted one was made from.
    """
    aside: tuple[tuple[Question, str], ...]
    """The inputs that were set aside, each with the reason."""

    @property
    def reasons(self) -> dict[str, int]:
        """How many inputs were set aside for each reason, the most frequent first."""
        return dict(Counter(reason for _, reason in self.aside).most_common())


def write_adapted(adapted: Adapted, path: Path) -> Path:
    """Writes the adapted inputs to `path`, and those set aside to the path that is returned.

    The second file stands beside the first: `inputs.aside.jsonl` beside `inputs.jsonl`. Errors:
    DatasetStorageError.
    """
    lines = [question.to_json() for question in adapted.questions]
    aside = [{**question.to_json(), "reason": reason} for question, reason in adapted.aside]
    beside = path.with_suffix(f".aside{path.suffix}")
    for file, documents in ((path, lines), (beside, aside)):
        with storage_errors(path.parent):
            content = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in documents)
            atomic_write(file, content.encode("utf-8", "surrogatepass"))
    return beside


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place for a name of the system; equal slots of a template get the same name."""

    role: str
    """A role, or a generic word of the table in brackets."""
    word: str
    """The word that stood there, as it was written."""


@dataclass(frozen=True, slots=True)
class _Template:
    question: Question
    names: SystemNames
    texts: tuple[tuple[str | _Slot, ...], ...]
    """The inputs of the history, then the input, each in pieces."""

    def drawn(self, random: Random) -> Question:
        """One adaptation: every slot filled with a name."""
        values: dict[_Slot, str] = {}
        for slot in (part for text in self.texts for part in text if isinstance(part, _Slot)):
            if slot not in values:
                values[slot] = self._value(slot, random, list(values.values()))
        texts = [
            "".join(part if isinstance(part, str) else values[part] for part in text)
            for text in self.texts
        ]
        return replace(
            self.question, input=texts[-1], history=tuple(texts[:-1]), cwd=self.names.cwd
        )

    def _value(self, slot: _Slot, random: Random, used: list[str]) -> str:
        """Shell text for a slot, in double quotes where the word had them and the text bears it."""
        value = self._name(slot, random, used)
        if slot.word.startswith('"') and _VARIABLE.search(slot.word) and _BARE.fullmatch(value):
            return f'"{value}"'
        return value

    def _name(self, slot: _Slot, random: Random, used: list[str]) -> str:
        if not slot.role.startswith("["):
            return self.names.draw(slot.role, slot.word, random, used)
        entry = placeholder_table()[slot.role[1:-1]]
        values: list[str] = [*entry.get("values", ()), *self.names.values(entry.get("tokens", ()))]
        if "EnvVar" in entry.get("tokens", ()) and slot.word.startswith("$"):
            # another variable takes its place, not the name of one
            form = "${%s}" if slot.word.startswith("${") else "$%s"
            values = [form % value for value in values]
        return random.choice([value for value in values if value not in used] or values)


def adapt(
    questions: Iterable[Question],
    system: System,
    *,
    count: int | None = None,
    seed: int = 0,
    report: Callable[[int], None] = lambda done: None,
) -> Adapted:
    """Inputs rewritten for a system: names that the system lacks become names that it has.

    A file becomes a file of the same type. Directories, users, groups, hosts, interfaces, disks and
    process numbers become others of their kind. Generic words become what they are about: `File`,
    `<file name>`, `$FILE` where nothing sets it. A word becomes the same wherever it stands in an
    input and its history. A name that the system has stays. So does a new name that can be made
    where it stands. `sudo` is taken off.

    Each input is adapted once, in their order. With `count`, rounds follow until there are `count`
    different inputs, or no new ones come. A `count` below the number of inputs ends the first
    round. Drawing is by `seed`: the same for the same inputs and system. `report` is told how many
    inputs are made.

    Set aside are inputs with placeholders that stand for nothing in particular. So are dangerous,
    endless, empty and too long inputs, and those that equal an earlier one. Errors: UsageError for
    a count below 1, StartDirectoryError.
    """
    if count is not None and count < 1:
        raise UsageError(f"at least one input is made, not {count}")
    aside: list[tuple[Question, str]] = []
    made: list[Question] = []
    seen: set[tuple[object, ...]] = set()
    names = cache(lambda cwd: SystemNames.of(system, cwd))
    waiting: list[_Template] = []
    for question in questions:
        if count is not None and len(made) == count:
            break
        template = _template(question, names(question.cwd or system.declaration.start_directory))
        if isinstance(template, str):
            aside.append((question, template))
            continue
        adapted = _new(template, 0, seed, seen)
        if adapted is None:
            aside.append((question, "the same input as an earlier one"))
            continue
        made.append(adapted)
        waiting.append(template)
        report(len(made))
    turn = 0
    while count is not None and len(made) < count and waiting:
        turn += 1
        going_on = []
        for template in waiting:
            if len(made) < count and (adapted := _new(template, turn, seed, seen)) is not None:
                made.append(adapted)
                going_on.append(template)
                report(len(made))
        waiting = going_on
    return Adapted(tuple(made), tuple(aside))


def _new(
    template: _Template, turn: int, seed: int, seen: set[tuple[object, ...]]
) -> Question | None:
    """An adaptation that is not in `seen`, to which it is added; None where none is found."""
    for attempt in range(ATTEMPTS):
        identity = template.question.id
        question = template.drawn(generator(seed, "adapt", identity, turn, attempt))
        key = (question.cwd, question.history, question.input)
        if key not in seen:
            seen.add(key)
            extra = {**question.extra, "template": identity}
            name = identity if not turn else f"{identity}+{turn}"
            return replace(question, id=name, extra=extra)
    return None


def _template(question: Question, names: SystemNames) -> _Template | str:
    """The template of an input; the reason, where the input is set aside."""
    texts = []
    known = {*names.variables, *_OF_BASH}
    roles: dict[str, str] = {}
    after = names  # the names once a text has run
    for text in (*question.history, question.input):
        if len(text.encode("utf-8", "surrogateescape")) > LONGEST:
            return "too long"
        cleaned = _ANGLES.sub(_bracketed, text)
        places = read_places(cleaned)
        while places.sudo:
            cleaned = _without(cleaned, places.sudo)
            places = read_places(cleaned)
        if not cleaned.strip() or not (places.words or places.sets):
            return "empty"
        known |= places.sets
        roles = {**roles_of(places), **roles}  # a word means what it meant at first
        names = replace(
            after,
            made=after.made.union(_made(roles)),
            elsewhere=_elsewhere(places.commands[:-1], after),
        )
        pieces = _pieces(cleaned, places, names, frozenset(known), roles)
        after = replace(names, elsewhere=_elsewhere(places.commands[-1:], names))
        if isinstance(pieces, str):
            return pieces
        if (reason := unfit(cleaned, places)) is not None:
            return reason
        texts.append(pieces)
    return _Template(question, names, tuple(texts))


def _made(roles: Mapping[str, str]) -> Iterator[str]:
    """The files that an input makes, as the input names them.

    Of a name that holds a variable, substitution or brace, the part before it with a `*` behind. Of
    a URL, the last part of its path, or `index.html`.
    """
    for word, role in roles.items():
        text = plain(word).translate(SHOWN)
        if role in ("new", "made"):
            name = re.split(f"[{VARIABLE}{SUBSTITUTION}{{]", text)[0]
            yield posixpath.normpath(name if name == text else f"{name}*") if name else "."
        elif role == "url":
            yield posixpath.basename(text.partition("?")[0]) or "index.html"


def _elsewhere(commands: Iterable[str], names: SystemNames) -> tuple[str, ...] | None:
    """Directories that commands, and those before them, may go to; None where they stay."""
    found = names.elsewhere
    for command in commands:
        words = [plain(word).translate(SHOWN) for word in split_words(command)]
        if words and words[0] in ("cd", "pushd"):
            target = words[-1] if len(words) > 1 else "~"
            if target.startswith("~"):
                target = names.home + target[1:]
            bases = (names.cwd, *(found or ()))
            found = (*(found or ()), *(posixpath.normpath(posixpath.join(base, target))
                                       for base in bases))  # fmt: skip
    return found


def _pieces(
    text: str,
    places: Places,
    names: SystemNames,
    known: frozenset[str],
    roles: Mapping[str, str],
) -> tuple[str | _Slot, ...] | str:
    """A text in pieces; the reason for setting it aside, where a placeholder is left over."""
    slots: list[tuple[int, int, _Slot]] = []
    for word in places.words:
        if word.names_variable:
            continue
        slots += _generic(word.text, word.start)
        if slots and slots[-1][0] >= word.start:
            continue
        start, role = _role(word.text, roles)
        written = word.text[start:]
        if role is None and (generic := _generic_variable(word.text, known)) is not None:
            slots.append(_of_variable(word, generic))
            continue
        if role is None or SUBSTITUTION in plain(written) or _is_set(written, known):
            continue
        if not names.fits(role, written):
            slots.append((word.start + start, word.end, _Slot(role, written)))
    for name, place in places.uses:
        if name not in known and not any(start <= place < end for start, end, _ in slots):
            return "left over: a variable that nothing sets"
    pieces: list[str | _Slot] = []
    end = 0
    for start, after, slot in sorted(slots, key=lambda found: found[0]):
        pieces += [text[end:start], slot]
        end = after
    pieces.append(text[end:])
    rest = "".join(part if isinstance(part, str) else "_" for part in pieces)
    if any(match[0] not in known for match in _PLACEHOLDER.finditer(rest)):
        return "left over: a placeholder inside a word"
    if _ELLIPSIS.search(rest):
        return "left over: an ellipsis"
    if re.search(r"(?<!\S)<[A-Za-z][\w -]*>", re.sub(r"'[^']*'|\"[^\"]*\"", "", rest)):
        return "left over: words in angle brackets"
    return tuple(part for part in pieces if part != "")


def _generic(text: str, start: int) -> list[tuple[int, int, _Slot]]:
    """The generic words in a word, each with its place in the text and its slot."""
    found = []
    if quoted := _QUOTED.fullmatch(text):
        spans = [(quoted.span(2), quoted[2][1:-1])]
    elif "'" in text or '"' in text:
        spans = []
    else:
        spans = [(match.span(), match[1] or match[2]) for match in _WHOLE.finditer(text)]
    for (begin, end), name in spans:
        found.append((start + begin, start + end, _Slot(f"[{name}]", name)))
    return found


def _role(word: str, roles: Mapping[str, str]) -> tuple[int, str | None]:
    """Where the part of a word that has a role begins, and that role; None where none has one.

    The part is the whole word, or the value in it: `--file=x`, `-fx`, `if=x`, `of=x`.
    """
    sign = word.find("=")
    if word in roles or not (word.startswith("-") or word[:3] in ("if=", "of=")):
        return 0, roles.get(word)
    if word.startswith("--") or not word.startswith("-"):
        return (sign + 1, roles.get(word[sign + 1 :])) if sign > 0 else (0, None)
    for start in range(2, len(word)):
        if word[start:] in roles:
            return start, roles[word[start:]]
    return 0, None


def _is_set(word: str, known: frozenset[str]) -> bool:
    """Whether a word holds a variable that may have a value: what it names is unknown then."""
    if VARIABLE not in plain(word):
        return False
    names = {match[1] or match[2] for match in _VARIABLE.finditer(word)}
    return not names or not names.isdisjoint(known)


@cache
def _named() -> Mapping[str, str]:
    """Generic words of the table by other ways to write them: `filename`, `dir`, `n`."""
    found = {}
    for name, entry in placeholder_table().items():
        found.update(dict.fromkeys((name.lower(), *entry.get("also", ())), name))
    return found


def _bracketed(match: re.Match[str]) -> str:
    """The generic word in brackets that `<file name>` is about; the match itself where none is."""
    if match[1]:
        return match[1]
    words = re.findall(r"[a-z]+", match[2].lower())
    named = [_named()[word] for word in words if word in _named()]
    return f"[{named[0]}]" if named else match[0]


def _generic_variable(word: str, known: frozenset[str]) -> str | None:
    """The generic word that a variable without a value is about, as `$FILE` is; else None."""
    match = _VARIABLE.fullmatch(word.strip('"'))
    name = match and (match[1] or match[2])
    return _named().get(name.lower()) if name and name not in known else None


def _of_variable(word: PlacedWord, generic: str) -> tuple[int, int, _Slot]:
    """The place and the slot of a word that is a variable without a value, as `"$FILE"` is.

    A variable that is called so itself (`$variable`) becomes one that is set: only its name is
    replaced. Others are replaced by what they name, within the word's quotes.
    """
    if "EnvVar" not in placeholder_table()[generic].get("tokens", ()):
        return word.start, word.end, _Slot(f"[{generic}]", word.text)
    match = _VARIABLE.search(word.text)
    assert match is not None
    start, end = match.span()
    return word.start + start, word.start + end, _Slot(f"[{generic}]", match[0])


_BARE = re.compile(r"[\w./:@%+,=-]+")
"""Shell text that means the same in double quotes."""


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return text
