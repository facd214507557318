"""The carried directory: examples, questions and settings, with a checksum of every file.

The other machine has Python, PyTorch and NumPy, and no package of this project. Therefore the
directory holds the modules of this package that run there.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PACK, EXAMPLES = "pack.json", "examples.xz"
CODE = "shioenv_paper"
LARGEST = 64 * 1024 * 1024
"""Maximum size of the directory in bytes."""

RUNS, OUT = "runs", "results.json"
"""The subdirectory that the other machine writes, and the file of results."""

MIXTURE = "mixture"
"""The regime on which the start is trained: the examples of all regimes."""

ROW = np.dtype(
    [("start", "<u8"), ("source", "<u2"), ("target", "<u2"), ("dev", "u1"), ("regimes", "u1")]
)
"""An example: its tokens, whether it is for evaluation, and a bit for each of its regimes."""

QUESTION = np.dtype([("start", "<u8"), ("length", "<u2"), ("suite", "u1"), ("case", "<u4")])
"""A prompt of a suite's case."""

Tokens = npt.NDArray[np.int64]


class CarriedError(Exception):
    """The directory is incomplete or damaged."""


@dataclass(frozen=True)
class CarriedPack:
    """The content of the directory."""

    facts: Mapping[str, Any]
    """The content of `pack.json`, without checksums."""
    tokens: npt.NDArray[np.uint16]
    rows: npt.NDArray[Any]
    questions: npt.NDArray[Any]
    digest: str = ""
    """SHA-256 (hex) of `pack.json`."""

    def numbers(self, regime: str, *, dev: bool) -> Tokens:
        """Return the numbers of a regime's examples, for training or for evaluation."""
        chosen = self.rows["dev"] == int(dev)
        if regime != MIXTURE:
            bit = self.facts["regimes"].index(regime)
            chosen &= (self.rows["regimes"] >> bit) & 1 == 1
        return np.flatnonzero(chosen).astype(np.int64)

    def example(self, number: int) -> tuple[Tokens, Tokens]:
        """Return the tokens of an example's prompt and target."""
        row = self.rows[number]
        start, source, target = int(row["start"]), int(row["source"]), int(row["target"])
        found = self.tokens[start : start + source + target].astype(np.int64)
        return found[:source], found[source:]

    def prompts(self) -> list[Tokens]:
        """Return the tokens of all questions' prompts."""
        return [
            self.tokens[int(row["start"]) : int(row["start"]) + int(row["length"])].astype(np.int64)
            for row in self.questions
        ]


def write_carried(directory: Path, carried: CarriedPack, modules: Mapping[str, bytes]) -> int:
    """Write the directory, and return its size in bytes.

    `modules` are the files that run there, by their paths. Errors: CarriedError if it is larger
    than `LARGEST`; nothing is written then.
    """
    data = io.BytesIO()
    np.savez(data, tokens=carried.tokens, rows=carried.rows, questions=carried.questions)
    files = {EXAMPLES: lzma.compress(data.getvalue(), preset=6), **modules}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    text = json.dumps({**carried.facts, "sha256": sums}, ensure_ascii=False, indent=1)
    files[PACK] = f"{text}\n".encode()
    size = sum(map(len, files.values()))
    if size > LARGEST:
        raise CarriedError(
            f"the pack has {size:,} bytes, and may have {LARGEST:,}: use fewer records"
        )
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return size


def read_carried(directory: Path) -> CarriedPack:
    """Read the directory. Errors: CarriedError if a file is missing or has another checksum."""
    try:
        text = (directory / PACK).read_bytes()
        facts = json.loads(text)
        sums = facts.pop("sha256")
    except (OSError, ValueError, KeyError) as error:
        raise CarriedError(f"{directory / PACK} cannot be read: {error}") from None
    for name, expected in sums.items():
        path = directory / name
        if not path.is_file():
            raise CarriedError(f"{path} is missing: carry the whole directory")
        if hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise CarriedError(f"{path} differs from the packed file: carry it again")
    with lzma.open(directory / EXAMPLES) as file:
        kept = np.load(io.BytesIO(file.read()))
        arrays = {name: kept[name] for name in ("tokens", "rows", "questions")}
    return CarriedPack(facts, **arrays, digest=hashlib.sha256(text).hexdigest())


def packed_rows(
    carried: CarriedPack, numbers: Tokens, width: int, seed: int
) -> tuple[Tokens, Tokens, Tokens]:
    """Pack examples, in a random order, into rows of `width` tokens.

    Return the rows' tokens, the number of each token's example (-1: padding), and 1 for the tokens
    of targets, which are learned. Between prompt and target is a padding token. Each
    example goes to the fullest open row that has space; few rows are open.
    """
    pad = int(carried.facts["tokens"]["pad"])
    open_rows: list[list[int]] = []
    spaces: list[int] = []
    closed: list[list[int]] = []
    lengths = carried.rows["source"].astype(np.int64) + carried.rows["target"] + 1
    for number in np.random.default_rng(seed).permutation(numbers).tolist():
        length = int(lengths[number])
        fits = [place for place, space in enumerate(spaces) if space >= length]
        if fits:
            place = min(fits, key=spaces.__getitem__)
        else:
            if len(spaces) == _OPEN:
                fullest = min(range(_OPEN), key=spaces.__getitem__)
                closed.append(open_rows.pop(fullest))
                spaces.pop(fullest)
            place = len(spaces)
            open_rows.append([])
            spaces.append(width)
        open_rows[place].append(number)
        spaces[place] -= length
    closed += open_rows
    ids = np.full((len(closed), width), pad, dtype=np.int64)
    owner = np.full_like(ids, -1)
    learned = np.zeros_like(ids)
    for line, row in enumerate(closed):
        at = 0
        for number in row:
            source, target = carried.example(number)
            end = at + len(source) + 1 + len(target)
            ids[line, at:end] = [*source, pad, *target]
            owner[line, at:end] = number
            learned[line, end - len(target) : end] = 1
            at = end
    return ids, owner, learned


_OPEN = 16
"""Number of rows that are filled at once."""


def export(results: Mapping[str, Any], *directories: Path) -> None:
    """Write the results into directories, each completely or not at all."""
    content = json.dumps(results, separators=(",", ":")).encode()
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        new = directory / f"{OUT}.new"
        new.write_bytes(content)
        new.replace(directory / OUT)
