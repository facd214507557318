"""A memory of executed inputs: the honest baseline beside every model.

The record that is nearest to an input answers it, and where the two differ in words alone, these
are filled in. Nothing is learned: whoever does no better has memorised.
"""

from __future__ import annotations

import heapq
import json
import math
import posixpath
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shioenv.dataset.manifest import finished_manifest
from shioenv.dataset.read import read_records
from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input, Role, without_start
from shioenv.domain.patch import ContextPatch
from shioenv.domain.pointer import escape
from shioenv.domain.record import Record
from shioenv.domain.runner import Answer, State
from shioenv.errors import Abstained, InputError, PatchError, PredictorError
from shioenv.evaluation.metrics import Level
from shioenv.evaluation.predictor import Setting
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser
from shioenv.grammar.words import split_words
from shioenv.system.store import System, find_system

# Distances (ours, set by hand): how much less alike two inputs are for each of these.
OPTION, COUNT, CLASS, WORD, CONTENT, START = 1.0, 1.5, 1.2, 0.1, 0.3, 0.5

_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?[a-zA-Z%]{0,2}")
_GLOB = re.compile(r"[*?\[]")
_READERS = frozenset(
    {
        "cat", "comm", "cut", "dd", "dir", "du", "file", "fold", "grep", "gzip", "head", "ls", "nl",
        "od", "paste", "rev", "sort", "split", "stat", "tail", "tar", "tr", "unexpand", "uniq",
        "vdir", "wc", "xargs",
    }
)  # fmt: skip
"""What prints what a file holds: another file gives another output."""


@dataclass(frozen=True, slots=True)
class Known:
    """An input taken apart: `options` of each command, and the words that are no options."""

    options: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]
    classes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """An executed input."""

    text: str
    cwd: str
    known: Known
    record: Record


class Memory:
    """Answers by the nearest of a dataset's records. `fills` puts the input's own words where the
    record has others of the same class, in its output and its patch.
    """

    patch_level = Level.FULL

    def __init__(
        self, records: Iterable[Record], system: System, version: str, fills: bool
    ) -> None:
        self.version = version
        self.training = ""
        """The dataset, whose inputs are set aside where what is new is asked for."""
        self._system, self._fills = system, fills
        self._start = system.declaration.start_directory
        self._parser = InputParser(load_grammars(versions=system.versions))
        self._exact: dict[tuple[str, str], Record] = {}
        self._by_shape: dict[tuple[str, ...], list[Kept]] = {}
        for record in records:
            try:
                shell_input = Input.from_marked(record.input_args)
            except InputError:
                continue
            cwd, text = without_start(record.input)
            self._exact.setdefault((cwd, text), record)
            kept = Kept(text, cwd, self._known(shell_input, cwd), record)
            self._by_shape.setdefault(_shape(shell_input), []).append(kept)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """The behavior alone."""
        return self.answer(shell_input, state).behavior

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """What the nearest record did. Inputs before this one are not looked at.

        The confidence falls with the distance; 1 for the very same input. Errors: Abstained where
        no input of the same commands and operators was executed.
        """
        cwd = state.cwd if state else self._start
        parsed = self._parser.parse(shell_input)
        for text in (shell_input, parsed.text):
            record = self._exact.get((cwd, text))
            if record is not None:
                return Answer(_behavior(record), 1.0, "the same input")
        candidates = self._by_shape.get(_shape(parsed), ())
        if not candidates:
            raise Abstained(f"nothing like {shell_input!r:.60} was executed")
        known = self._known(parsed, cwd)
        ((distance, nearest),) = self._ranked(parsed, known, cwd, 1)
        behavior = _behavior(nearest.record)
        if self._fills:
            behavior = _filled(behavior, nearest.known, known)
        return Answer(behavior, math.exp(-distance) * 0.9, f"{nearest.text} ({distance:.2f} away)")

    def nearest(self, shell_input: str, cwd: str, count: int) -> list[Kept]:
        """So many records of the same commands and operators, the nearest first; perhaps none."""
        parsed = self._parser.parse(shell_input)
        known = self._known(parsed, cwd)
        return [kept for _, kept in self._ranked(parsed, known, cwd, count)]

    def _ranked(
        self, parsed: Input, known: Known, cwd: str, count: int
    ) -> list[tuple[float, Kept]]:
        reads = not _READERS.isdisjoint(_shape(parsed))
        far = (
            (_distance(known, kept.known, reads) + START * (kept.cwd != cwd), place, kept)
            for place, kept in enumerate(self._by_shape.get(_shape(parsed), ()))
        )
        ranked = heapq.nsmallest(count, far, key=lambda one: one[:2])
        return [(distance, kept) for distance, _, kept in ranked]

    def _known(self, shell_input: Input, cwd: str) -> Known:
        options: list[tuple[str, ...]] = []
        words: list[str] = []
        for segment in shell_input.segments:
            own = []
            for argument in segment.arguments:
                if argument.joins_left:
                    own.append(f"-{argument.text}")
                elif argument.text.startswith("-") and len(argument.text) > 1:
                    own.append(argument.text)
                else:
                    words += split_words(argument.text)
            options.append(tuple(own))
        words += [token.argument.text for token in shell_input.tokens if token.role is Role.TARGET]
        plain = tuple(word.strip("\"'") for word in words)
        classes = tuple(self._class_of(word, cwd) for word in plain)
        return Known(tuple(options), plain, classes)

    def _class_of(self, word: str, cwd: str) -> str:
        """What a word is on the system: a file, a directory, a name that is free, a number, ..."""
        if _NUMBER.fullmatch(word):
            return "number"
        if _GLOB.search(word):
            return "glob"
        if "://" in word:
            return "url"
        home = "/root" + word[1:] if word == "~" or word.startswith("~/") else word
        path = self._system.resolve(posixpath.join(cwd, home))
        if path is not None:
            entry = self._system.index.get(path)
            kind = stat.S_IFMT(entry.mode) if entry is not None else stat.S_IFDIR
            return f"{kind:o}" + ("/" if word.endswith("/") else "")
        if "/" in word or "." in word:
            parent = self._system.resolve(posixpath.join(cwd, posixpath.dirname(home)) or cwd)
            return "free" if parent is not None else "nowhere"
        return "word"


