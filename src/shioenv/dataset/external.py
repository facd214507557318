"""Datasets from lists of inputs: each line taken apart, executed, scored and recorded.

What corpora such as NL2Bash and NL2CMD leave generic (`find Path -name Regex`) is bound to names of
the recorded system first, as the paper's adapted NL2CMD was.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

from shioenv.dataset.generate import Progress, Summary, plan_of, run
from shioenv.dataset.lines import Distinct, Rejection, read_lines, reasons, told, write_rejections
from shioenv.dataset.manifest import Plan, scoring_there
from shioenv.domain.inputs import Input, session_text
from shioenv.errors import ImportFileError, UsageError, did_you_mean
from shioenv.execution.job import Executor
from shioenv.grammar.bind import values_of
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser, without_assignments
from shioenv.grammar.symbols import Nonterminal
from shioenv.grammar.words import split_words
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import LONGEST_INPUT, Limits
from shioenv.seeding import generator
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.sample import Sample
from shioenv.system.catalogue import catalogue
from shioenv.system.store import find_system

PLACEHOLDERS = ("reject", "bind", "keep")
"""What is done with lines that hold generic words: see `CommandList`."""

ATTEMPTS = 20
"""How often a line is bound anew to become an input that is not there yet."""

Catalogues = Mapping[str, Mapping[str, Sequence[str]]]
"""Names by token, for each start directory."""


@dataclass(frozen=True, slots=True)
class CommandList:
    """A file of inputs, one a line, and how they are read.

    Words such as `File` or `[Size]` are generic in some corpora (`placeholder_table`). With
    `reject` lines that hold one are left out; with `bind` whole words become names and values of
    the system, drawn by `seed`, up to `bindings` different inputs from each such line, and lines
    where one stays inside a longer word (`+Size`) are left out; with `keep` they are words.
    Errors: UsageError.
    """

    path: str | Path
    sampler: str = "commands"
    """What the records say wrote them."""
    placeholders: str = "reject"
    """One of `PLACEHOLDERS`."""
    bindings: int = 1
    seed: int = 0
    """Draws names, start directories and sub-inputs."""
    start_directories: tuple[str, ...] = ()
    """None for all of the system."""

    def __post_init__(self) -> None:
        if self.placeholders not in PLACEHOLDERS:
            raise UsageError(
                f"placeholders cannot be {self.placeholders!r}",
                hint=did_you_mean(self.placeholders, PLACEHOLDERS),
            )
        if self.bindings < 1 or (self.bindings > 1 and self.placeholders != "bind"):
            raise UsageError(
                "several bindings of a line need placeholders to bind, and are at least 1"
            )


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What an import of a list did."""

    summary: Summary
    lines: int
    """Of the list."""
    rejected: tuple[Rejection, ...]

    def to_json(self) -> dict[str, Any]:
        """The import for programs."""
        return {**self.summary.to_json(), "lines": self.lines, "rejected": reasons(self.rejected)}


