"""Rewriting arbitrary inputs so that every name in them exists on a given system."""

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
from shioenv.grammar.spelling import SHOWN, SUBSTITUTION, VARIABLE, received_form
from shioenv.seeding import generator
from shioenv.system.store import System
from shioenv_eval.adapting.replacement_names import SystemNames
from shioenv_eval.adapting.roles import roles_of
from shioenv_eval.adapting.unfit import unfit
from shioenv_eval.places import PlacedWord, Places, read_places

LONGEST = 4096
"""Maximum length in bytes of an input that is adapted; longer inputs are set aside."""

ATTEMPTS = 5
"""Maximum number of attempts to draw an adaptation that is not a duplicate."""


@cache
def placeholder_table() -> Mapping[str, Mapping[str, Any]]:
    """Return the table of generic words.

    Each entry has the word's `about`, and the `values` or system `tokens` that replace it.
    """
    path = files("shioenv_eval").joinpath("adapting/placeholders.toml")
    return parse_toml(path.read_bytes())


_NAMES = "|".join(sorted(placeholder_table(), key=len, reverse=True))
_PLACEHOLDER = re.compile(rf"(?<![A-Za-z0-9_])(?:{_NAMES})(?![A-Za-z0-9_])")
"""A generic word anywhere in a text."""
_WHOLE = re.compile(rf"(?<![^\s=:;|&(<>])(?:\[({_NAMES})\]|({_NAMES}))(?![^\s:;|&)<>])")
"""A separate generic word: a whole word, the text after `=`, or either side of `:`."""
_QUOTED = re.compile(rf"([^\"']*=)?(\"(?:{_NAMES})\"|'(?:{_NAMES})')")
"""A quoted generic word, optionally after `=`: `--name="Regex"`."""
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
"""Variables that every Bash sets."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """Adapted inputs, and inputs that were set aside."""

    questions: tuple[Question, ...]
    """The adapted inputs, each with its start directory.

    `template` in `extra` is the id of the original input.
    """
    aside: tuple[tuple[Question, str], ...]
    """The inputs that were set aside, each with the reason."""

    @property
    def reasons(self) -> dict[str, int]:
        """The number of inputs set aside for each reason, the most frequent first."""
        return dict(Counter(reason for _, reason in self.aside).most_common())


def write_adapted(adapted: Adapted, path: Path) -> Path:
    """Write the adapted inputs to `path` and the others to a second file; return the second path.

    The second file is in the same directory: `inputs.aside.jsonl` for `inputs.jsonl`. Errors:
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
    """A position to fill with a name of the system; equal slots of a template get the same name."""

    role: str
    """A role, or a generic word of the table in brackets."""
    word: str
    """The original word at this position, as written."""


@dataclass(frozen=True, slots=True)
class _Template:
    question: Question
    names: SystemNames
    texts: tuple[tuple[str | _Slot, ...], ...]
    """The inputs of the history, then the input, each in pieces."""

    def drawn(self, random: Random) -> Question:
        """Return one adaptation, with every slot filled."""
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
        """Return shell text for a slot.

        It is in double quotes if the original word was, and the value permits it.
        """
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
            # replace the variable by another variable, not by a variable's name
            form = "${%s}" if slot.word.startswith("${") else "$%s"
            values = [form % value for value in values]
        return random.choice([value for value in values if value not in used] or values)


