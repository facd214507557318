"""Check a dataset: files against the manifest, records against rules, and records by execution.

`verify` reports every problem that can be found without executing. `replay` executes some records
again.
"""

from __future__ import annotations

import base64
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET, structs

from shioenv.behavior.compare import CAP, Channel
from shioenv.behavior.observe import open_sandbox
from shioenv.dataset.manifest import (
    DATA,
    MANIFEST,
    SHARD_RECORDS,
    Manifest,
    Shard,
    Tally,
    read_manifest,
    refuse_older_records,
    shard_file,
)
from shioenv.dataset.record_reader import checked_contexts, count_unfinished, read_records
from shioenv.dataset.record_tasks import Wanted, recording
from shioenv.domain.behavior import output_text
from shioenv.domain.context import Context
from shioenv.domain.inputs import Input, session_text
from shioenv.domain.patch import ContextPatch
from shioenv.domain.record import (
    Effect,
    Record,
    ScoredSegment,
    decode,
    different_fields,
    encode,
    share_necessary,
)
from shioenv.errors import (
    DatasetCorruptError,
    DatasetMismatchError,
    InputError,
    PatchError,
    RecordError,
    UsageError,
)
from shioenv.execution.job import Opener, surroundings_of
from shioenv.execution.lanes import Lane
from shioenv.files.compressed import reading, stream_lines
from shioenv.irreducibility.scoring import Scoring
from shioenv.sandbox.base import Limits
from shioenv.synthesis.stream import DigestSet

TIMEOUT_EXIT = 124
_VARYING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+(?:\.\d+)?(?:e-?\d+)?")
"""The texts and numbers in a message; problems that differ only in these are of one kind."""
_MADE_BY = {
    "generate": "shioenv generate",
    "commands": "shioenv dataset import",
    "records": "shioenv dataset import",
    "released": "shioenv dataset import",
    "filter": "shioenv dataset filter",
    "merge": "shioenv dataset merge",
}
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_CLOSE = 1e-9
_OF_SCORES: Mapping[str, Any] = {
    **dict.fromkeys(("irreducibility", "irreducibility_strict", "necessary"), None),
    **dict.fromkeys(("standard_error", "noise_threshold"), None),
    "exact": False,
    "n_executions": 0,
}
"""The fields of scores, with their values in a record without a score."""
_LIMITS = tuple(item.name for item in fields(Limits))


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and its place."""

    file: str
    """Path relative to the dataset's directory."""
    line: int | None
    """The line, from 1; None for a problem of the whole file."""
    message: str
    count: int = 1
    """Number of places with this kind of problem, whose messages differ only in numbers and
    texts."""
    last: str | None = None
    """The last of several places; None for a single one."""

    @property
    def place(self) -> str:
        """File and line: `data/00000.ndjson:7`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        more = f" (and {self.count - 1:,} more of this kind, the last at {self.last})"
        return f"{self.place}: {self.message}" + (more if self.count > 1 else "")


@dataclass(frozen=True, slots=True)
class Verified:
    """The findings of `verify`."""

    directory: str
    records: int
    """Number of records that were read."""
    shards: int
    """Number of shards that the manifest lists."""
    damaged: tuple[str, ...]
    """Files of shards that differ from the manifest, or that cannot be read."""
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """The findings for programs."""
        return {"ok": self.ok, **asdict(self)}


def verify(
    directory: str | Path, *, report: Callable[[int, int], None] = lambda done, count: None
) -> Verified:
    """Find every problem of a dataset, without executing anything.

    Files are compared with the manifest (presence, hashes, counts). Each record is compared with
    the schema, and its fields with each other. Its patch must fit the context before it. Its number
    and input may occur only once. The same fault of many records is one problem with a count.
    `report` is called with the number of records done and requested. Errors: UnknownDatasetError if
    there is no dataset.
    """
    directory = Path(directory)
    try:
        manifest = read_manifest(directory)
    except DatasetCorruptError as error:
        return Verified(str(directory), 0, 0, (), (Problem(MANIFEST, None, error.message),))
    check = _Check(directory, manifest, report)
    problems = _grouped(check.problems())
    shards = len(manifest.shards)
    return Verified(str(directory), check.records, shards, tuple(check.damaged), problems)


def _grouped(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems, with those combined that differ only in numbers and texts."""
    kinds: dict[str, Problem] = {}
    for problem in problems:
        key = _VARYING.sub("#", problem.message) if problem.line else str(problem)
        first = kinds.setdefault(key, problem)
        if first is not problem:
            kinds[key] = replace(first, count=first.count + 1, last=problem.place)
    return tuple(kinds.values())


