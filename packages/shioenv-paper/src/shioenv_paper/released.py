"""Import of the paper's released records into our format, without execution.

The released files hold one JSON object per line with `input`, `input_args`, `output`, `exit_code`,
`context_patch`, `session_id` and a score. Observed in these files:

- the score is called `redundancy_score`;
- `input` usually lacks the `cd`;
- several operands may be one argument;
- lines may end in CRLF;
- exit codes are often 0 although the command failed.

Fields that a released record lacks remain null or empty.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from shioenv.dataset.importers import numbered
from shioenv.dataset.input_lines import (
    Distinct,
    Rejection,
    read_lines,
    reasons,
    shipped_parser,
    summarize_reasons,
    write_rejections,
)
from shioenv.dataset.manifest import Manifest, Plan
from shioenv.dataset.write import ShardWriter
from shioenv.domain.inputs import Input, Role, session_text, without_start
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import Record, ScoredSegment
from shioenv.errors import ImportFileError, InputError, PatchError, RecordError
from shioenv.files.documents import fault
from shioenv.files.durable import new_directory
from shioenv.files.regular import is_directory
from shioenv.guests import package_version
from shioenv.synthesis.drawing import Drawing

_FAILED = re.compile(
    r"invalid option|unrecognized option|command not found|missing operand|"
    r"extra operand|No such file or directory|cannot access"
)
_CLOSE = 1e-9
SUFFIXES = (".ndjson", ".jsonl", ".json")


@dataclass(frozen=True, slots=True)
class ImportedRelease:
    """The result of an import of released files."""

    directory: Path
    manifest: Manifest
    rejected: tuple[Rejection, ...]
    scored: int
    """Number of records with a score."""
    reparsed: int
    """Number of records whose arguments do not match their input.

    The input was parsed again, and the record has no score.
    """
    doubtful: int
    """Number of records with exit code 0 whose output reports a failure."""

    def to_json(self) -> dict[str, Any]:
        """Return the import's result as a JSON object."""
        return {
            "records": self.manifest.records,
            "rejected": reasons(self.rejected),
            "scored": self.scored,
            "reparsed": self.reparsed,
            "doubtful_exit_codes": self.doubtful,
        }

    def rows(self) -> dict[str, str]:
        """Return labels and texts for display."""
        return {
            "dataset": str(self.directory),
            "records": f"{self.manifest.records:,}, {self.scored:,} with a score",
            "reparsed": f"{self.reparsed:,} with arguments that do not match their input; unscored",
            "doubtful": f"{self.doubtful:,} with exit code 0 although the output reports a failure",
        }