def adapt_inputs(
    questions: Iterable[Question],
    system: System,
    *,
    count: int | None = None,
    seed: int = 0,
    report: Callable[[int], None] = lambda done: None,
) -> Adapted:
    """Rewrite inputs for a system: replace names that the system lacks by names that it has.

    A file is replaced by a file of the same type. Directories, users, groups, hosts, interfaces,
    disks and process numbers are replaced by others of their kind. Generic words (`File`, `<file
    name>`, or `$FILE` if nothing sets it) are replaced by what they describe. All occurrences of a
    word in an input and its history get the same replacement. Names that the system has are kept,
    and so are new names whose directory exists. `sudo` is removed.

    Each input is adapted once, in order. With `count`, further rounds follow until there are
    `count` different inputs, or no new ones are found. If `count` is below the number of inputs,
    the first round ends early. The same `seed`, inputs and system give the same result. `report` is
    called with the number of adapted inputs.

    Inputs with placeholders of unknown meaning are set aside. Dangerous, endless, empty and too
    long inputs, and duplicates, are set aside too. Errors: UsageError for a count below 1,
    StartDirectoryError.
    """
    if count is not None and count < 1:
        raise UsageError(f"count {count}: expected at least 1")
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
            aside.append((question, "duplicate of an earlier input"))
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
    """Return an adaptation that is not in `seen` and add it there; None if none is found."""
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
    """Return the template of an input, or the reason to set the input aside."""
    texts = []
    known = {*names.variables, *_OF_BASH}
    roles: dict[str, str] = {}
    after = names  # the names after the text has run
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
        roles = {**roles_of(places), **roles}  # a word keeps its first meaning
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
    """Yield the files that an input creates, as the input names them.

    A name with an expansion (variable, substitution, brace) gives the part before the expansion,
    followed by `*`. A URL gives the last part of its path, or `index.html`.
    """
    for word, role in roles.items():
        text = received_form(word).translate(SHOWN)
        if role in ("new", "made"):
            name = re.split(f"[{VARIABLE}{SUBSTITUTION}{{]", text)[0]
            yield posixpath.normpath(name if name == text else f"{name}*") if name else "."
        elif role == "url":
            yield posixpath.basename(text.partition("?")[0]) or "index.html"


def _elsewhere(commands: Iterable[str], names: SystemNames) -> tuple[str, ...] | None:
    """Return the directories that commands may change into, including those of `names`.

    None if the working directory does not change.
    """
    found = names.elsewhere
    for command in commands:
        words = [received_form(word).translate(SHOWN) for word in split_words(command)]
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
    """Split a text into literal parts and slots; return the reason if a placeholder remains."""
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
        if role is None or SUBSTITUTION in received_form(written) or _is_set(written, known):
            continue
        if not names.fits(role, written):
            slots.append((word.start + start, word.end, _Slot(role, written)))
    for name, place in places.uses:
        if name not in known and not any(start <= place < end for start, end, _ in slots):
            return "unresolved: a variable that is never set"
    pieces: list[str | _Slot] = []
    end = 0
    for start, after, slot in sorted(slots, key=lambda found: found[0]):
        pieces += [text[end:start], slot]
        end = after
    pieces.append(text[end:])
    rest = "".join(part if isinstance(part, str) else "_" for part in pieces)
    if any(match[0] not in known for match in _PLACEHOLDER.finditer(rest)):
        return "unresolved: a placeholder inside a word"
    if _ELLIPSIS.search(rest):
        return "unresolved: an ellipsis"
    if re.search(r"(?<!\S)<[A-Za-z][\w -]*>", re.sub(r"'[^']*'|\"[^\"]*\"", "", rest)):
        return "unresolved: words in angle brackets"
    return tuple(part for part in pieces if part != "")


def _generic(text: str, start: int) -> list[tuple[int, int, _Slot]]:
    """Return the generic words in a word, each with its position in the text and its slot."""
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
    """Return the start and the role of a word, or of the value in it (`--file=x`, `-fx`, `if=x`).
    The role is None if neither has one.
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
    """Whether a word contains a variable that may be set, so that the word's value is unknown."""
    if VARIABLE not in received_form(word):
        return False
    names = {match[1] or match[2] for match in _VARIABLE.finditer(word)}
    return not names or not names.isdisjoint(known)


@cache
def _named() -> Mapping[str, str]:
    """Map alternative spellings (`filename`, `dir`, `n`) to the generic words of the table."""
    found = {}
    for name, entry in placeholder_table().items():
        found.update(dict.fromkeys((name.lower(), *entry.get("also", ())), name))
    return found


def _bracketed(match: re.Match[str]) -> str:
    """Return the generic word in brackets for `<file name>`; the match itself if none is known."""
    if match[1]:
        return match[1]
    words = re.findall(r"[a-z]+", match[2].lower())
    named = [_named()[word] for word in words if word in _named()]
    return f"[{named[0]}]" if named else match[0]


def _generic_variable(word: str, known: frozenset[str]) -> str | None:
    """Return the generic word that an unset variable represents, such as `$FILE`; else None."""
    match = _VARIABLE.fullmatch(word.strip('"'))
    name = match and (match[1] or match[2])
    return _named().get(name.lower()) if name and name not in known else None


def _of_variable(word: PlacedWord, generic: str) -> tuple[int, int, _Slot]:
    """Return the position and the slot of a word that is an unset variable, such as `"$FILE"`.

    If the generic word is itself about variables (`$variable`), only the variable's name is
    replaced. Otherwise the whole word is replaced.
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