class _Check:
    def __init__(
        self, directory: Path, manifest: Manifest, report: Callable[[int, int], None]
    ) -> None:
        self.records = 0
        self.damaged: list[str] = []
        self._directory, self._manifest, self._report = directory, manifest, report
        self._again = f"to resume, run the same `{_MADE_BY[manifest.plan.kind]}`"
        self._seen = DigestSet()
        self._first: str | None = None  # of the first duplicate
        self._previous = -1
        self._contexts: dict[str, Mapping[str, Any]] = {}
        self._row: tuple[tuple[str, tuple[str, ...]], Mapping[str, Any]] = ("", ()), {}

    def problems(self) -> Iterator[Problem]:
        manifest = self._manifest
        if not manifest.complete:
            done = f"{manifest.records} of {manifest.count} records are in shards"
            with suppress(DatasetCorruptError):
                done += f", {count_unfinished(self._directory)} in journals"
            yield Problem(MANIFEST, None, f"not finished: {done}; {self._again}")
        yield from self._read_contexts()
        for place, shard in enumerate(manifest.shards):
            if shard.number != place and not manifest.plan.drawing.part:
                expected = shard_file(place, manifest.plan.compression)
                yield Problem(MANIFEST, None, f"expected {expected}, got {shard.file}")
            last = place == len(manifest.shards) - 1
            short = last or manifest.plan.drawing.part
            if shard.records != SHARD_RECORDS and not (short and 0 < shard.records < SHARD_RECORDS):
                yield Problem(shard.file, None, f"{shard.records} records, not {SHARD_RECORDS}")
            yield from self._shard(shard)
        yield from self._others()

    def _read_contexts(self) -> Iterator[Problem]:
        """Store the contexts to which patches apply; yield the problems of their files."""
        manifest = self._manifest
        for kept, context in checked_contexts(self._directory, manifest.contexts):
            if isinstance(context, str):
                yield Problem(kept.file, None, context)
            else:
                self._contexts[kept.cwd] = context.document
        if manifest.plan.system_digest and manifest.records:
            known = {context.cwd for context in manifest.contexts}
            for cwd in manifest.plan.drawing.start_directories:
                if cwd not in known:
                    yield Problem(MANIFEST, None, f"has no context of {cwd}")

    def _others(self) -> Iterator[Problem]:
        known = {shard.file for shard in self._manifest.shards}
        data = self._directory / DATA
        for path in sorted(data.iterdir()) if data.is_dir() else ():
            name = f"{DATA}/{path.name}"
            if path.suffix == ".journal":
                if self._manifest.complete:
                    yield Problem(name, None, f"unfinished journal; {self._again}")
            elif name not in known:
                yield Problem(name, None, "is not in the manifest")

    def _shard(self, shard: Shard) -> Iterator[Problem]:
        path = self._directory / shard.file
        tally = Tally()
        try:
            with reading(path) as stream:
                for number, line in enumerate(stream_lines(stream), 1):
                    self.records += 1
                    try:
                        record = decode(line)
                    except RecordError as error:
                        tally.line(line, volatile=False, executions=0)
                        yield Problem(shard.file, number, error.message)
                        continue
                    tally.record(record, line)
                    expected = shard.number * SHARD_RECORDS + number - 1
                    for message in self._record(record, line, expected):
                        yield Problem(shard.file, number, message)
                    self._report(self.records, self._manifest.count)
        except OSError as error:
            self.damaged.append(shard.file)
            yield Problem(shard.file, None, f"cannot be read: {error.strerror}")
            return
        if shard.sha256 != tally.sha256:
            self.damaged.append(shard.file)
        for name, actual in structs.asdict(tally.shard(shard.file)).items():
            listed = getattr(shard, name)
            if listed != actual:
                message = f"{name} is {actual}, but {listed} in the manifest"
                yield Problem(shard.file, None, message)

    def _before(self, record: Record) -> Mapping[str, Any] | None:
        """Return the context to which a record's patch applies; None if it is unknown."""
        if not record.history:
            return self._contexts.get(record.cwd)
        typed, after = self._row
        return after if typed == (record.cwd, tuple(record.history)) else None

    def _original(self, record: Record) -> str:
        """Return which earlier record has the same input.

        The dataset is searched for the first duplicate only; the result is returned for all others.
        """
        if self._first is None:
            typed = (record.input, record.history)
            self._first = "an earlier record"
            with suppress(DatasetCorruptError):
                for each in read_records(self._directory):
                    if (each.input, each.history) == typed:
                        self._first = f"record {each.session_id}"
                        break
        return self._first

    def _record(self, record: Record, line: bytes, expected: int) -> Iterator[str]:
        if encode(record) != line:
            yield "is not in canonical form: order of fields, blanks or escapes"
        plan = self._manifest.plan
        if plan.kind not in ("filter", "records") and not plan.drawing.part:
            if record.session_id != expected:
                yield f"session_id is {record.session_id}, expected {expected}"
        elif record.session_id <= self._previous:
            yield f"session_id {record.session_id} follows {self._previous}"
        self._previous = record.session_id
        if not self._seen.add(record.input, *record.history):
            yield f"input is a duplicate of {self._original(record)}"
        if record.system != plan.system or record.sampler != plan.drawing.sampler:
            yield (
                f"sampler and system are {record.sampler} on {record.system}, "
                f"but {plan.drawing.sampler} on {plan.system} in the manifest"
            )
        if record.cwd not in plan.drawing.start_directories:
            yield f"cwd is {record.cwd!r}, not a start directory in the manifest"
        before = self._before(record)
        if before is not None and not record.patch_truncated:
            try:
                after = ContextPatch.from_json(record.context_patch).apply(before)
                if not record.volatile:
                    self._row = (record.cwd, (*record.history, record.typed)), after
            except PatchError as error:
                yield f"context_patch does not apply in {record.cwd}: {error.message}"
        yield from record_problems(record, plan.scoring, executed=plan.executed)