def import_commands(
    commands: CommandList,
    directory: str | Path,
    *,
    scoring: Scoring | None = None,
    system: str | None = None,
    limits: Limits | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> ImportSummary:
    """A dataset in `directory` of the inputs in a list; run again to go on.

    Each is taken apart by the grammars of the system's versions, executed in a start directory
    drawn by the list's seed, scored and recorded as `generate` does it: the same bytes for the same
    list, arguments and system, whatever the executor.

    What cannot be recorded is left out and told with its line: empty, only a comment, not UTF-8, a
    NUL byte, too long, the same as an earlier input. Errors: ImportFileError where nothing can be
    taken, those of `find_system` and StartDirectoryError before anything is written;
    then those of `generate`.
    """
    built = find_system(system)
    grammars = load_grammars(versions=built.versions)
    directories = commands.start_directories or built.declaration.session.start_directories
    catalogues = {directory: catalogue(built, directory) for directory in directories}
    accepted = read_list(commands, InputParser(grammars), catalogues)
    if not accepted.samples:
        why = told(accepted.rejected)
        raise ImportFileError(f"{commands.path}: no line can be recorded; {why}")
    drawing = Drawing(
        sampler=commands.sampler,
        seed=commands.seed,
        start_directories=directories,
        horizon=0,
        composite_share=0.0,
        max_segments=0,
    )
    plan = plan_of(built, grammars, drawing, scoring or scoring_there(directory), limits)
    origin = {
        "kind": "commands",
        "sha256": accepted.sha256,
        "lines": accepted.lines,
        "placeholders": commands.placeholders,
        "bindings": commands.bindings,
        "rejected": dict(sorted(reasons(accepted.rejected).items())),
    }
    # nothing is drawn by a policy
    plan = replace(plan, drawing=replace(plan.drawing, policy=""), origin=origin)
    return import_list(
        accepted, directory, plan, system=system or built.name, executor=executor, report=report
    )


@dataclass(frozen=True, slots=True)
class Accepted:
    """What was read of a list."""

    sha256: str
    """Of the file."""
    lines: int
    samples: tuple[bytes, ...]
    """Each as JSON of its arguments, start directory and whether it is declared volatile."""
    rejected: tuple[Rejection, ...]


def import_list(
    accepted: Accepted,
    directory: str | Path,
    plan: Plan,
    *,
    system: str,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> ImportSummary:
    """What `import_commands` does once list and plan are known."""
    summary = run(
        directory,
        plan,
        _samples(accepted.samples),
        count=len(accepted.samples),
        system=system,
        executor=executor,
        report=report,
    )
    write_rejections(Path(directory), accepted.rejected)
    return ImportSummary(summary, accepted.lines, accepted.rejected)


def _samples(lines: Iterable[bytes]) -> Iterator[Sample]:
    for line in lines:
        tokens, cwd, volatile = json.loads(line)
        yield Sample(Input.from_marked(tokens), cwd, volatile, ())


def read_list(commands: CommandList, parser: InputParser, catalogues: Catalogues) -> Accepted:
    """The inputs of a file's lines, taken apart and bound. Errors: ImportFileError."""
    reader = _Reader(commands, parser, catalogues)
    digest = hashlib.sha256()
    number = 0
    for number, line in read_lines(commands.path, digest.update):
        reader.read(number, line)
    return Accepted(digest.hexdigest(), number, tuple(reader.samples), tuple(reader.rejected))


class _Reader:
    """Takes lines apart; `samples` are what `Accepted` calls so."""

    def __init__(self, commands: CommandList, parser: InputParser, catalogues: Catalogues) -> None:
        self._commands, self._parser, self._directories = commands, parser, list(catalogues)
        self._binder = Binder(catalogues)
        self._distinct = Distinct()
        self.samples: list[bytes] = []
        self.rejected: list[Rejection] = []

    def read(self, number: int, content: bytes) -> None:
        """One line, without its end."""
        text, reason = _readable(content)
        generic = reason is None and PLACEHOLDER.search(text) is not None
        if generic and self._commands.placeholders == "reject":
            reason = "a placeholder"
        elif generic and self._commands.placeholders == "bind":
            reason = _left_over(text)
        if reason is None:
            reason = self._add(number, text, generic and self._commands.placeholders == "bind")
        if reason is not None:
            self.rejected.append(Rejection.of(number, content, reason))

    def _add(self, number: int, text: str, generic: bool) -> str | None:
        """Adds the inputs of a line; why, where there is none."""
        wanted = self._commands.bindings if generic else 1
        made = 0
        reason = None
        for attempt in range(wanted * ATTEMPTS if generic else 1):
            rng = generator(self._commands.seed, "import", number, attempt)
            cwd = rng.choice(self._directories)
            bound = self._binder.bind(text, cwd, rng) if generic else text
            reason = self._sample(bound, cwd)
            made += reason is None
            if made == wanted:
                break
        return None if made else reason

    def _sample(self, text: str, cwd: str) -> str | None:
        """Adds an input that was not seen before; why, where it cannot be."""
        shell_input = self._parser.parse(text)
        content = session_text(cwd, shell_input).encode()
        if len(content) > LONGEST_INPUT:
            return "too long"
        if (reason := self._distinct.refusal(content)) is not None:
            return reason
        volatile = any(self._declared_volatile(part.command) for part in shell_input.segments)
        document = [shell_input.input_args, cwd, volatile]
        self.samples.append(json.dumps(document, ensure_ascii=False).encode())
        return None

    def _declared_volatile(self, command: str) -> bool:
        grammar = self._parser.grammar(without_assignments(command), ())
        return grammar is not None and bool(grammar.header.volatile)


def _readable(content: bytes) -> tuple[str, str | None]:
    """The text of a line, and why it can be none."""
    if b"\0" in content:
        return "", "a NUL byte"
    if len(content) > LONGEST_INPUT:
        return "", "too long"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "", "not UTF-8"
    if not text.strip():
        return "", "empty"
    if text.lstrip().startswith("#"):
        return "", "only a comment"
    return text, None


@cache
def placeholder_table() -> Mapping[str, Mapping[str, Any]]:
    """By generic word: what it is `about`, and the system's `tokens` or the `values` it becomes."""
    text = files("shioenv.dataset").joinpath("placeholders.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


_NAMES = "|".join(sorted(placeholder_table(), key=len, reverse=True))
PLACEHOLDER = re.compile(rf"(?<![A-Za-z0-9_])(?:{_NAMES})(?![A-Za-z0-9_])")
"""A generic word anywhere in a text."""
_WHOLE = re.compile(rf"(?<![^\s=:;|&(<>])(?:\[({_NAMES})\]|({_NAMES}))(?![^\s:;|&)<>])")
"""One that stands for itself: a word of its own, what follows `=`, either side of `:`."""
_QUOTED = re.compile(rf"([^\"']*=)?(?:\"({_NAMES})\"|'({_NAMES})')")
"""A shell word that is one in quotes, such as `--name="Regex"`."""


class Binder:
    """Puts names and values of a system where generic words are."""

    def __init__(self, catalogues: Catalogues) -> None:
        self._values = {
            cwd: {name: _values(entry, tokens) for name, entry in placeholder_table().items()}
            for cwd, tokens in catalogues.items()
        }

    def bind(self, text: str, cwd: str, rng: Random) -> str:
        """The text with every generic word that stands for itself replaced, each drawn anew."""

        def drawn(match: re.Match[str]) -> str:
            return rng.choice(self._values[cwd][match[1] or match[2]])

        words = []
        for word in split_words(text):
            if quoted := _QUOTED.fullmatch(word):
                value = rng.choice(self._values[cwd][quoted[2] or quoted[3]])
                words.append((quoted[1] or "") + value)
            elif "'" in word or '"' in word:
                words.append(word)
            else:
                words.append(_WHOLE.sub(drawn, word))
        return " ".join(words)


def _values(entry: Mapping[str, Any], tokens: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    values = list(entry.get("values", ()))
    for token in entry.get("tokens", ()):
        values.extend(values_of(Nonterminal(token), tokens))
    return tuple(values)


def _left_over(text: str) -> str | None:
    """Why a line cannot be bound: a generic word that stands inside a longer one (`+Size`)."""
    for word in split_words(text):
        if _QUOTED.fullmatch(word):
            continue
        rest = word if "'" in word or '"' in word else _WHOLE.sub("", word)
        if PLACEHOLDER.search(rest):
            return "a placeholder inside a word"
    return None
