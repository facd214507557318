"""Split a dataset into parts without leakage between them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.bash.normal import normal
from shioenv.dataset.manifest import Manifest, finished_manifest
from shioenv.dataset.record_reader import read_contexts, read_records
from shioenv.dataset.select import selected_plan
from shioenv.dataset.write import ShardWriter, write_readme
from shioenv.domain.record import Record
from shioenv.errors import UsageError
from shioenv.files.durable import new_directory

REST = "train"
"""The part of all records that are in no other part."""
PARTS = (REST, "validation", "test")
"""The parts of a dataset, in the order in which other tools list them."""

_BUNDLE = re.compile(r"-[A-Za-z]{2,}")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The share of each part, 0 to 1; `train` gets the rest.

    Errors: UsageError if nothing is left for `train`, or nothing is split off.
    """

    test: float = 0.1
    validation: float = 0.0

    def __post_init__(self) -> None:
        parts = (self.test, self.validation)
        if any(not 0 <= part < 1 for part in parts) or not 0 < sum(parts) < 1:
            raise UsageError(
                f"shares of {self.test:g} and {self.validation:g} leave one part without records",
                hint="give shares such as --test 0.1 --validation 0.05",
            )

    def part_of(self, group: str, seed: int) -> str:
        """Return the part of a group. It depends only on the group and the seed."""
        digest = hashlib.sha256(f"{seed}\0{group}".encode("utf-8", "surrogatepass")).digest()
        place = int.from_bytes(digest[:8]) / 2**64
        if place < self.test:
            return "test"
        return "validation" if place < self.test + self.validation else REST

    @property
    def names(self) -> tuple[str, ...]:
        """Return the parts with a share above 0."""
        return (REST, "test", *(["validation"] if self.validation else []))


def split(
    source: str | Path,
    directory: str | Path,
    shares: Shares = Shares(),
    *,
    seed: int = 0,
    report: Callable[[int, int], None] = lambda done, count: None,
) -> Mapping[str, Manifest]:
    """Make a directory of datasets, `train`, `test` and perhaps `validation`, of all records.

    Records of one group (`group_of`) go into one part. Only the seed and the group determine the
    part: if the dataset is extended, its records remain in their parts. So the shares apply to
    groups, and only approximately to records. Records are not changed, not even their numbers, and
    each part is a selection of `source`. Return the manifest of each part. `report` is called
    with the number of records read so far, and the total.

    Errors: UsageError if a part would be empty, or the source is not finished. The errors of
    `select` are raised too.
    """
    source, directory = Path(source), Path(directory)
    manifest = finished_manifest(source)
    contexts = read_contexts(source)
    writers: dict[str, ShardWriter] = {}
    with ExitStack() as stack:
        top = stack.enter_context(new_directory(directory))
        for name in shares.names:
            said: dict[str, Any] = {"part": name, "seed": seed}
            said |= {"test": shares.test, "validation": shares.validation}
            (top / name).mkdir()
            plan = selected_plan(source, manifest, said)
            writers[name] = ShardWriter(top / name, plan, manifest.kernels, manifest.layers)
            writers[name].keep_contexts(contexts.values())
        for done, record in enumerate(read_records(source, check=True), 1):
            writers[shares.part_of(group_of(record), seed)].add(record)
            report(done, manifest.records)
        empty = [name for name, writer in writers.items() if not writer.written]
        if empty:
            raise UsageError(
                f"{source} is too small: no records for {' and '.join(empty)}",
                hint="use larger shares, another --seed, or more records",
            )
        write_readme(top, manifest.plan, sorted(writers, key=PARTS.index))
        return {name: writer.finish() for name, writer in writers.items()}


def group_of(record: Record) -> str:
    """Return the group of a record: `group_of_input` of its input.

    A record with a history is in the group of the first input of its session, so that a session
    stays together.
    """
    return group_of_input(record.history[0] if record.history else record.typed)


def group_of_input(typed: str) -> str:
    """Return the group of an input: numbers, names and the order of words make no difference.

    It is the set of words of the normal form, with bundled letters separated. Inputs without a
    normal form are in one group only if they differ in nothing but numbers.
    """
    form = normal(typed)
    if form is None:
        return _NUMBER.sub("0", typed)
    words: set[str] = set()
    for word in form.split():
        words |= {f"-{letter}" for letter in word[1:]} if _BUNDLE.fullmatch(word) else {word}
    return " ".join(sorted(words))
