"""Readers of a dataset's directory: its records in order, and the contexts to which patches apply.

Each start directory has a file with one context.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from shioenv.dataset.manifest import DATA, JOURNAL, SHARD_RECORDS, ContextFile, Shard, read_manifest
from shioenv.domain.context import Context
from shioenv.domain.record import Record, decode
from shioenv.errors import ContextError, DatasetCorruptError, RecordError
from shioenv.files.compressed import decompressed_sha256, reading, stream_lines
from shioenv.files.journal import sound_lines
from shioenv.files.regular import read_regular

_REPAIR = "list all faults: shioenv dataset verify; restore shards: shioenv dataset repair"


def read_records(
    directory: str | Path, *, check: bool = False, unfinished: bool = False
) -> Iterator[Record]:
    """Yield the records of the finished shards in order, read a line at a time.

    With `check`, a shard that differs from the manifest yields no records. With `unfinished`
    the records in journals are also yielded, in the order of their numbers. A stopped or running
    run has finished these, but not yet written them to a shard.

    Errors: UnknownDatasetError at once. DatasetCorruptError with file and line if a record cannot
    be read. DatasetCorruptError at the end of a shard with another number of records than in the
    manifest. With `check` also DatasetCorruptError at the end of a changed shard.
    """
    directory = Path(directory)
    shards = read_manifest(directory).shards
    return _records(directory, shards, _journals(directory, shards) if unfinished else {}, check)


def count_unfinished(directory: str | Path) -> int:
    """Return the number of finished records in journals. Errors: see `read_records`."""
    directory = Path(directory)
    journals = _journals(directory, read_manifest(directory).shards)
    return sum(1 for journal in journals.items() for _ in _kept(*journal))


def _journals(directory: Path, shards: tuple[Shard, ...]) -> dict[int, Path]:
    """Return the journals of shards that the manifest does not list, by number."""
    listed = {shard.number for shard in shards}
    try:
        paths = [*(directory / DATA).iterdir()]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _corrupt(f"{directory / DATA} cannot be read: {error.strerror}") from None
    named = ((JOURNAL.match(path.name), path) for path in paths)
    found = {int(match[1]): path for match, path in named if match}
    return {number: path for number, path in found.items() if number not in listed}


def _records(
    directory: Path, shards: tuple[Shard, ...], journals: dict[int, Path], check: bool
) -> Iterator[Record]:
    finished = {shard.number: shard for shard in shards}
    if not journals:
        for shard in shards:
            yield from _shard(directory, shard, check)
        return
    for number in sorted(finished.keys() | journals.keys()):
        if number in finished:
            yield from _shard(directory, finished[number], check)
        else:
            yield from _kept(number, journals[number])


def _kept(number: int, path: Path) -> Iterator[Record]:
    """Yield the records in a shard's journal by number; if one occurs twice, the later one."""
    found: dict[int, Record] = {}
    try:
        for line in sound_lines(path):
            with suppress(RecordError):
                record = decode(line)
                if record.session_id // SHARD_RECORDS == number:
                    found[record.session_id] = record
    except FileNotFoundError:
        return  # the shard has been finished meanwhile
    except OSError as error:
        raise _corrupt(f"{path} cannot be read: {error.strerror}") from None
    for _, record in sorted(found.items()):
        yield record


def _shard(directory: Path, shard: Shard, check: bool) -> Iterator[Record]:
    path = directory / shard.file
    number = 0
    try:
        digest = decompressed_sha256(path) if check else shard.sha256
        with reading(path) as stream:
            for number, line in enumerate(stream_lines(stream), 1):
                try:
                    record = decode(line)
                except RecordError as error:
                    raise _corrupt(f"{path}:{number}: {error.message}") from None
                if digest == shard.sha256:
                    yield record
    except OSError as error:
        raise _corrupt(f"{path} cannot be read: {error.strerror}") from None
    if number != shard.records:
        raise _corrupt(f"{path} has {number} records, but {shard.records} in the manifest")
    if digest != shard.sha256:
        raise _corrupt(
            f"{path} was changed: its SHA-256 is {digest}, but {shard.sha256} in the manifest"
        )


def _corrupt(message: str) -> DatasetCorruptError:
    return DatasetCorruptError(message, hint=_REPAIR)


_WRITTEN_AGAIN = "restore it: shioenv dataset repair"


def read_contexts(directory: str | Path) -> dict[str, Context]:
    """Return the contexts before a dataset's inputs, to which patches apply, by start directory.

    Empty if this package did not execute the records, or if they were imported without their
    manifest. Errors: UnknownDatasetError. DatasetCorruptError for a missing or changed file.
    """
    manifest = read_manifest(directory)
    contexts = {}
    for kept, context in checked_contexts(Path(directory), manifest.contexts):
        if isinstance(context, str):
            raise DatasetCorruptError(
                f"{Path(directory) / kept.file} {context}", hint=_WRITTEN_AGAIN
            )
        contexts[kept.cwd] = context
    return contexts


def checked_contexts(
    directory: Path, contexts: Iterable[ContextFile]
) -> Iterator[tuple[ContextFile, Context | str]]:
    """Yield each listed file with its context, read once.

    If a file differs from the manifest, a description of the problem replaces the context.
    """
    for kept in contexts:
        try:
            content = read_regular(directory / kept.file)
            digest = hashlib.sha256(content).hexdigest()
            if digest != kept.sha256:
                yield (
                    kept,
                    f"was changed: its SHA-256 is {digest}, but {kept.sha256} in the manifest",
                )
                continue
            context = Context.from_json(content.decode())
            right = context.document.get("cwd") == kept.cwd
            yield kept, context if right else f"is not the context of {kept.cwd}"
        except OSError as error:
            yield kept, f"cannot be read: {error.strerror}"
        except (ContextError, UnicodeDecodeError) as error:
            yield kept, f"is not a context: {error}"


def context_problems(directory: Path, contexts: Iterable[ContextFile]) -> Iterator[tuple[str, str]]:
    """Yield the context files that differ from the manifest, each with its problem."""
    for kept, context in checked_contexts(directory, contexts):
        if isinstance(context, str):
            yield kept.file, context