def record_problems(
    record: Record, scoring: Scoring | None = None, *, executed: bool = True
) -> Iterator[str]:
    """Yield the contradictions in a record, one message each.

    With `scoring`, the record is also checked against these settings. With a `target_se` or a
    `process_budget`, a score may be inexact even if the budget covers all sub-inputs. If this
    package has not `executed` the record, it did not compute the scores, so only their range is
    checked.
    """
    yield from _input_problems(record)
    yield from _behavior_problems(record)
    if executed:
        # older versions did not store stdout and stderr of a truncated output
        may_be_missing = record.volatile or record.output_truncated
        if (record.stdout is None) != (record.stderr is None) or (
            record.stdout is None and not may_be_missing
        ):
            yield "stdout or stderr is missing"
        if scoring.budget if scoring is not None else record.n_executions:
            yield from _score_problems(record, scoring)
        else:
            yield from _unscored_problems(record)
    elif record.irreducibility is not None and not 0 <= record.irreducibility <= 1:
        yield f"irreducibility is {record.irreducibility}, not 0 to 1"


def _input_problems(record: Record) -> Iterator[str]:
    try:
        shell_input = Input.from_marked(record.input_args)
    except InputError as error:
        yield f"input_args: {error.message}"
        return
    text = session_text(record.cwd, shell_input)
    if record.input != text:
        yield f"input is {record.input!r}, but {text!r} by input_args and cwd"
    if record.n_arguments != shell_input.n_arguments:
        yield (
            f"n_arguments is {record.n_arguments}, but input_args has "
            f"{shell_input.n_arguments} removable arguments"
        )
    counts = [(segment.command, len(segment.arguments)) for segment in shell_input.segments]
    segments = [(segment.command, segment.n_arguments) for segment in record.segments]
    if counts != segments:
        yield f"segments are {segments}, but {counts} by input_args"


