"""Records of a dataset directory, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from shioenv.dataset.manifest import Shard, read_manifest
from shioenv.domain.record import Record, decode
from shioenv.errors import DatasetCorruptError, RecordError
from shioenv.files.compressed import reading, sha256_of

_REPAIR = "shioenv dataset verify names every fault, shioenv dataset repair makes a shard again"


def read_records(directory: str | Path, *, check: bool = False) -> Iterator[Record]:
    """The records of the finished shards in order, read a line at a time.

    With `check`, no record is given of a shard whose bytes are not those of the manifest. Errors:
    UnknownDatasetError at once; DatasetCorruptError with file and line where a record cannot be
    read, and at the end of a shard that has more or fewer than the manifest says.
    """
    return _records(Path(directory), read_manifest(directory).shards, check)


def _records(directory: Path, shards: Iterable[Shard], check: bool) -> Iterator[Record]:
    for shard in shards:
        path = directory / shard.file
        number = 0
        try:
            digest = sha256_of(path) if check else shard.sha256
            with reading(path) as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        record = decode(line)
                    except RecordError as error:
                        raise _corrupt(f"{path}:{number}: {error.message}") from None
                    if digest == shard.sha256:
                        yield record
        except OSError as error:
            raise _corrupt(f"{path} cannot be read: {error.strerror}") from None
        if number != shard.records:
            raise _corrupt(f"{path} has {number} records, the manifest says {shard.records}")
        if digest != shard.sha256:
            raise _corrupt(
                f"{path} was changed: its SHA-256 is {digest}, the manifest says {shard.sha256}"
            )


def _corrupt(message: str) -> DatasetCorruptError:
    return DatasetCorruptError(message, hint=_REPAIR)
