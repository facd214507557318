"""Training examples of sequence models, as tokens in packed files.

The files are memory-mapped. The training inputs are stored as hashes, from which only the presence
of a given input can be checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shioenv.errors import ModelError
from shioenv.files.regular import open_regular
from shioenv_model.memory.members import (
    array_member,
    arrays_member,
    json_member,
    raise_model_errors,
)

if TYPE_CHECKING:  # codec needs `regex`, but `Seen` does not
    from shioenv_model.sequence.codec import Codec

SEEN = "seen.npz"
"""The file of hashes in a directory of examples, and in that of a model trained on them."""


class Seen:
    """The training inputs of a model and their normal forms, loaded on first use.

    `data` is the name of the model's directory. Errors: every use raises ModelError if the file of
    hashes is missing or damaged.
    """

    def __init__(self, directory: Path) -> None:
        self.data, self._directory = str(directory), directory

    @cached_property
    def _hashes(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """The hashes of the texts, and those of the forms."""
        file = self._directory / SEEN
        if not file.exists():
            raise ModelError(
                f"{self._directory} does not describe its training data: {SEEN} is missing",
                hint="prepare the examples again, and train on them",
            )
        kept = arrays_member(file)
        with raise_model_errors(file):
            texts, forms = kept["texts"], kept["forms"]
            if any((each.ndim, each.dtype) != (1, np.dtype(np.uint64)) for each in kept.values()):
                raise ValueError("it contains no hashes")
        return texts, forms

    def __len__(self) -> int:
        """Return the number of distinct inputs."""
        return len(self._hashes[0])

    def has_text(self, text: str) -> bool:
        """Whether the model was trained on this input, ignoring differences in white space."""
        return _holds(self._hashes[0], " ".join(text.split()))

    def has_form(self, form: str | None) -> bool:
        """Whether the model was trained on an input of this normal form (`shioenv.bash.normal`)."""
        return form is not None and _holds(self._hashes[1], form)


def write_seen(directory: Path, inputs: Iterable[tuple[str, str | None]]) -> None:
    """Write the hashes of inputs and of their normal forms into a directory.

    Each hash has 8 bytes. The result does not depend on the order of the inputs.
    """
    pairs = list(inputs)
    texts = _sorted(" ".join(text.split()) for text, _ in pairs)
    forms = _sorted(form for _, form in pairs if form is not None)
    np.savez(directory / SEEN, texts=texts, forms=forms)


def _hash(text: str) -> int:
    data = text.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _sorted(texts: Iterator[str]) -> npt.NDArray[np.uint64]:
    return np.unique(np.fromiter(map(_hash, texts), dtype=np.uint64))


def _holds(hashes: npt.NDArray[np.uint64], text: str) -> bool:
    wanted = np.uint64(_hash(text))
    place = int(np.searchsorted(hashes, wanted))
    return place < len(hashes) and bool(hashes[place] == wanted)


ROW = np.dtype([("start", "<u8"), ("source", "<u2"), ("target", "<u2"), ("dev", "u1")])


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A prompt and its target, as tokens."""

    source: list[int]
    target: list[int]
    dev: bool
    """Whether the example is for evaluation, not for training."""
    text: str
    """The input from which the example was made."""
    form: str | None
    """The normal form of the input; None if it has none."""


class Examples:
    """The examples in a directory written by `write_examples`."""

    def __init__(self, directory: Path) -> None:
        """Open the examples. Errors: ModelError if the directory has none."""
        self.facts: dict[str, Any] = json_member(directory / "examples.json", dict[str, Any])
        self.rows: npt.NDArray[Any] = array_member(directory / "examples.npy", ROW)
        file = directory / "tokens.bin"
        with raise_model_errors(file):
            open_regular(file).close()
            self._tokens = np.memmap(file, dtype="<u2", mode="r")
            lengths = self.rows["source"].astype(np.uint64) + self.rows["target"]
            if (self.rows["start"] > len(self._tokens) - lengths).any():
                raise ValueError("it ends before an example that a row refers to")
        self.directory = directory
        from shioenv_model.sequence.codec import Codec

        self.codec = Codec.read(directory)

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self, *, dev: bool) -> npt.NDArray[np.int64]:
        """Return the numbers of the dev examples, or of the training examples, in order."""
        found: npt.NDArray[np.int64] = np.flatnonzero(self.rows["dev"] == int(dev))
        return found

    def source(self, number: int) -> npt.NDArray[np.int64]:
        """Return the tokens of an example's prompt."""
        row = self.rows[number]
        return self._slice(int(row["start"]), int(row["source"]))

    def target(self, number: int) -> npt.NDArray[np.int64]:
        """Return the tokens of an example's target."""
        row = self.rows[number]
        return self._slice(int(row["start"]) + int(row["source"]), int(row["target"]))

    def _slice(self, start: int, length: int) -> npt.NDArray[np.int64]:
        return np.asarray(self._tokens[start : start + length]).astype(np.int64)


def write_examples(
    directory: Path, codec: Codec, examples: Iterable[TrainingExample], facts: dict[str, Any]
) -> int:
    """Write examples into a directory, and return their number.

    The hashes of the training inputs are written, too. `facts` are stored with the examples.
    Errors: ModelError if there is no training example.
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
        raise ModelError("there are no examples to train on")
    write_seen(directory, seen)
    np.save(directory / "examples.npy", np.array(rows, dtype=ROW))
    counts = {"examples": len(rows), "dev": sum(row[3] for row in rows), "tokens": at}
    text = json.dumps({**facts, **counts}, ensure_ascii=False, indent=1)
    (directory / "examples.json").write_text(f"{text}\n", encoding="utf-8")
    return len(rows)