def _behavior_problems(record: Record) -> Iterator[str]:
    if not 0 <= record.exit_code <= 255:
        yield f"exit_code is {record.exit_code}, not 0 to 255"
    if record.timed_out and (record.exit_code != TIMEOUT_EXIT or not record.volatile):
        yield f"timed_out requires exit_code {TIMEOUT_EXIT} and volatile"
    yield from _limit_problems(record)
    try:
        patch = ContextPatch.from_json(record.context_patch)
        if patch.to_json() != record.context_patch:
            yield "context_patch is not in canonical order or form"
    except PatchError as error:
        yield f"context_patch: {error.message}"
    if record.output_b64 is not None:
        try:
            content = base64.b64decode(record.output_b64, validate=True)
        except ValueError:
            yield "output_b64 is not base64"
        else:
            if output_text(content) != (record.output, record.output_b64):
                yield "output differs from the decoded output_b64"
    for one in record.content_digests:
        if not _SHA256.match(one.sha256):
            yield f"content_digests: invalid SHA-256 {one.sha256!r} of {one.name!r}"
    names = [one.name for one in record.content_digests]
    if names != sorted(set(names)):
        yield "content_digests are not sorted, or have a duplicate name"


def _limit_problems(record: Record) -> Iterator[str]:
    unknown = [name for name in record.limits_hit if name not in _LIMITS]
    if unknown:
        yield f"limits_hit has the unknown limit {unknown[0]!r}"
    elif record.limits_hit != [name for name in _LIMITS if name in record.limits_hit]:
        yield f"limits_hit is {record.limits_hit}: duplicate names or wrong order"
    for flag, is_set, name in (
        ("timed_out", record.timed_out, "wall_seconds"),
        ("output_truncated", record.output_truncated, "output_bytes"),
    ):
        if is_set != (name in record.limits_hit):
            yield f"{flag} is {is_set}, but limits_hit is {record.limits_hit}"
    if "drain_bytes" in record.limits_hit and "output_bytes" not in record.limits_hit:
        yield "limits_hit has drain_bytes without output_bytes"


def _unscored_problems(record: Record) -> Iterator[str]:
    """Yield the contradictions in a record without a score."""
    bare = [ScoredSegment(command=s.command, n_arguments=s.n_arguments) for s in record.segments]
    for name, nothing in (*_OF_SCORES.items(), ("segments", bare)):
        if getattr(record, name) != nothing:
            yield f"{name} is {getattr(record, name)}, but the record is not scored"


def _score_problems(record: Record, scoring: Scoring | None) -> Iterator[str]:
    scores = (record.irreducibility, record.irreducibility_strict)
    if any((score is None) != (record.n_arguments == 0) for score in scores):
        yield f"irreducibility is {scores}, but n_arguments is {record.n_arguments}"
    if any(score is not None and not 0 <= score <= 1 for score in scores):
        yield f"irreducibility is {scores}, not 0 to 1"
    elif scores[0] is not None and scores[1] is not None and scores[1] < scores[0] - _CLOSE:
        yield f"irreducibility_strict is {scores[1]}, less than irreducibility {scores[0]}"
    if record.necessary != _necessary(record):
        yield f"necessary is {record.necessary}, but {_necessary(record)} by its leave-one-outs"
    if record.noise_threshold is not None and not 0 <= record.noise_threshold <= CAP:
        yield f"noise_threshold is {record.noise_threshold}, not 0 to {CAP}"
    if record.n_executions < 1:
        yield f"n_executions is {record.n_executions}, less than 1"
    if record.exact and record.standard_error not in (0, None):
        yield f"exact, but standard_error is {record.standard_error}"
    for name, score in zip(("irreducibility", "irreducibility_strict"), scores, strict=True):
        yield from _pooled_problem(name, score, record)
    for number, segment in enumerate(record.segments):
        effects = segment.arguments
        if effects is UNSET or len(effects) != segment.n_arguments:
            yield f"segments[{number}] does not have one effect per argument"
        elif not all(_is_effect(effect) for effect in effects):
            yield f"segments[{number}] has an invalid effect"
        elif segment.necessary != share_necessary(effects):
            yield f"segments[{number}]: necessary is {segment.necessary}, contrary to its effects"
    if scoring is not None and not record.timed_out and len(record.segments) == 1:
        budget = scoring.budget
        exact = record.n_arguments < (budget + 1).bit_length()  # 2^n - 1 <= budget
        if exact != record.exact and (
            record.exact or (scoring.target_se is None and not scoring.process_budget)
        ):
            yield f"exact is {record.exact}: {record.n_arguments} arguments, budget {budget}"


def _necessary(record: Record) -> float | None:
    return share_necessary(
        effect
        for segment in record.segments
        if segment.arguments is not UNSET
        for effect in segment.arguments
    )