def memory(setting: Setting) -> Memory:
    """The predictor `memory:DATASET`."""
    return _memory(setting, fills=True)


def plain_memory(setting: Setting) -> Memory:
    """The predictor `memory-plain:DATASET`, which fills nothing in."""
    return _memory(setting, fills=False)


def _memory(setting: Setting, *, fills: bool) -> Memory:
    if not setting.text:
        raise PredictorError("no dataset is named", hint="memory:DIR, made by `shioenv generate`")
    directory = Path(setting.text)
    manifest = finished_manifest(directory)
    digest = "-".join(shard.sha256[:4] for shard in manifest.shards[:3])
    version = f"{manifest.records} records {digest}"
    made = Memory(read_records(directory), find_system(setting.system), version, fills)
    made.training = str(directory)
    return made


def _shape(shell_input: Input) -> tuple[str, ...]:
    """The commands and operators of an input, in their order."""
    return tuple(
        token.argument.text
        for token in shell_input.tokens
        if token.role in (Role.COMMAND, Role.OPERATOR)
    )


def _distance(first: Known, second: Known, reads: bool) -> float:
    far = 0.0
    for own, other in zip(first.options, second.options, strict=False):
        if own != other:
            ours, theirs = Counter(own), Counter(other)
            far += OPTION * ((ours - theirs).total() + (theirs - ours).total()) or WORD / 2
    far += COUNT * abs(len(first.words) - len(second.words))
    for place, (word, other_word) in enumerate(zip(first.words, second.words, strict=False)):
        if word != other_word:
            same = first.classes[place] == second.classes[place]
            content = CONTENT if reads and first.classes[place].isdigit() else 0.0
            far += WORD + content if same else CLASS
    return far


def _behavior(record: Record) -> Behavior:
    return Behavior(
        exit_code=record.exit_code,
        output=record.output_bytes,
        patch=ContextPatch.from_json(record.context_patch),
    )


def _filled(behavior: Behavior, theirs: Known, ours: Known) -> Behavior:
    """The behavior with our words where the record has its own."""
    pairs = [*_pairs(theirs.words, ours.words)]
    if not pairs:
        return behavior
    output = behavior.output.decode("utf-8", "surrogateescape")
    patch = behavior.patch.to_json()
    for old, new in pairs:
        output = _replaced(output, old, new)
        patch = _replaced(patch, _in_json(escape(old)), _in_json(escape(new)))
        patch = _replaced(patch, _in_json(old), _in_json(new))
    try:
        changed = ContextPatch.from_json(patch)
    except PatchError:
        changed = behavior.patch
    return Behavior(behavior.exit_code, output.encode("utf-8", "surrogateescape"), changed)


def _pairs(theirs: Sequence[str], ours: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The words to replace, and last names of paths where these differ; the longest first."""
    found: dict[str, str] = {}
    for old, new in zip(theirs, ours, strict=False):
        if old != new and len(old) > 1:
            found.setdefault(old, new)
            last, by = posixpath.basename(old), posixpath.basename(new)
            if last != old and last and by:
                found.setdefault(last, by)
    yield from sorted(found.items(), key=lambda pair: -len(pair[0]))


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        return text
    pattern = rf"(?<![\w.\-]){re.escape(old)}(?![\w\-]|\.\w)"
    return re.sub(pattern, lambda _: new, text)
