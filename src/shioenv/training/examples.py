"""What sequence models are trained on, as tokens in packed files that are mapped into memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shioenv.errors import ModelError
from shioenv.files.members import array_member, json_member, judged
from shioenv.files.regular import open_regular
from shioenv.model.sequence.codec import Codec
from shioenv.training.seen import write_seen

ROW = np.dtype([("start", "<u8"), ("source", "<u2"), ("target", "<u2"), ("dev", "u1")])


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt and its target, as tokens."""

    source: list[int]
    target: list[int]
    dev: bool
    """It judges, and is not learned from."""
    text: str
    """The input that it is of."""
    form: str | None
    """Its normal form."""


class Examples:
    """A directory that `write_examples` filled."""

    def __init__(self, directory: Path) -> None:
        """Errors: ModelError for a directory that holds none."""
        self.facts: dict[str, Any] = json_member(directory / "examples.json", dict[str, Any])
        self.rows: npt.NDArray[Any] = array_member(directory / "examples.npy", ROW)
        file = directory / "tokens.bin"
        with judged(file):
            open_regular(file).close()
            self._tokens = np.memmap(file, dtype="<u2", mode="r")
            lengths = self.rows["source"].astype(np.uint64) + self.rows["target"]
            if (self.rows["start"] > len(self._tokens) - lengths).any():
                raise ValueError("it ends before an example that a row names")
        self.directory = directory
        self.codec = Codec.read(directory)

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self, *, dev: bool) -> npt.NDArray[np.int64]:
        """Those that judge, or those that are learned from, in order."""
        found: npt.NDArray[np.int64] = np.flatnonzero(self.rows["dev"] == int(dev))
        return found

    def source(self, number: int) -> npt.NDArray[np.int64]:
        """The prompt of an example."""
        row = self.rows[number]
        return self._slice(int(row["start"]), int(row["source"]))

    def target(self, number: int) -> npt.NDArray[np.int64]:
        """What is to be written to it."""
        row = self.rows[number]
        return self._slice(int(row["start"]) + int(row["source"]), int(row["target"]))

    def _slice(self, start: int, length: int) -> npt.NDArray[np.int64]:
        return np.asarray(self._tokens[start : start + length]).astype(np.int64)


def write_examples(
    directory: Path, codec: Codec, examples: Iterable[Example], facts: dict[str, Any]
) -> int:
    """Writes examples into a directory, with hashes of the inputs that are learned from; how many
    examples. `facts` is what is told of them.

    Errors: ModelError where there is none that is learned from.
    """
    directory.mkdir(parents=True, exist_ok=True)
    codec.save(directory)
    rows: list[tuple[int, int, int, int]] = []
    seen: dict[tuple[str, str | None], None] = {}
    at = 0
    with (directory / "tokens.bin").open("wb") as file:
        for example in examples:
            numbers = np.array([*example.source, *example.target], dtype="<u2")
            rows.append((at, len(example.source), len(example.target), int(example.dev)))
            file.write(numbers.tobytes())
            if not example.dev:
                seen[example.text, example.form] = None
            at += len(numbers)
    if not any(not row[3] for row in rows):
        raise ModelError("there is nothing to learn from")
    write_seen(directory, seen)
    np.save(directory / "examples.npy", np.array(rows, dtype=ROW))
    counts = {"examples": len(rows), "dev": sum(row[3] for row in rows), "tokens": at}
    text = json.dumps({**facts, **counts}, ensure_ascii=False, indent=1)
    (directory / "examples.json").write_text(f"{text}\n", encoding="utf-8")
    return len(rows)
