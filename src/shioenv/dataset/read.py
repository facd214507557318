"""Records of a dataset directory, one after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from shioenv.dataset.manifest import Shard, read_manifest
from shioenv.domain.record import Record, decode
from shioenv.errors import DatasetCorruptError, RecordError

_REPAIR = "shioenv dataset verify names every fault, shioenv dataset repair makes a shard again"


def read_records(directory: str | Path, *, check: bool = False) -> Iterator[Record]:
    """The records of the finished shards in order, read a line at a time.

    With `check`, each shard's bytes are held against the manifest as they are read. Errors:
    UnknownDatasetError at once; DatasetCorruptError with file and line where a record cannot be
    read, and at the end of a shard that is another.
    """
    return _records(Path(directory), read_manifest(directory).shards, check)


def _records(directory: Path, shards: Iterable[Shard], check: bool) -> Iterator[Record]:
    for shard in shards:
        path = directory / shard.file
        digest = hashlib.sha256()
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    digest.update(line)
                    try:
                        yield decode(line)
                    except RecordError as error:
                        raise DatasetCorruptError(
                            f"{path}:{number}: {error.message}",
                            hint=_REPAIR,
                        ) from None
        except OSError as error:
            raise DatasetCorruptError(
                f"{path} cannot be read: {error.strerror}", hint=_REPAIR
            ) from None
        if check and digest.hexdigest() != shard.sha256:
            raise DatasetCorruptError(
                f"{path} was changed: its SHA-256 is {digest.hexdigest()}, "
                f"the manifest says {shard.sha256}",
                hint=_REPAIR,
            )
