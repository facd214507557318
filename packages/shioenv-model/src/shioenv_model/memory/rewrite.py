"""Rewriting of a neighbour's behavior: words and files become those of the queried command.

`ours` is the queried command, `theirs` the executed command of the neighbour. Words, paths, sizes,
owners, dates and contents are replaced. Everything else in an answer is copied from the neighbour,
and may be wrong.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from shioenv.domain.context import KEPT, OF_DATE, FileEntry, keys, pointer
from shioenv_model.bash.arithmetic import count as count_of
from shioenv_model.bash.work import COPIED, spend
from shioenv_model.composition.changes import attributes
from shioenv_model.memory.facts import Operand, Tree
from shioenv_model.memory.forms import UNKNOWN, Form
from shioenv_model.memory.translation import Translation

WORDS, DETAILS, CONTENTS, COUNTS, INDUCED = 0, 1, 2, 3, 4
"""Methods of rewriting, by what they replace.

- WORDS: words and paths.
- DETAILS: also file attributes, and printed file contents.
- CONTENTS: like DETAILS, but the output consists of lines of the queried files.
- COUNTS: words, paths, and the number of bytes, lines, words and characters of files.
- INDUCED: no rewriting; a function induced from examples made the whole answer.
"""

_COUNTED = frozenset({"size", "lines", "words", "characters"})

_FILES = "fdls"
_NAMES = "fdlsmM"
_THROUGH = ("owner", "group", "perms")
"""Attributes that commands set recursively in a directory."""

_LONGEST = 256 * 1024


@dataclass(frozen=True)
class Taken:
    """A parsed command with its operands resolved in the state where it runs."""

    form: Form
    operands: tuple[Operand, ...]
    here: tuple[str, ...] | None = None
    """The names in the working directory, for a command without operands."""
    valued: tuple[tuple[str, Operand], ...] = ()
    """Options whose values name files, each with its value as an operand."""
    tree: Tree | None = field(default=None, compare=False)
    """The contents of the working directory."""
    from_file: bool = field(default=False, compare=False)
    """Whether standard input is a file after `<`, not a pipe."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The recorded behavior of an executed input, as a memory stores it."""

    exit_code: int
    output: str
    """The output, with undecodable bytes as lone surrogates."""
    patch: str
    """The patch as JSON, in the form of records."""
    channels: tuple[str, str] | None = None
    """Standard output and error if both are non-empty, else None (see `is_error`)."""
    is_error: bool = False
    """Whether all output is on standard error."""
    volatile: bool = False

    @property
    def key(self) -> tuple[int, str, str]:
        """Exit code, output and patch: equal keys are equal answers."""
        return self.exit_code, self.output, self.patch


def fillings(
    ours: Taken,
    theirs: Taken,
    kept: Kept,
    before: Mapping[str, Any],
    was: Mapping[str, Any],
    translation: Translation | None = None,
) -> Iterator[tuple[int, Kept]]:
    """Rewrite a neighbour's behavior for our command in one to four ways, and name the methods.

    `kept` is the neighbour's behavior. `before` is `fs` before our command, `was` is `fs` before
    theirs. `translation` is from their machine to ours; None for the same machine.
    """
    pairs = _Pairs(ours, theirs, was)
    if translation is not None:
        pairs.translate(translation, kept)
    if not pairs.words and not pairs.files and translation is None:
        yield WORDS, kept
        return
    words = _filled(kept, pairs, before, WORDS)
    details = _filled(kept, pairs, before, DETAILS) if pairs.files else words
    if not pairs.changed or details.key == words.key:
        yield WORDS, words
    if not pairs.files:
        return
    if details.key != words.key:
        yield DETAILS, details
    counts = _filled(kept, pairs, before, COUNTS)
    if counts.key not in (words.key, details.key):
        yield COUNTS, counts
    output = _by_content(ours, theirs, kept)
    if output is not None and output not in (words.output, details.output, counts.output):
        yield CONTENTS, replace(details, output=output, channels=None)


