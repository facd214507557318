"""Make datasets from lists of inputs: parse, execute, score and record each line."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from shioenv.bash.words import without_assignments
from shioenv.dataset.generate import Progress, Summary, plan_of, run
from shioenv.dataset.input_lines import (
    MOST_REJECTED,
    Distinct,
    Rejection,
    read_lines,
    reasons,
    summarize_reasons,
    write_rejections,
)
from shioenv.dataset.manifest import Plan, scoring_there
from shioenv.domain.inputs import Input, session_text
from shioenv.errors import ImportFileError, nearest
from shioenv.execution.job import Executor
from shioenv.files.documents import parse_json
from shioenv.grammar.library import load_grammars
from shioenv.grammar.parse import InputParser
from shioenv.irreducibility.score import MOST_ARGUMENTS
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import LONGEST_INPUT, Limits
from shioenv.seeding import generator
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.traces import Sample
from shioenv.system.store import find_system


@dataclass(frozen=True, slots=True)
class CommandList:
    """A file of inputs, one per line, with settings for reading it.

    A line is an input as text, or a JSON object with `input` and optionally `cwd`, its start
    directory.
    """

    path: str | Path
    sampler: str = "commands"
    """The sampler's name in the records."""
    seed: int = 0
    """The seed for drawing start directories and sub-inputs."""
    start_directories: tuple[str, ...] = ()
    """The start directories for lines that name none; empty: those that the system declares."""


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The result of an import of a list."""

    summary: Summary
    lines: int
    """Number of lines of the list."""
    rejected: tuple[Rejection, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the import as JSON for programs."""
        return {**self.summary.to_json(), "lines": self.lines, "rejected": reasons(self.rejected)}


