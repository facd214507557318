"""A dataset's files: shards that are written atomically, and journals of finished records.

`data/00000.ndjson` has exactly 1,000 records; only the last shard may be short. In a part of a
dataset, a shard has only the records that belong to the part. Until a shard is full, its records
are in `data/00000.journal`, in the order in which they were finished. The records of a full shard
are written in order to a temporary file. The file is renamed to the shard's name, then the manifest
lists the shard, then the journal is removed. If the process is killed at any point, the next run
finds a complete journal or shard.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from shioenv.dataset.manifest import (
    CONTEXTS,
    DATA,
    JOURNAL,
    MANIFEST,
    SHARD_RECORDS,
    Manifest,
    Plan,
    Shard,
    Tally,
    inputs_line,
    read_manifest,
    refuse_older_records,
    shard_file,
)
from shioenv.dataset.record_reader import context_problems
from shioenv.dataset.write import write_context, write_readme
from shioenv.domain.context import Context
from shioenv.domain.record import decode
from shioenv.errors import DatasetCorruptError, DatasetMismatchError, RecordError
from shioenv.files.compressed import DamagedFile, decompressed_sha256, open_compressed, reading
from shioenv.files.durable import (
    TEMPORARY,
    atomic_write,
    locked,
    replacing,
    storage_errors,
)
from shioenv.files.journal import Journal, checksummed
from shioenv.recording.effort import Line

_SHARD = re.compile(r"(\d{5,})\.ndjson(?:\.zst)?\Z")


class Store:
    """A dataset directory opened for writing by one process; a context manager.

    `numbers` are those of the records, ascending; the default is 0 to `count`. `accept` is called
    with every sample in order, and returns whether it still has to be executed. `append` stores
    finished records in any order; they survive this process. `report` is called with notes for
    the user. `kernel` is the kernel release under which records are made; None: not noted. With
    `remake`, a shard that differs from the manifest is recreated. Errors: DatasetBusyError,
    DatasetMismatchError, DatasetCorruptError, DatasetStorageError.
    """

    def __init__(
        self,
        directory: str | Path,
        plan: Plan,
        count: int,
        *,
        kernel: str | None,
        numbers: Sequence[int] | None = None,
        report: Callable[[str], None] = lambda note: None,
        remake: bool = False,
    ) -> None:
        self.directory = Path(directory)
        self.count = count
        self._numbers = range(count) if numbers is None else numbers
        self._report, self._remake = report, remake
        self._data = self.directory / DATA
        self._passed = 0
        self.gone: set[int] = set()
        """Numbers of shards that the manifest lists but that have to be recreated."""
        self._journals: dict[int, Journal[_Kept]] = {}
        self._tallies: dict[int, Tally] = {}
        with storage_errors(self.directory), ExitStack() as opened:
            self.directory.mkdir(parents=True, exist_ok=True)
            opened.enter_context(locked(self.directory))
            opened.callback(self._close_journals)
            self._open(plan, kernel)
            self._opened = opened.pop_all()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def kept(self) -> int:
        """The number of finished records, in shards and in journals."""
        shards = (shard.records for shard in self.manifest.shards if self._finished(shard.number))
        return sum(shards) + sum(len(journal.values) for journal in self._journals.values())

    def accept(self, session_id: int, text: str, input_args: list[str]) -> bool:
        """Whether this sample, the next of the stream, still has to be executed.

        DatasetCorruptError if a finished shard has other inputs than the stream. ValueError for a
        sample that is not the next one.
        """
        if session_id != self._numbers[self._passed]:
            raise ValueError(f"expected sample {self._numbers[self._passed]}, got {session_id}")
        self._passed += 1
        number = session_id // SHARD_RECORDS
        line = inputs_line(session_id, text, input_args)
        self._tallies.setdefault(number, Tally()).input(line)
        journal = self._journals.get(number)
        missing = not self._finished(number)
        if journal is not None and session_id in journal.values:
            missing = journal.values[session_id].inputs not in (None, hashlib.sha256(line).digest())
            if missing:
                del journal.values[session_id]
                self._report(
                    f"{journal.path}: record {session_id} has another input and is skipped"
                )
        self._stream_passed(number)
        return missing

    def inputs_before(self, number: int) -> str | None:
        """Return a digest of the inputs of all records before a shard; None if some are missing."""
        before = [one for one in self.manifest.shards if one.number < number]
        finished = sum(one.records for one in before if self._finished(one.number))
        if finished != self._start(number):
            return None
        return hashlib.sha256("".join(one.inputs_sha256 for one in before).encode()).hexdigest()

    def skip(self, number: int) -> int:
        """Continue `accept` with a shard's first sample. Return how many samples are before it."""
        self._passed = self._start(number)
        return self._passed

    def append(self, line: Line) -> None:
        """Store a finished record. An existing record is not replaced."""
        number = line.session_id // SHARD_RECORDS
        if self._finished(number):
            return
        journal = self._journal(number)
        if line.session_id not in journal.values:
            with storage_errors(journal.path):
                kept = _Kept(line.volatile, line.executions, None, tuple(line.effort.repeated))
                journal.append(line.session_id, kept, line.content)
        self._seal_if_whole(number)

    def missing_contexts(self) -> Iterator[tuple[int, str]]:
        """Yield a task (number, directory) for each start directory without a valid context.

        The number is below 0, which distinguishes the task from that of a sample.
        """
        for number, cwd in enumerate(self.manifest.plan.drawing.start_directories):
            kept = self._contexts.get(cwd)
            if kept is None or any(context_problems(self.directory, [kept])):
                yield -1 - number, cwd

    def keep_context(self, number: int, context: Context) -> None:
        """Store the context of a task of `missing_contexts`.

        DatasetCorruptError if the manifest describes another context.
        """
        with storage_errors(self.directory):
            written = write_context(self.directory, -1 - number, context)
            if self._contexts.get(written.cwd, written) != written:
                raise DatasetCorruptError(
                    f"{self.directory / written.file}: the new context differs from the manifest",
                    hint="choose another directory",
                )
            self._contexts[written.cwd] = written
            contexts = sorted(self._contexts.values(), key=lambda context: context.file)
            self._write_manifest(replace(self.manifest, contexts=tuple(contexts)))

    def made_under(self, kernel: str) -> None:
        """Note the release of a kernel under which records are made."""
        if kernel not in self.manifest.kernels:
            kernels = (*self.manifest.kernels, kernel)
            with storage_errors(self.directory):
                self._write_manifest(replace(self.manifest, kernels=kernels))

    def made_over(self, layer: str) -> None:
        """Note how a host that makes records stores the system's files (`lower_layer`)."""
        layers = self.manifest.layers
        if layer not in layers:
            if layers:
                self._report(
                    f"note: the lower layer is {layer} here, earlier records have {layers[-1]}"
                )
            with storage_errors(self.directory):
                self._write_manifest(replace(self.manifest, layers=(*layers, layer)))

    def close(self) -> None:
        """Flush everything to the disk and release the lock."""
        with storage_errors(self._data):
            self._opened.close()

    def _close_journals(self) -> None:
        for journal in self._journals.values():
            journal.close()
        self._journals.clear()

    # opening

    def _open(self, plan: Plan, kernel: str | None) -> None:
        path = self.directory / MANIFEST
        if path.exists():
            manifest = read_manifest(self.directory)
            differences = manifest.plan.differences(plan)
            if differences:
                raise DatasetMismatchError(str(self.directory), differences)
            if not self._remake:
                self._refuse_emptied(manifest)
        else:
            self._refuse_foreign()
            manifest = Manifest(
                plan=plan, count=self.count, kernels=() if kernel is None else (kernel,)
            )
        self._data.mkdir(exist_ok=True)
        for directory in (self.directory, self._data, self.directory / CONTEXTS):
            for leftover in directory.glob(f"{TEMPORARY}*"):
                leftover.unlink()
        damaged = (shard for shard in manifest.shards if not self._intact(shard, plan.kind))
        self.gone = {shard.number for shard in damaged}
        self.manifest = manifest
        self._find_files()
        held = self._held()
        if held > self._numbers[-1] + 1:
            less = f"count: {held} records in the dataset, {self.count} requested"
            raise DatasetMismatchError(str(self.directory), [less])
        if path.exists() and self.kept < self.count:
            refuse_older_records(self.directory, plan)
        for shard in manifest.shards:
            if shard.records != len(self._own(shard.number)) and self._finished(shard.number):
                self._reopen(shard)
        kernels = self.manifest.kernels
        if kernel is not None and kernel not in kernels and self.kept < self.count:
            self._report(
                f"note: this host's kernel is {kernel}, earlier records have {kernels[-1]}"
            )
            kernels = (*kernels, kernel)
        manifest = replace(self.manifest, count=self.count, kernels=kernels)
        if manifest != self.manifest or not path.exists():
            self._write_manifest(manifest)
        write_readme(self.directory, manifest.plan)

    def _refuse_foreign(self) -> None:
        """Raise DatasetCorruptError for a directory without a manifest but with other files."""
        for entry in sorted(self.directory.iterdir()):
            empty = entry.name == DATA and entry.is_dir() and not any(entry.iterdir())
            if empty or entry.name.startswith(TEMPORARY):
                continue
            raise DatasetCorruptError(
                f"{self.directory} is neither empty nor a dataset: it has {entry.name!r}, "
                f"but no {MANIFEST}",
                hint="choose an empty or new directory",
            )

    def _refuse_emptied(self, manifest: Manifest) -> None:
        """Raise DatasetCorruptError if all listed shards are missing.

        Their directory is then probably not mounted, or not copied yet.
        """
        files = [self.directory / shard.file for shard in manifest.shards]
        if files and not any(map(Path.exists, files)):
            raise DatasetCorruptError(
                f"{self.directory / MANIFEST} lists finished shards, "
                f"but none of them is in {self._data}",
                hint="restore the files, or start in another directory",
            )

    def _intact(self, shard: Shard, kind: str) -> bool:
        """Whether a listed shard exists. DatasetCorruptError if its bytes differ."""
        path = self.directory / shard.file
        try:
            digest = decompressed_sha256(path)
        except FileNotFoundError:
            self._report(f"{shard.file} is missing and will be generated again")
            return False
        except DamagedFile as error:
            digest = f"unknown, {error.strerror}"
        if digest == shard.sha256:
            return True
        if self._remake or _journal_path(self._data, shard.number).exists():
            return False  # a run recreated the shard, but did not write the manifest yet
        again = f"remove {path} and import the same list again, or choose another directory"
        raise DatasetCorruptError(
            f"{path} was changed: its SHA-256 is {digest}, but {shard.sha256} in the manifest",
            hint=f"shioenv dataset repair {self.directory}" if kind == "generate" else again,
        )

    def _find_files(self) -> None:
        """Open the journals; remove unlisted shards, which are recreated from their journals."""
        names = [entry.name for entry in self._data.iterdir()]
        journals, shards = (
            {int(match[1]) for match in map(pattern.match, names) if match}
            for pattern in (JOURNAL, _SHARD)
        )
        for number in sorted(shards - self._listed.keys()):
            path = self.directory / self._file(number)
            if number not in journals:
                raise DatasetCorruptError(
                    f"{path} is not in {self.directory / MANIFEST}",
                    hint=f"remove {path}, then run the same command to generate it again",
                )
            path.unlink()
        for number in sorted(journals):
            if self._finished(number) or (self._remake and number in self.gone):
                _journal_path(self._data, number).unlink()
            else:
                self._journal(number)

    def _held(self) -> int:
        """Return one more than the highest number of a record in shards and journals."""
        shards = [shard.number * SHARD_RECORDS + shard.records for shard in self.manifest.shards]
        journals = [max(kept.values, default=-1) + 1 for kept in self._journals.values()]
        return max([0, *shards, *journals])

    def _reopen(self, shard: Shard) -> None:
        """Convert a short shard back to a journal, because more records are requested now."""
        journal = _journal_path(self._data, shard.number)
        with reading(self.directory / shard.file) as lines, replacing(journal) as file:
            file.writelines(map(checksummed, lines))
        self._write_manifest(self.manifest.without_shard(shard.number))
        (self.directory / shard.file).unlink()
        self._journal(shard.number)

    # writing

    def _start(self, number: int) -> int:
        """Return how many records precede those of a shard."""
        return bisect_left(self._numbers, number * SHARD_RECORDS)

    def _own(self, number: int) -> Sequence[int]:
        """Return the numbers of the records of a full shard."""
        return self._numbers[self._start(number) : self._start(number + 1)]

    def _journal(self, number: int) -> Journal[_Kept]:
        def read(content: bytes) -> tuple[int, _Kept] | None:
            """Return number and facts of the record in a journal's line; None if damaged."""
            try:
                record = decode(content)
            except RecordError:
                return None
            if record.session_id // SHARD_RECORDS != number:
                return None
            line = inputs_line(record.session_id, record.input, record.input_args)
            inputs = hashlib.sha256(line).digest()
            return record.session_id, _Kept(record.volatile, record.n_executions, inputs)

        if number not in self._journals:
            path = _journal_path(self._data, number)
            with storage_errors(path):
                self._journals[number] = Journal(path, read, self._report)
        return self._journals[number]

    def _stream_passed(self, number: int) -> None:
        """Compare the inputs of a listed shard with the stream; finish an unlisted one."""
        listed = self._listed.get(number)
        if (
            listed is not None
            and self._passed == self._start(number) + listed.records
            and self._tallies[number].inputs_sha256 != listed.inputs_sha256
        ):
            raise DatasetCorruptError(
                f"{self.directory / listed.file} differs from the inputs of its seed and sampler",
                hint="the manifest may be damaged; choose another directory",
            )
        if self._passed == self._start(number + 1):
            if self._finished(number):
                del self._tallies[number]
            else:
                self._seal_if_whole(number)

    def _seal_if_whole(self, number: int) -> None:
        own, journal = self._own(number), self._journals.get(number)
        if (
            journal is None
            or len(journal.values) < len(own)
            or self._passed < self._start(number + 1)
        ):
            return
        name, was = self._file(number), self._listed.get(number)
        same = True
        tally = self._tallies.pop(number)
        with storage_errors(self.directory / name):
            with replacing(self.directory / name) as file, open_compressed(file, name) as lines:
                for session_id in own:
                    content, kept = journal.read(session_id), journal.values[session_id]
                    tally.line(
                        content,
                        volatile=kept.volatile,
                        executions=kept.executions,
                        repeated=kept.repeated,
                    )
                    lines.write(content)
                    if was is not None and tally.records == was.records:
                        same = tally.sha256 == was.sha256
            shard, manifest = tally.shard(name), self.manifest
            self._write_manifest(
                manifest.with_shard(shard) if same else manifest.with_repaired(shard)
            )
            self.gone.discard(number)
            self._journals.pop(number).remove()

    def _file(self, number: int) -> str:
        return shard_file(number, self.manifest.plan.compression)

    def _write_manifest(self, manifest: Manifest) -> None:
        atomic_write(self.directory / MANIFEST, manifest.encode())
        self.manifest = manifest

    @property
    def manifest(self) -> Manifest:
        """The dataset's current manifest."""
        return self._manifest

    @manifest.setter
    def manifest(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._contexts = {context.cwd: context for context in manifest.contexts}
        self._listed = {shard.number: shard for shard in manifest.shards}

    def _finished(self, number: int) -> bool:
        """Whether a shard is listed and need not be recreated."""
        return number in self._listed and number not in self.gone


class _Kept(NamedTuple):
    """The properties of a journal's record that the manifest counts."""

    volatile: bool
    executions: int
    inputs: bytes | None
    """For a record that was in the journal when the run started: a digest of its input, to be
    compared with the stream. None for a record of this run."""
    repeated: tuple[str, ...] = ()
    """The reason if the history had to be run again; unknown for records of earlier runs."""


def _journal_path(data: Path, number: int) -> Path:
    return data / f"{number:05}.journal"
