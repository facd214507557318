"""Which inputs a model learned from, as hashes: whether a given one is among them can be told, and
nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shioenv.errors import ModelError
from shioenv.files.members import arrays_member, judged

SEEN = "seen.npz"
"""In the directory of examples, and of a model that learned from them."""


class Seen:
    """The inputs that a model learned from, and their normal forms."""

    def __init__(self, directory: Path) -> None:
        """Errors: ModelError for a directory that does not say."""
        file = directory / SEEN
        if not file.exists():
            raise ModelError(
                f"{directory} does not say what it was trained on: {SEEN} is missing",
                hint="make the examples anew, and train of them",
            )
        kept = arrays_member(file)
        with judged(file):
            self._texts, self._forms = kept["texts"], kept["forms"]
            if any((each.ndim, each.dtype) != (1, np.dtype(np.uint64)) for each in kept.values()):
                raise ValueError("it holds no hashes")

    def __len__(self) -> int:
        """Different inputs."""
        return len(self._texts)

    def has_text(self, text: str) -> bool:
        """Whether it learned from this input; white space does not count."""
        return _holds(self._texts, " ".join(text.split()))

    def has_form(self, form: str | None) -> bool:
        """Whether it learned from an input of this normal form (`shioenv.bash.normal`)."""
        return form is not None and _holds(self._forms, form)


def write_seen(directory: Path, inputs: Iterable[tuple[str, str | None]]) -> None:
    """Writes the hashes of inputs, each with its normal form, into a directory: 8 bytes each, the
    same for the same inputs in any order.
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