def import_commands(
    commands: CommandList,
    directory: str | Path,
    *,
    read: Reader | None = None,
    scoring: Scoring | None = None,
    system: str | None = None,
    limits: Limits | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> ImportSummary:
    """Make a dataset in `directory` of the inputs in a list.

    `read` replaces `read_list` as the reader of the file, for example for logs of a honeypot.

    Each input is parsed with the grammars for the system. It is executed in the start
    directory given in its line, else in one drawn with the list's seed. It is scored and recorded
    as in `generate`. The same list, arguments and system give the same bytes, with any executor.
    Repeat an interrupted call to resume it.

    A line that cannot be recorded is left out and listed with its number:

    - it is empty, only a comment, not UTF-8, or too long;
    - it has a NUL byte, a lone surrogate, or more than 400 arguments;
    - its input is the same as an earlier one;
    - its JSON object has a history, or `input` or `cwd` twice;
    - its start directory does not exist, or is no plain absolute path.

    Errors: ImportFileError if no line can be recorded, or more than a million lines cannot.
    ImportFileError is also raised if the file is not a list of inputs. These errors,
    StartDirectoryError and those of `find_system` are raised before anything is written, those of
    `generate` afterwards.
    """
    built = find_system(system)
    grammars = load_grammars(host_clock=built.host_clock)
    directories = commands.start_directories or built.declaration.session.start_directories
    accepted = (read or read_list)(commands, InputParser(grammars), directories, built.is_directory)
    if not accepted.samples:
        why = summarize_reasons(accepted.rejected)
        raise ImportFileError(f"{commands.path}: no line can be imported; {why}")
    drawing = Drawing(
        sampler=commands.sampler,
        seed=commands.seed,
        start_directories=(*directories, *accepted.elsewhere(directories)),
        horizon=0,
        composite_share=0.0,
        max_segments=0,
    )
    plan = plan_of(built, grammars, drawing, scoring or scoring_there(directory), limits)
    origin = {
        "kind": "commands",
        "sha256": accepted.sha256,
        "lines": accepted.lines,
        "rejected": dict(sorted(reasons(accepted.rejected).items())),
    }
    # no policy draws these inputs
    plan = replace(plan, drawing=replace(plan.drawing, policy=""), origin=origin)
    return import_list(
        accepted, directory, plan, system=system or built.name, executor=executor, report=report
    )


Reader: TypeAlias = Callable[
    [CommandList, InputParser, Sequence[str], Callable[[str], bool]], "Accepted"
]
"""Reads a file. Its parameters are the list, a parser, start directories, and a predicate for
whether another directory exists."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A parsed list."""

    sha256: str
    """The SHA-256 of the file."""
    lines: int
    """Lines of the list."""
    samples: tuple[bytes, ...]
    """The inputs, each as JSON: arguments, start directory, whether it is declared volatile, and
    its history."""
    rejected: tuple[Rejection, ...]

    def elsewhere(self, directories: Sequence[str]) -> list[str]:
        """Return the samples' start directories that are not among `directories`, sorted."""
        return sorted({json.loads(sample)[1] for sample in self.samples}.difference(directories))


def import_list(
    accepted: Accepted,
    directory: str | Path,
    plan: Plan,
    *,
    system: str,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> ImportSummary:
    """Do the work of `import_commands` with a parsed list and a plan."""
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
        tokens, cwd, volatile, history = json.loads(line)
        yield Sample(Input.from_marked(tokens), cwd, volatile, (), history=tuple(history))


def read_list(
    commands: CommandList,
    parser: InputParser,
    directories: Sequence[str],
    exists: Callable[[str], bool] = lambda directory: True,
) -> Accepted:
    """Parse the inputs of a file's lines.

    An input without a start directory gets one of `directories`. `exists` returns whether a
    directory that a line names exists. Errors: ImportFileError.
    """
    reader = _Reader(commands, parser, directories, exists)
    digest = hashlib.sha256()
    number = 0
    _refuse_table(Path(commands.path))
    for number, line in read_lines(commands.path, digest.update):
        reader.read(number, line)
    return Accepted(digest.hexdigest(), number, tuple(reader.samples), tuple(reader.rejected))


_LINES = "each line must be an input as text, or a JSON object with `input` and optionally `cwd`"
_OF_OBJECTS = f"{_LINES}; to convert a list of objects: jq -c '.[]'"
_OF_TEXTS = f"{_LINES}; to convert a list of texts: jq -r '.[]'"
_ONE_A_LINE = (
    f"{_LINES}; to convert an object: jq -c . , a list of objects: jq -c '.[]', a list of texts: "
    "jq -r '.[]'"
)

_TABLES = {".csv": ",", ".tsv": "\t"}
"""Extensions of tables, with the separator of their columns."""


def _refuse_table(path: Path) -> None:
    """Raise ImportFileError for a table, detected by its name."""
    ending = Path(path.name.lower().removesuffix(".gz").removesuffix(".zst")).suffix
    if ending in _TABLES:
        raise ImportFileError(
            f"{path} is a table, not a list of inputs: its name ends in {ending}",
            hint=f'{_LINES}; to convert a column: python3 -c "import csv, json, sys; '
            f"[print(json.dumps({{'input': row['COLUMN']}})) for row in csv.DictReader(sys.stdin, "
            f'delimiter={_TABLES[ending]!r})]" < {path} > NEW',
        )


_QUOTED = re.compile(r"""\"(?>(?:[^"\\]|\\.)*)(?:"|\Z)|'(?>(?:[^'\\]|\\.)*)(?:'|\Z)""", re.DOTALL)
"""A quoted text, perhaps cut short. The patterns below match a line in which each is one `"`."""
_KEY = re.compile(r'(?>(?:\[\s*)*)\{(?:\s*"\s*:|"\Z)')
"""An object's first key, perhaps cut short: `{ "input":`. But `{"ls","-a"}` is a command in
Bash."""
_GROUP = re.compile(r"[;&]\s*\}")
"""The end of a group of commands in Bash. Its beginning looks like that of an object if the first
command is `"x":`."""
_OPENED = re.compile(r"[\[{][\[{\s]*+")
"""A line that has only opening brackets and blanks."""
_LIST = re.compile(r'\[(?>(?:[\s\[\]{}:,"]|-?\d[\d.eE+-]*+|true|false|null)*)')
"""A JSON list, perhaps cut short."""
_TEST = re.compile(r"(?:\[(?P<two>\[)?)\s(?:[^\[\]{},]*\s)?\](?(two)\])")
"""A test in Bash that happens to be a JSON list as well: `[ "x" ]`."""


def _is_json(text: str) -> bool:
    """Whether a line that begins with a bracket is JSON, complete or partial, rather than Bash."""
    bare = _QUOTED.sub('"', text)
    if _KEY.match(bare):
        return _GROUP.search(bare) is None
    if _OPENED.fullmatch(bare):
        return True
    return (
        _LIST.fullmatch(bare) is not None
        and re.search(r"[\[{,]", bare[1:]) is not None
        and _TEST.fullmatch(bare) is None
    )


class _Reader:
    """Parses lines; `samples` and `rejected` become the fields of `Accepted`."""

    def __init__(
        self,
        commands: CommandList,
        parser: InputParser,
        directories: Sequence[str],
        exists: Callable[[str], bool],
    ) -> None:
        self._path, self._seed = commands.path, commands.seed
        self._parser, self._directories = parser, directories
        self._exists = exists
        self._distinct = Distinct()
        self.samples: list[bytes] = []
        self.rejected: list[Rejection] = []

    def read(self, number: int, content: bytes) -> None:
        """Parse one line, without its end.

        ImportFileError for JSON without an input, or if too many lines were rejected.
        """
        text, reason = readable(content)
        document = None if reason else self._document(number, text)
        if document is not None:
            reason = _repeated(text) or _unusable(document)
            text = document["input"]
        if reason is None and len(text.encode()) > LONGEST_INPUT:
            reason = "too long"
        if reason is None:
            rng = generator(self._seed, "import", number)
            cwd = (document or {}).get("cwd") or rng.choice(self._directories)
            known = cwd in self._directories or self._exists(cwd)
            reason = self._sample(text, cwd) if known else "the start directory does not exist"
        if reason is not None:
            if len(self.rejected) == MOST_REJECTED:
                raise ImportFileError(
                    f"{self._path}:{number}: more than {MOST_REJECTED:,} lines cannot be imported; "
                    f"{summarize_reasons(self.rejected, 3)}",
                    hint=_LINES,
                )
            self.rejected.append(Rejection.of(number, content, reason))

    def _document(self, number: int, text: str) -> dict[str, Any] | None:
        """Return the JSON object with an `input` in a line; None for an input as text.

        ImportFileError for other JSON, which would otherwise be executed as an input.
        """
        text = text.strip()
        if not text.startswith(("{", "[")):
            return None
        place = f"{self._path}:{number}"
        try:
            document = parse_json(text)
        except ValueError as error:
            if not _is_json(text):
                return None
            raise ImportFileError(
                f"{place}: invalid JSON: {error}: {text:.60}", hint=_ONE_A_LINE
            ) from None
        if isinstance(document, list):
            if _TEST.fullmatch(_QUOTED.sub('"', text)):
                return None
            texts = bool(document) and all(isinstance(one, str) for one in document)
            raise ImportFileError(
                f"{place}: a JSON list is not an input: {text:.60}",
                hint=_OF_TEXTS if texts else _OF_OBJECTS,
            )
        if "input" not in document:
            close = nearest("input", document)
            raise ImportFileError(
                f"{place}: no `input` in the JSON object: {text:.60}",
                hint=f"did you mean `input` by {close!r}? {_LINES}" if close else _LINES,
            )
        if not isinstance(document["input"], str):
            raise ImportFileError(
                f"{place}: expected text as `input`, got {json.dumps(document['input']):.60}",
                hint=_LINES,
            )
        return dict(document)

    def _sample(self, text: str, cwd: str) -> str | None:
        """Add an input; return the reason if it cannot be added, else None."""
        sample, reason = sample_of(self._parser, text, cwd)
        reason = reason or self._distinct.refusal(sample)
        if reason is None:
            self.samples.append(sample)
        return reason


def sample_of(
    parser: InputParser, text: str, cwd: str, history: tuple[str, ...] = ()
) -> tuple[bytes, str | None]:
    """Return an input as in `Accepted.samples`, and the reason if it cannot be recorded."""
    shell_input = parser.parse(text)
    if len(session_text(cwd, shell_input).encode()) > LONGEST_INPUT:
        return b"", "too long"
    if shell_input.n_arguments > MOST_ARGUMENTS:
        return b"", f"more than {MOST_ARGUMENTS:,} arguments"
    volatile = any(_is_volatile(parser, part.command) for part in shell_input.segments)
    document = [shell_input.input_args, cwd, volatile, history]
    return json.dumps(document, ensure_ascii=False).encode(), None


def _is_volatile(parser: InputParser, command: str) -> bool:
    """Whether the grammar of a command declares its behavior as volatile."""
    grammar = parser.grammar(without_assignments(command), ())
    return grammar is not None and bool(grammar.header.volatile)


def readable(content: bytes) -> tuple[str, str | None]:
    """Return the text of a line, and the reason if it is no input, else None."""
    if b"\0" in content:
        return "", "a NUL byte"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "", "not UTF-8"
    if not text.strip():
        return "", "empty"
    if text.lstrip().startswith("#"):
        return "", "only a comment"
    return text, None


def _repeated(text: str) -> str | None:
    """Return the reason to refuse an object if it has `input` or `cwd` twice, else None."""
    for name in ("input", "cwd"):
        if text.count(f'"{name}"') > 1:
            # The hook converts the outermost object too, so `pairs` keeps duplicate keys.
            pairs = json.loads(text, object_pairs_hook=list)
            if sum(key == name for key, _ in pairs) > 1:
                return f"`{name}` occurs twice"
    return None


def _unusable(document: dict[str, Any]) -> str | None:
    """Return the reason if the input of a JSON object cannot be recorded, else None."""
    if document.get("history"):
        return "`history` is not supported"
    cwd = document.get("cwd")
    if not isinstance(cwd, str | None):
        return "the start directory is not a text"
    if cwd and not _is_plain(cwd):
        return "the start directory is not an absolute path without //, ., .. and / at its end"
    try:
        content = document["input"].encode()
    except UnicodeEncodeError:
        return "invalid Unicode: a JSON escape names a lone surrogate"
    return readable(content)[1]


def _is_plain(path: str) -> bool:
    """Whether a path is absolute and normal: no `//`, `.`, `..`, and no `/` at its end."""
    return path.startswith("/") and "//" not in path and posixpath.normpath(path) == path