def _is_effect(effect: Effect) -> bool:
    """Whether an effect is valid.

    A valid effect has a channel exactly if `leave_one_out` is true, and a contribution of -1 to 1
    or None.
    """
    return effect.channel in ([*Channel] if effect.leave_one_out else [None]) and (
        effect.contribution is None or -1 <= effect.contribution <= 1
    )


def _pooled_problem(name: str, score: float | None, record: Record) -> Iterator[str]:
    try:
        parts = [segment for segment in record.segments if segment.n_arguments]
        scored = [(part.n_arguments, getattr(part, name)) for part in parts]
        total = sum(n for n, _ in scored)
        pooled = math.fsum(n * value for n, value in scored) / total if total else None
    except TypeError:
        yield f"not every segment has {name}"
        return
    if (pooled is None) != (score is None) or (
        pooled is not None and score is not None and abs(pooled - score) > _CLOSE
    ):
        yield f"{name} is {score}, but {pooled} by its segments"


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A record whose replay differed."""

    session_id: int
    input: str
    fields: tuple[str, ...]
    """The fields that differed."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The findings of `replay`."""

    replayed: int
    """Number of records executed again."""
    volatile: int
    """Number of volatile records among these; they may differ."""
    differing: tuple[Otherwise, ...]
    """Records that are not volatile and were not byte-identical."""
    made_on: str
    """Kernels and lower layers of the hosts on which the dataset was made."""
    here: str
    """Kernel and lower layer of this host."""

    @property
    def ok(self) -> bool:
        """Whether every record that is not volatile was byte-identical."""
        return not self.differing

    def to_json(self) -> dict[str, Any]:
        """The findings for programs."""
        return {"ok": self.ok, **asdict(self)}


def replay(
    directory: str | Path,
    count: int,
    *,
    seed: int = 0,
    system: str | None = None,
    opener: Opener = open_sandbox,
    report: Callable[[int, int], None] = lambda done, count: None,
) -> Replayed:
    """Execute and score `count` records again, drawn with `seed`, and compare them byte for byte.

    A dataset with fewer records is replayed completely. `system` names the system if it was built
    from a file. `report` is called with the number of records done and requested. Errors:
    UsageError for a count below 1, or for records that cannot be executed again.
    DatasetMismatchError if the installed build of the system differs, or if the records have an
    earlier schema version. The errors of `read_records` and of opening a sandbox are raised too.
    """
    if count < 1:
        raise UsageError(f"cannot replay {count} records", hint="give at least 1")
    manifest = read_manifest(directory)
    plan = manifest.plan
    if not plan.executed:
        raise UsageError(f"cannot replay {directory}: its records were made by another program")
    if plan.limits is None:
        raise UsageError(
            f"cannot replay {directory}: the system and limits of its records are unknown",
            hint="an export with --format hf keeps both",
        )
    refuse_older_records(directory, plan)
    numbers = range(manifest.records)
    wanted = set(random.Random(seed).sample(numbers, min(count, len(numbers))))
    job = recording(plan, system or plan.system)
    done = volatile = 0
    differing = []
    with closing(Lane(partial(opener, job.system, plan.limits))) as lane:
        if lane.system.digest != plan.system_digest:
            here = f"{plan.system_digest} in the dataset, {lane.system.digest} built here"
            other = f"{plan.system}-{plan.system_digest[:8]}"
            raise DatasetMismatchError(
                str(directory),
                [
                    f"system.digest: {here}; to replay, get the other build: shioenv system pull "
                    f"URL|FILE --digest {plan.system_digest} --name {other}; then: --system {other}"
                ],
            )
        for place, record in enumerate(read_records(directory)):
            if place not in wanted:
                continue
            wanted_again = Wanted(
                record.input_args,
                record.cwd,
                volatile=False,
                mistake=record.mistake,
                history=tuple(record.history),
            )
            answer = job.do(lane, (record.session_id, wanted_again))
            assert not isinstance(answer, Context)
            (line,) = answer
            fields = different_fields(record, decode(line.content))
            volatile += record.volatile
            if fields and not record.volatile:
                differing.append(Otherwise(record.session_id, record.input, fields))
            done += 1
            report(done, len(wanted))
    made_on = ", ".join(["Linux " + ", ".join(manifest.kernels), *manifest.layers])
    kernels, layers = surroundings_of(opener, job.system, plan.limits)
    here = ", ".join(["Linux " + ", ".join(kernels), *layers])
    return Replayed(done, volatile, tuple(differing), made_on, here)
