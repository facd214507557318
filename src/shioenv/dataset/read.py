"""Records of a dataset directory, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shioenv.dataset.manifest import read_manifest
from shioenv.domain.record import Record, decode
from shioenv.errors import DatasetCorruptError, RecordError


def read_records(directory: str | Path) -> Iterator[Record]:
    """The records of the finished shards in order, read a line at a time.

    Errors: UnknownDatasetError at once; DatasetCorruptError with file and line where a record
    cannot be read.
    """
    manifest = read_manifest(directory)
    return _records(Path(directory), [shard.file for shard in manifest.shards])


def _records(directory: Path, files: list[str]) -> Iterator[Record]:
    for name in files:
        path = directory / name
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    try:
                        yield decode(line)
                    except RecordError as error:
                        raise DatasetCorruptError(
                            f"{path}:{number}: {error.message}",
                            hint="shioenv dataset verify names every fault",
                        ) from None
        except OSError as error:
            raise DatasetCorruptError(f"{path} cannot be read: {error.strerror}") from None