class _Pairs:
    """The replacements: words, paths and files of their command, each with ours."""

    def __init__(self, ours: Taken, theirs: Taken, was: Mapping[str, Any]) -> None:
        self.was = was
        """`fs` before their command."""
        self.words: dict[str, str] = {}
        self.paths: dict[str, str] = {}
        """Paths, as keys of `fs`."""
        self.names: dict[str, str] = {}
        """Base names of paths."""
        self.made: set[str] = set()
        """Paths of their command that did not exist. They may be prefixes of files that the command
        creates, as with `split`."""
        self.files: list[tuple[Operand, Operand]] = []
        """Existing files: theirs and ours."""
        self.changed = False
        """Whether one of our files has the same path as theirs, but other contents or
        attributes."""
        self.models: list[tuple[Operand, Operand]] = []
        """Reference files named by options, whose attributes are copied (`--reference`)."""
        self.translation: Translation | None = None
        self.other: dict[str, str] = {}
        """Names and instants of their machine, each with its equivalent on our machine."""
        self._said = {value for _, value in ours.form.options}
        self._said |= {each.word for each in ours.operands}
        if ours.form.command != theirs.form.command:
            self._add(theirs.form.command, ours.form.command)
        for our, their in zip(ours.operands, theirs.operands, strict=False):
            if our != their or our.kind == "x":
                self._operand(our, their)
                self.changed |= bool(our.path) and our.path == their.path
        self._options(ours.form, theirs.form)
        mine = dict(ours.valued)
        for name, their in theirs.valued:
            if name in mine and mine[name] != their:
                self._operand(mine[name], their)
                self.models.append((their, mine[name]))

    def translate(self, translation: Translation, kept: Kept) -> None:
        """Also replace names and instants of their machine, except for words of our command."""
        self.translation = translation
        self.other = self.renamed(kept.output)

    def renamed(self, text: str) -> dict[str, str]:
        """Return the names and instants of their machine in a text, each with ours."""
        found = self.translation.words(text) if self.translation else {}
        return {old: new for old, new in found.items() if old not in self._said}

    def dates(self, made: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return our file's date (four attributes), given the attributes `made` of their file.

        If their date was copied from a named file, ours is copied from the corresponding file. Any
        other date is kept, and translated if the machines differ.
        """
        for their, our in (*self.models, *self.files):
            old, new = _values(their), _values(our)
            if "time" in new and all(made[name] == old.get(name) for name in OF_DATE):
                return {name: new[name] for name in OF_DATE}
        if self.translation is not None:
            return self.translation.dates(made)
        return {name: made[name] for name in OF_DATE}

    def _add(self, old: str, new: str) -> None:
        if old and old != new:
            self.words.setdefault(old, new)

    def _operand(self, our: Operand, their: Operand) -> None:
        if our.kind == "x":
            self._standard_input(our, their)
            return
        self._add(their.word, our.word)
        for mark in "=:":  # key=value, user:group
            if mark in our.word and mark in their.word:
                for old, new in zip(their.word.split(mark), our.word.split(mark), strict=False):
                    self._add(old, new or old)
        if "N" in our.kind + their.kind and our.key and their.key:  # a number may name a file
            self.paths[their.key] = our.key
        if their.kind not in _NAMES or our.kind not in _NAMES or not our.path or not their.path:
            return
        if our.kind == their.kind == "M":
            self._parents(our.key, their.key)
        self._add(their.path, our.path)
        self._add(their.key, our.key)
        self._add(their.word.rstrip("/"), our.word.rstrip("/"))
        last, by = posixpath.basename(their.path), posixpath.basename(our.path)
        if len(last) > 1:
            self._add(last, by)
            self.names[last] = by
        above, above_ours = posixpath.dirname(their.word), posixpath.dirname(our.word)
        if len(above) > 1:
            self._add(above, above_ours or ".")
        self.paths[their.key] = our.key
        if their.kind in "mM":
            self.made.add(their.key)
        if their.kind in _FILES and our.kind in _FILES:
            self.files.append((their, our))

    def _parents(self, our: str, their: str) -> None:
        """Pair the missing parent directories of two missing files."""
        while "/" in our.strip("/") and "/" in their.strip("/"):
            our, their = posixpath.dirname(our), posixpath.dirname(their)
            self.paths.setdefault(their, our)
            self._add(their, our)

    def _standard_input(self, our: Operand, their: Operand) -> None:
        """Pair our standard input with their file, whose name is removed from the output."""
        if their.kind in "flx":
            self.files.append((their, our))
        if their.kind in "fl":
            self.words[f" {their.word}"] = ""
            self.words[f"{their.word}:"] = ""

    def _options(self, ours: Form, theirs: Form) -> None:
        mine = [option for option in ours.options if option not in theirs.options]
        for name, value in theirs.options:
            if (name, value) in ours.options:
                continue
            match = next((option for option in mine if option[0] == name), None)
            if match is None or value is None or match[1] is None:
                continue
            mine.remove(match)
            if name == UNKNOWN:
                self._add(f"'{value[:1]}'", f"'{match[1][:1]}'")
                self._add(f"-{value}: invalid option", f"-{match[1][:1]}: invalid option")
                self._add(f"-{value}", f"-{match[1]}")
            else:
                self._add(value, match[1])


def _filled(kept: Kept, pairs: _Pairs, before: Mapping[str, Any], how: int) -> Kept:
    changed = dict(pairs.words)
    contents: list[tuple[str, str]] = []
    if how != WORDS:
        for their, our in pairs.files:
            if (
                how == DETAILS
                and their.content
                and our.content is not None
                and len(their.content) > 8
            ):
                contents.append((_decoded(their.content), _decoded(our.content)))
            facts = our.details
            for name, value in their.details.items():
                told = name == "size" or (name in _COUNTED) == (how == COUNTS)
                if told and name in facts and value != facts[name]:
                    changed.setdefault(value, facts[name])
    for old, new in pairs.other.items():
        changed.setdefault(old, new)
    output = kept.output
    held: list[str] = []
    for old, new in contents:
        times = output.count(old)
        spend((len(output) + times * len(new)) // COPIED)
        if times:
            output = output.replace(old, f"\0{len(held)}\0")
            held.append(new)
    output = replace_words(output, changed)
    for number, text in enumerate(held):
        output = output.replace(f"\0{number}\0", text)
    if kept.channels is None:
        channels = None
    else:
        channels = (
            replace_words(kept.channels[0], changed),
            replace_words(kept.channels[1], changed),
        )
    patch = kept.patch if kept.patch == "[]" else _patch(kept.patch, pairs, changed, before)
    return replace(kept, output=output[:_LONGEST], patch=patch, channels=channels)


def replace_words(text: str, changed: Mapping[str, str]) -> str:
    """Replace words in a text, all at once, and only at word boundaries."""
    spend(1 + len(changed) * len(text) // COPIED)
    found = [old for old in changed if old in text]
    if not found:
        return text
    # no pattern is compiled, since each neighbour would need a different one
    places = [(place, -len(old), old) for old in found for place in _places(old, text)]
    made: list[str] = []
    done = 0
    for place, _, old in sorted(places):
        if place >= done:
            spend(1 + len(changed[old]) // COPIED)
            made += (text[done:place], changed[old])
            done = place + len(old)
    return "".join(made) + text[done:]


_JOINED = re.compile(r"[\w.\-/~@%+]")
_GOES_ON = re.compile(r"[\w@%+]|[.\-/]\w")


def _places(old: str, text: str) -> Iterator[int]:
    """Yield the positions of a string in a text, at word boundaries."""
    begins, ends = _JOINED.match(old), _JOINED.match(old, len(old) - 1)
    place = text.find(old)
    while place >= 0:
        joined = begins and place and _JOINED.match(text, place - 1)
        if not joined and not (ends and _GOES_ON.match(text, place + len(old))):
            yield place
        place = text.find(old, place + 1)


def _patch(
    source: str, pairs: _Pairs, changed: Mapping[str, str], before: Mapping[str, Any]
) -> str:
    """Rewrite the patch (JSON) with operations in their original order; the caller sorts them."""
    made: list[list[Any]] = []
    operations = json.loads(source)
    afterwards = _afterwards(operations, pairs)
    told: set[str] = set()
    through = _through(operations, pairs, changed, before)
    for each in through:
        made += each.made
    for operation in operations:
        code, path, *rest = operation
        area, *names = keys(path)
        if area != "fs":
            names = [changed.get(name, name) for name in names]
            rest = [
                replace_words(each, {**pairs.renamed(each), **changed})
                if isinstance(each, str)
                else each
                for each in rest
            ]
            made.append([code, pointer(area, *names), *rest])
            continue
        was = names[0]
        if any(each.name in names[1:] and was in each.theirs for each in through):
            continue
        names[0] = _key(was, pairs)
        if code == "m":
            target = _key(keys(rest[0])[1], pairs)
            made.append([code, pointer("fs", *names), pointer("fs", target)])
            continue
        if rest and isinstance(rest[0], dict):
            rest = [_entry(rest[0], pairs, changed)]
        elif len(names) == 2 and names[1] in afterwards.get(was, ()):
            known = before.get(names[0], {})
            made += [
                [code, pointer("fs", names[0], name), value]
                for name, value in afterwards[was].items()
                if was not in told and known.get(name) != value
            ]
            told.add(was)
            continue
        elif rest and len(names) == 2:
            rest = [_attribute(names[1], rest[0], was, pairs, changed)]
            known = before.get(names[0])
            if code == "=" and known is not None and known.get(names[1]) == rest[0]:
                continue
        made.append([code, pointer("fs", *names), *rest])
    made = _with_trees(made, before)
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


def _afterwards(operations: list[list[Any]], pairs: _Pairs) -> dict[str, Mapping[str, Any]]:
    """Return new attributes for our files, by the key of the corresponding file in their patch.

    A patch has only the changed attributes of their file; on ours, others may change. If another
    file replaced the file (`mv`), return all attributes that the other file keeps. Otherwise return
    the four attributes of the date, if any of them changed.
    """
    found: dict[str, Mapping[str, Any]] = {}
    for key, changed in attributes(operations).items():
        if key not in pairs.was:
            continue
        after = {**pairs.was[key], **changed}
        same = _taken_over(key, after, pairs)
        if same is not None:
            found[key] = same
        elif changed.keys() & set(OF_DATE):
            found[key] = pairs.dates(after)
    return found


def _taken_over(key: str, after: Mapping[str, Any], pairs: _Pairs) -> Mapping[str, Any] | None:
    """Return the attributes that our file keeps when it replaces another one, as by `mv`.

    `after` has the attributes of their file `key` afterwards. None if none of their files replaced
    it.
    """
    for their, our in pairs.files:
        old, new = _values(their), _values(our)
        if (
            their.key != key
            and "time" in new
            and all(after[each] == old.get(each) for each in KEPT)
        ):
            return {each: new[each] for each in KEPT}
    return None


@dataclass(frozen=True)
class _Whole:
    """One attribute, `name`, set recursively in a directory."""

    theirs: frozenset[str]
    """The keys of their directory and of everything in it."""
    name: str
    made: list[list[Any]]
    """The operations that set the attribute in our directory."""


def _through(
    operations: list[list[Any]],
    pairs: _Pairs,
    changed: Mapping[str, str],
    before: Mapping[str, Any],
) -> list[_Whole]:
    """Return operations that set owner, group or permissions recursively, as theirs did.

    Their command is assumed to be recursive if afterwards everything in their directory has the
    same owner, group or permissions.
    """
    told: dict[str, dict[str, Any]] = {}
    for key, changes in attributes(operations).items():
        for name, value in changes.items():
            if name in _THROUGH:
                told.setdefault(name, {})[key] = value
    found: list[_Whole] = []
    for their, our in pairs.files if told else ():
        if their.kind != "d" or our.kind != "d":
            continue
        inside, ours = _tree(their.key, pairs.was), _tree(our.key, before)
        for name, values in told.items():
            letters = 1 if name == "perms" else 0  # the first letter is the file type
            all_of_it = {values.get(key, entry[name])[letters:] for key, entry in inside.items()}
            if len(all_of_it) > 1 or not values.keys() & inside.keys() - {their.key}:
                continue
            (value,) = all_of_it
            value = value if letters else changed.get(value, value)
            made = [
                ["=", pointer("fs", key, name), entry[name][:letters] + value]
                for key, entry in ours.items()
                if entry[name][letters:] != value
            ]
            found.append(_Whole(frozenset(inside), name, made))
    return found


def _tree(key: str, files: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a directory and its contents, except links, which have no mode."""
    above = "" if key == "." else f"{key}/"
    return {
        name: entry
        for name, entry in files.items()
        if (name == key or (name.startswith(above) and not (key == "." and name[0] in "./")))
        and entry["perms"][0] != "l"
    }


def _with_trees(made: list[list[Any]], before: Mapping[str, Any]) -> list[list[Any]]:
    """Return the operations; if their command removed a whole directory, all of ours is removed."""
    removed = [keys(each[1])[1] for each in made if each[0] == "r" and each[1].count("/") == 2]
    if not any(name.startswith(f"{above}/") for above in removed for name in removed):
        return made
    outer = [name for name in removed if before.get(name, {}).get("perms", "").startswith("d")]
    inside = tuple(f"{name}/" for name in outer)
    kept = [
        each
        for each in made
        if each[0] != "r" or each[1].count("/") > 2 or not keys(each[1])[1].startswith(inside)
    ]
    return kept + [["r", pointer("fs", name)] for name in before if name.startswith(inside)]


def _key(key: str, pairs: _Pairs) -> str:
    """Return the key of our file that corresponds to their file."""
    if key in pairs.paths:
        return pairs.paths[key]
    for old, new in pairs.paths.items():
        if key.startswith(f"{old}/"):
            key = f"{new}{key[len(old) :]}"
            break
        if key.startswith((f"{old}.", f"{old}~")) or (old in pairs.made and key.startswith(old)):
            return f"{new}{key[len(old) :]}"
        if old.startswith(f"{key}.") and new.endswith(old[len(key) :]):
            return new[: len(key) - len(old)]
    above, mark, last = key.rpartition("/")
    last = pairs.names.get(last, last)
    return f"{pairs.paths.get(above, above)}{mark}{last}".removeprefix("./")


def _entry(entry: dict[str, Any], pairs: _Pairs, changed: Mapping[str, str]) -> dict[str, Any]:
    """Rewrite the entry of a created file, with our files' values in place of theirs."""
    made = {**entry, **pairs.dates(entry)}
    if "target" in made:
        made["target"] = changed.get(made["target"], replace_words(made["target"], changed))
        if made.get("size") == len(entry["target"]):
            made["size"] = len(made["target"].encode("utf-8", "surrogateescape"))
        return made
    for their, our in pairs.files:
        old, new = _values(their), _values(our)
        for name in ("size", "perms", "owner", "group"):
            if name in old and name in new and made.get(name) == old[name]:
                made[name] = new[name]
    if pairs.translation is not None:
        for name in ("owner", "group"):
            if made[name] == entry[name]:
                made[name] = pairs.translation.names.get(made[name], made[name])
    return made


def _attribute(name: str, value: Any, key: str, pairs: _Pairs, changed: Mapping[str, str]) -> Any:
    for their, our in (*pairs.models, *pairs.files):
        old, new = _values(their), _values(our)
        if (their, our) in pairs.models and name == "perms" and old.get(name, "")[1:] == value[1:]:
            return _same_kind(new[name], value)
        if their.key == key and name == "perms" and name in new:
            return _same_kind(value, new[name])
        if name in new and old.get(name) == value:
            return new[name]
    return changed.get(value, value) if isinstance(value, str) else value


def _same_kind(perms: str, ours: str) -> str:
    """Return permissions `perms` with the first letter, the file type, of `ours`."""
    return ours[:1] + perms[1:]


def _values(operand: Operand) -> dict[str, Any]:
    if isinstance(operand.entry, FileEntry):
        return operand.entry.to_json()
    return {"size": len(operand.content)} if operand.content is not None else {}


def _by_content(ours: Taken, theirs: Taken, kept: Kept) -> str | None:
    """Derive our output if theirs consists of lines of its files; else None.

    Their output has all lines, the first, the last, or the lines with or without one of the
    command's words. Ours is the same selection from our files.
    """
    read, text = _text(theirs), _text(ours)
    if not read or text is None or not kept.output or kept.exit_code or kept.is_error:
        return None
    lines, mine = read.splitlines(keepends=True), text.splitlines(keepends=True)
    shown = kept.output.splitlines(keepends=True)
    count = len(shown)
    if shown == lines:
        return text
    wanted = _count(ours, theirs, count)
    if wanted is not None and shown == lines[:count]:
        return "".join(mine[:wanted])
    if wanted is not None and shown == lines[len(lines) - count :]:
        return "".join(mine[max(0, len(mine) - wanted) :])
    for our, their in zip_longest(ours.operands, theirs.operands):
        if our is None or their is None or their.kind in _FILES or not their.word:
            continue
        for holds in (True, False):
            if shown == [line for line in lines if (their.word in line) == holds]:
                found = [line for line in mine if (our.word in line) == holds]
                return "".join(found) if found else None
    return None


def _count(ours: Taken, theirs: Taken, count: int) -> int | None:
    """Return the number of lines that our command prints if theirs printed `count`, or None."""
    values = dict(ours.form.options)
    for name, value in theirs.form.options:
        if value == str(count):
            own = values.get(name)
            return None if own is None else count_of(own)
    return count if ours.form.options == theirs.form.options else None


def _text(taken: Taken) -> str | None:
    """Return the concatenated contents of a command's files; None if one is unknown."""
    files = [each for each in taken.operands if each.kind in "fdlsx"]
    if not files or any(each.content is None for each in files):
        return None
    return "".join(_decoded(each.content or b"") for each in files)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