def import_released(
    source: str | Path,
    directory: str | Path,
    *,
    sampler: str | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> ImportedRelease:
    """Create a dataset in `directory` from the released records of a file or directory.

    Records are renumbered in order. If inputs are equal, the first is kept. `sampler` is recorded
    as the sampler of every record (default: `released`). `report` is called with the number of
    lines read. Rejected lines are listed in `rejected.ndjson` and counted.

    A score called `irreducibility` is kept. A `redundancy_score` is smoothed, so 0 means that the
    record has no score. The score of a single argument is always 1 and meaningless; it is left out.
    From other scores the smoothing is removed if every sub-input was run, which the score itself
    reveals. Otherwise the smoothing, which is below 0.01, remains.

    Errors: ImportFileError if a file cannot be read, or nothing can be imported. OutputExistsError,
    DatasetStorageError.
    """
    source, directory = Path(source), Path(directory)
    sampler = sampler or "released"
    paths = _files(source)
    reader = _Reader(sampler)
    drawing = Drawing(sampler=sampler, policy="", horizon=0, composite_share=0.0, max_segments=0)
    plan = Plan(
        drawing=drawing,
        scoring=None,
        system="",
        system_digest="",
        grammar_digest="",
        limits=None,
        version=package_version(),
    )
    directories: set[str] = set()
    digests = {}
    with new_directory(directory) as temporary:
        writer = ShardWriter(temporary, plan)
        for path in paths:
            digest = hashlib.sha256()
            for number, line in read_lines(path, digest.update):
                if not line.strip():
                    continue
                record = reader.record(path.name, number, line, writer.written)
                if record is not None:
                    writer.add(record)
                    directories.add(record.cwd)
                report(reader.lines)
            digests[path.name] = digest.hexdigest()
        if not writer.written:
            raise ImportFileError(
                f"{source}: nothing can be imported; {summarize_reasons(reader.rejected, 3)}",
                hint="each line must be a JSON object with at least input, output and exit_code",
            )
        origin = {
            "kind": "released",
            "files": digests,
            "rejected": dict(sorted(reasons(reader.rejected).items())),
            "doubtful_exit_codes": reader.doubtful,
        }
        drawing = replace(drawing, start_directories=tuple(sorted(directories)))
        plan = replace(plan, origin=origin, drawing=drawing)
        manifest = writer.finish(plan)
        write_rejections(temporary, reader.rejected)
    return ImportedRelease(
        directory, manifest, tuple(reader.rejected), reader.scored, reader.reparsed, reader.doubtful
    )


def _files(source: Path) -> list[Path]:
    if is_directory(source):
        paths = [path for path in source.iterdir() if path.suffix in SUFFIXES]
        if not paths:
            raise ImportFileError(f"{source} has no file with the suffix {', '.join(SUFFIXES)}")
        return sorted(paths, key=numbered)
    return [source]


class _Row(Struct):
    """The fields of a released line that are used."""

    exit_code: Annotated[int, Meta(ge=0, le=255)]
    output: str
    input: str | None = None
    input_args: Any = None
    context_patch: Any = None
    irreducibility: Annotated[float, Meta(ge=0, le=1)] | None = None
    redundancy_score: Annotated[float, Meta(ge=0, le=1)] | None = None


class _Reader:
    """Converts lines to records, and counts them."""

    def __init__(self, sampler: str) -> None:
        self._sampler = sampler
        self.rejected: list[Rejection] = []
        self.lines = self.scored = self.reparsed = self.doubtful = 0
        self._reparsed = False
        self._distinct = Distinct()

    def record(self, file: str, number: int, line: bytes, session_id: int) -> Record | None:
        """Return the record of a line; None if it was rejected."""
        self.lines += 1
        try:
            record = self._record(_read(line), session_id)
            reason = self._distinct.refusal(record.input.encode())
        except (InputError, PatchError, RecordError) as error:
            reason = error.message
        except RecursionError:
            reason = "nested too deeply"
        except OverflowError:
            reason = "too many arguments for a score"
        if reason is not None:
            self.rejected.append(Rejection.of(number, line.strip(), reason, file))
            return None
        self.scored += record.irreducibility is not None
        self.reparsed += self._reparsed
        self.doubtful += record.exit_code == 0 and bool(_FAILED.search(record.output))
        return record

    def _record(self, row: _Row, session_id: int) -> Record:
        text, cwd = _text(row)
        shell_input = self._input(row.input_args, text)
        patch = "[]" if row.context_patch is None else row.context_patch
        record = Record(
            session_id=session_id,
            input=session_text(cwd, shell_input),
            input_args=shell_input.input_args,
            exit_code=row.exit_code,
            output=row.output,
            context_patch=ContextPatch.from_json(patch).to_json(),
            irreducibility=None if self._reparsed else _score(row, shell_input),
            n_arguments=shell_input.n_arguments,
            segments=[
                ScoredSegment(command=segment.command, n_arguments=len(segment.arguments))
                for segment in shell_input.segments
            ],
            cwd=cwd,
            sampler=self._sampler,
        )
        try:
            "".join((record.input, record.output, record.context_patch)).encode()
        except UnicodeEncodeError:
            raise RecordError("text that cannot be encoded in UTF-8") from None
        return record

    def _input(self, value: Any, text: str | None) -> Input:
        """Return the input from the arguments; if they are missing or differ, parse the text."""
        self._reparsed = False
        tokens = _tokens(value)
        if tokens is not None:
            shell_input = Input.from_marked(tokens)
            if shell_input.tokens and (text is None or shell_input.text == text):
                return shell_input
        if not text:
            raise RecordError("input and input_args are missing")
        self._reparsed = True
        return shipped_parser().parse(text)


def _read(line: bytes) -> _Row:
    """Parse the fields of a line. RecordError if it is not a released record."""
    try:
        return msgspec.convert(json.loads(line), _Row)
    except UnicodeDecodeError:
        raise RecordError("not UTF-8") from None
    except msgspec.ValidationError as error:
        raise RecordError(fault(error)) from None
    except ValueError:
        raise RecordError("not JSON") from None


def _text(row: _Row) -> tuple[str | None, str]:
    """Return the input without a leading `cd`, and the directory of that `cd`, or ""."""
    if row.input is None:
        return None, ""
    text = row.input.strip()
    if "\0" in text:
        raise RecordError("the input contains a NUL byte")
    cwd, rest = without_start(text)
    tokens = _tokens(row.input_args) or []
    if tokens[:1] == ["cd"] and Input.from_marked(tokens).text != rest:
        return text, ""  # this `cd` is the input itself, or its first command
    return rest, cwd


def _tokens(value: Any) -> list[str] | None:
    """Return the arguments from a list or a text that holds a list; None for anything else."""
    if isinstance(value, str):
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(value)
                break
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
    if not isinstance(value, list) or not all(isinstance(token, str) for token in value):
        return None
    return [token for token in value if token.replace("<ns>", "")]


def _score(row: _Row, shell_input: Input) -> float | None:
    """Return the score without the smoothing; None if it is meaningless (see `import_released`)."""
    value = row.redundancy_score
    if row.irreducibility is not None or value is None or not shell_input.n_arguments:
        return row.irreducibility if shell_input.n_arguments else None
    pieces = _pieces(shell_input)
    weight = float(sum(n * (1 << n - 1) - n for n in pieces if n))
    if value == 0 or weight == 0:
        return None
    hits = value * (weight + len(pieces)) - len(pieces)
    if abs(hits - round(hits)) < _CLOSE * weight and 0 <= round(hits) <= weight:
        return float(round(hits)) / weight
    return value


def _pieces(shell_input: Input) -> list[int]:
    """Return the argument counts between operators; a redirection target starts a new count."""
    pieces = [0]
    for token in shell_input.tokens:
        if token.role is Role.OPERATOR:
            pieces.append(0)
        elif token.role is Role.ARGUMENT:
            pieces[-1] += 1
    return pieces
