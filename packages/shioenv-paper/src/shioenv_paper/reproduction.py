"""Reproduction of committed values: records of one seed, and the table of the default model.

The committed values, which are those of the shipped system, are compared with this host's values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from shioenv.dataset.generate import Progress, generate
from shioenv.dataset.record_reader import read_records
from shioenv.domain.record import encode
from shioenv.execution.local import LocalExecutor
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.system.store import find_system
from shioenv_eval.evaluate import evaluate
from shioenv_eval.results import GROUPS, SHOWN

COUNT, SEED = 1000, 60
"""Number of records, and their seed (our choice)."""

MODEL, SUITE = "default", "public-test"
REPORT = "report.json"

MOST_APART = 3
"""Maximum number of records that are volatile in only one of the two runs (our choice).

Chance decides whether two runs of an input differ.
"""

VALUES = "reproduction.json"
"""The file of the committed values, beside this module."""


@dataclass(frozen=True, slots=True)
class Reproduced:
    """Values that this host made, or the committed ones."""

    system: str
    system_digest: str
    records: Mapping[str, str]
    """The first 16 hex digits of each record's SHA-256, by its number."""
    volatile: tuple[str, ...]
    """The numbers of the volatile records."""
    table: Mapping[str, Mapping[str, float | None]]
    """The metrics of the default model on the public test suite, by group."""
    seed: int = SEED

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Reproduced:
        """Parse the output of `to_json`."""
        return cls(**{**document, "volatile": tuple(document["volatile"])})

    def to_json(self) -> dict[str, Any]:
        """Return the values as a JSON object."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Reproduction:
    """A comparison of this host's values with the committed ones."""

    made: Reproduced
    committed: Reproduced

    @property
    def left_out(self) -> frozenset[str]:
        """The records that are volatile on either side, which are not compared."""
        return frozenset(self.made.volatile) | frozenset(self.committed.volatile)

    @property
    def apart(self) -> list[str]:
        """The records that are volatile on one side only."""
        return _sorted(frozenset(self.made.volatile) ^ frozenset(self.committed.volatile))

    @property
    def differing(self) -> list[str]:
        """The compared records that differ, or that one side lacks."""
        made, committed = self.made.records, self.committed.records
        compared = (made.keys() | committed.keys()) - self.left_out
        return _sorted(name for name in compared if made.get(name) != committed.get(name))

    @property
    def faults(self) -> list[str]:
        """The forbidden differences, a line for each; empty if everything was reproduced."""
        found = []
        if self.made.system_digest != self.committed.system_digest:
            found.append(
                f"the system is {self.made.system_digest[:12]}, "
                f"not {self.committed.system_digest[:12]}"
            )
        if self.differing:
            found.append(f"records differ: {', '.join(self.differing)}")
        if len(self.apart) > MOST_APART:
            found.append(f"volatile on one side only: {', '.join(self.apart)}")
        for group, figures in self.committed.table.items():
            for name, value in figures.items():
                here = self.made.table[group][name]
                if here != value:
                    found.append(f"table, {group}, {name}: {here}, not {value}")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the report; it has no time, host or rate."""
        kept = {
            name: digest for name, digest in self.made.records.items() if name not in self.left_out
        }
        return {
            "reproduced": not self.faults,
            "faults": self.faults,
            "system": self.made.system,
            "system_digest": self.made.system_digest,
            "seed": self.made.seed,
            "records": len(self.made.records),
            "compared_records": len(kept),
            "compared_records_digest": _digest(kept),
            "volatile_on_one_side": self.apart,
            "table": self.made.table,
            "table_digest": _digest(self.made.table),
        }


def committed_values() -> Reproduced:
    """Return the committed values."""
    text = files("shioenv_paper").joinpath(VALUES).read_text(encoding="utf-8")
    return Reproduced.from_json(json.loads(text))


def made_values(
    out: Path,
    *,
    workers: int | None = None,
    records: Callable[[Progress], None] | None = None,
    answers: Callable[[str, int, int, int], None] = lambda name, done, total, kept: None,
) -> Reproduced:
    """Make the values in `out`; after an interruption, only the missing ones.

    Errors: those of `generate` and `evaluate`.
    """
    system = find_system()
    with LocalExecutor(workers) as executor:
        generate(out / "records", count=COUNT, seed=SEED, executor=executor, report=records)
    digests, volatile = {}, []
    for record in read_records(out / "records", check=True):
        name = str(record.session_id)
        digests[name] = hashlib.sha256(encode(record)).hexdigest()[:16]
        if record.volatile:
            volatile.append(name)
    done = evaluate(SUITE, [MODEL], out / "answers", workers=workers, report=answers)
    judged = done.document["predictors"].get(MODEL, {})
    table = {
        group: {name: judged[group][name][0] if judged else None for name in SHOWN}
        for group in GROUPS
    }
    return Reproduced(system.name, system.digest, digests, tuple(volatile), table)


def reproduce(made: Reproduced, out: Path) -> Reproduction:
    """Compare values with the committed ones and write the report below `out`."""
    found = Reproduction(made, committed_values())
    with storage_errors(out):
        atomic_write(out / REPORT, f"{json.dumps(found.to_json(), indent=1)}\n".encode())
    return found


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _sorted(names: Sequence[str] | Any) -> list[str]:
    return sorted(names, key=int)
