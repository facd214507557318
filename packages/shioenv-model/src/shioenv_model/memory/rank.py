"""Ranking of rewritten answers: features, and boosted trees that score them.

`ours` is the queried command, `theirs` that of a neighbour (a similar record). The trees are
trained with scikit-learn and stored as arrays, so that inference needs only NumPy.
"""

from __future__ import annotations

import math
import posixpath
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shioenv.domain.runner import State
from shioenv.errors import ModelError
from shioenv_model.bash.work import spend
from shioenv_model.memory.forms import UNKNOWN, UNKNOWN_LONG
from shioenv_model.memory.members import arrays_member, raise_model_errors
from shioenv_model.memory.rewrite import Kept, Taken

Numbers = npt.NDArray[np.float64]

PAIR = (
    "options that are ours alone", "options that are theirs alone",
    "values that differ, of one class", "values that differ in class", "operands more or fewer",
    "other numbers", "other words", "other patterns", "other addresses", "other files",
    "other directories", "other links", "other missing names", "other names nowhere",
    "standard input for a file", "operands of another class", "another order of options",
    "another kind of file name", "spelt otherwise", "pattern or variable on one side",
    "a mistaken option on one side",
)  # fmt: skip
"""The differences between two commands, which the distance weighs."""

FEATURES = (
    *PAIR,
    "equal operands", "our operands", "our options", "distance", "distance to the nearest",
    "share of the near votes", "share of all votes", "votes", "different answers",
    "votes that were not rewritten", "utility", "length", "length that rewriting added",
    "exit code", "no patch", "no output", "how it was rewritten", "a word of theirs is left",
    "volatile", "place",
)  # fmt: skip
"""The input features of the trees."""

WEIGHTS = (
    1.0, 1.0, 0.35, 0.9, 1.5, 0.25, 0.25, 0.5, 0.5, 0.4, 0.2, 0.2, 0.1, 0.1, 0.3, 1.2, 0.1, 0.1,
    0.03, 0.2, 3.0,
)  # fmt: skip
"""Weights of `PAIR` for an untrained distance (our choice)."""

_OTHER = {
    "N": 5, "W": 6, "G": 7, "U": 8, "H": 8, "f": 9, "d": 10, "l": 11, "s": 11, "m": 12, "M": 13,
    "x": 14,
}  # fmt: skip
_MISTAKEN = frozenset({UNKNOWN, UNKNOWN_LONG})
_LONGEST = 2000.0
_SHARP, _SOFT = 0.1, 0.5
"""Length scales at which a vote's weight decays with distance (our choice)."""
_ADDRESS = re.compile(r"(\w+://)?[^/?#]*")
_SAME_HOST = 0.25
"""Difference between two addresses of the same host (our choice)."""


_MARKS = re.compile(r"[:=,+%@]")
"""Separators between parts of different meaning in a word: `alice:users`, `key=value`."""


def command_difference(ours: Taken, theirs: Taken) -> list[float]:
    """Return the differences between two commands: a number for each name of `PAIR`."""
    found = [0.0] * len(PAIR)
    own, other = Counter(ours.form.options), Counter(theirs.form.options)
    if ours.form.options != theirs.form.options:
        alone, theirs_alone = list((own - other).elements()), list((other - own).elements())
        for name, value in list(alone):
            match = next((each for each in theirs_alone if each[0] == name), None)
            if match is not None:
                if name in _MISTAKEN:
                    alone.remove((name, value))
                    theirs_alone.remove(match)
                    found[18] += 1
                    continue
                alone.remove((name, value))
                theirs_alone.remove(match)
                same = _class(value) == _class(match[1])
                found[2 if same else 3] += 1
        found[0], found[1] = float(len(alone)), float(len(theirs_alone))
        found[16] = float(own == other)
    found[4] = float(abs(len(ours.operands) - len(theirs.operands)))
    for our, their in zip(ours.operands, theirs.operands, strict=False):
        if our.word == their.word and our.kind == their.kind:
            if our.kind in "fd" and (our.content, our.names) != (their.content, their.names):
                found[_OTHER[our.kind]] += 1  # the file or directory has changed since
            continue
        if our.kind == "x" and their.kind in "fl":
            found[14] += 1
        elif our.kind != their.kind:
            found[15] += 1
        elif our.path and our.path == their.path:
            found[18] += 1
        elif our.kind in "UH" and address_host(our.word) == address_host(their.word):
            is_bare = [address_host(each.word) == each.word for each in (our, their)]
            found[_OTHER[our.kind]] += _SAME_HOST if is_bare[0] == is_bare[1] else 1
        else:
            found[_OTHER[our.kind]] += 1
            ends = posixpath.splitext(our.path)[1] != posixpath.splitext(their.path)[1]
            alike = _MARKS.findall(our.word) == _MARKS.findall(their.word)
            found[17] += ends or our.is_system != their.is_system or not alike
    found[18] += ours.form.command != theirs.form.command
    found[20] = float(_mistakes(ours) != _mistakes(theirs))
    found[19] = float(ours.form.matched != theirs.form.matched)
    return found


def address_host(address: str) -> str:
    """Return the part of an address before its path: protocol, host and port."""
    match = _ADDRESS.match(address)
    return match[0] if match else address


def _mistakes(taken: Taken) -> frozenset[str]:
    return _MISTAKEN.intersection(name for name, _ in taken.form.options)


def _class(value: str | None) -> str:
    if value is None:
        return ""
    if value.lstrip("+-").isdigit():
        return "number"
    return "path" if "/" in value or "." in value else "word"


@dataclass(frozen=True)
class Candidate:
    """A rewritten answer with its evidence.

    `how` is the method of rewriting (`shioenv_model.memory.rewrite`). `votes` is the number of
    records that give the answer. `near` and `all` are sums of the votes, weighted by distance with
    two length scales.
    """

    kept: Kept
    how: int
    number: int
    """The nearest record that gives the answer."""
    pair: Sequence[float]
    """The differences between the nearest record's command and the queried one."""
    distance: float
    near: float
    all: float
    votes: int
    unchanged: int
    added: int
    leftover: bool
    place: int
    note: str = ""
    """How the answer was made, if it was not rewritten from the record."""


@dataclass
class CandidateGroup:
    """Records that give the same answer, collected for a `Candidate`."""

    kept: Kept
    how: int
    number: int
    pair: Sequence[float]
    distance: float
    place: int
    added: int
    leftover: bool
    near: float = 0.0
    all: float = 0.0
    votes: int = 0
    unchanged: int = 0
    members: set[int] = field(default_factory=set)

    def add(self, number: int, distance: float, nearest: float, unchanged: bool) -> None:
        """Count one more record. `nearest` is the distance of the nearest record of all."""
        if number in self.members:
            return
        self.members.add(number)
        self.near += math.exp(-(distance - nearest) / _SHARP)
        self.all += math.exp(-(distance - nearest) / _SOFT)
        self.votes += 1
        self.unchanged += unchanged

    @property
    def candidate(self) -> Candidate:
        """The answer, with the counts so far."""
        return Candidate(
            kept=self.kept, how=self.how, number=self.number, pair=self.pair,
            distance=self.distance, near=self.near, all=self.all, votes=self.votes,
            unchanged=self.unchanged, added=self.added, leftover=self.leftover, place=self.place,
        )  # fmt: skip


def features(ours: Taken, candidates: Sequence[Candidate]) -> Numbers:
    """Return the `FEATURES` of each candidate, one row each."""
    nearest = min((each.distance for each in candidates), default=0.0)
    near = sum(each.near for each in candidates) or 1.0
    every = sum(each.all for each in candidates) or 1.0
    utility = zlib.crc32(ours.form.utility.encode("utf-8", "surrogateescape")) % 251
    equal = 0.0
    rows = []
    for each in candidates:
        kept = each.kept
        equal = len(ours.operands) - sum(each.pair[5:16]) - each.pair[18]
        rows.append(
            [
                *each.pair,
                *(equal, len(ours.operands), len(ours.form.options)),
                *(each.distance, each.distance - nearest, each.near / near, each.all / every),
                *(each.votes, len(candidates), each.unchanged, utility),
                *(min(len(kept.output), _LONGEST), max(-_LONGEST, min(each.added, _LONGEST))),
                *(kept.exit_code, kept.patch == "[]", not kept.output),
                *(each.how, each.leftover, kept.volatile, each.place),
            ]
        )
    return np.array(rows, dtype=np.float64).reshape(len(candidates), len(FEATURES))


@dataclass(frozen=True)
class Ranker:
    """A learned distance, the trees, and the accuracy of answers by score."""

    weights: Numbers
    """The weights of `PAIR` in the distance."""
    trees: dict[str, npt.NDArray[Any]]
    """Arrays by name: `feature`, `threshold`, `left`, `right` and `value` have a row for each tree.
    `start` is the initial value of the sum."""
    scores: Numbers
    """The trees' scores, ascending."""
    shares: Numbers
    """The accuracy, 0 to 1, at each of `scores`."""

    def probability(self, rows: Numbers) -> Numbers:
        """Return the probability of each candidate to be correct, 0 to 1; 0 without trees."""
        if not len(rows) or not len(self.trees["feature"]):
            return np.zeros(len(rows))
        feature, threshold, after = self._nodes
        count, most = self.trees["feature"].shape
        here = np.arange(len(rows))[:, None] * rows.shape[1]
        at, before = np.tile(np.arange(count) * most, (len(rows), 1)), None
        while before is None or (at != before).any():
            before = at
            at = after[2 * at + (rows.ravel()[here + feature[at]] > threshold[at])]
        raw = self.trees["value"].ravel()[at].sum(axis=1) + self.trees["start"][0]
        result: Numbers = 1.0 / (1.0 + np.exp(-raw))
        return result

    @cached_property
    def _nodes(self) -> tuple[npt.NDArray[np.intp], Numbers, npt.NDArray[np.intp]]:
        """The nodes of all trees, concatenated, as three arrays.

        They have the feature, the threshold, and the two children of each node. The children of a
        leaf are the leaf itself.
        """
        feature, most = self.trees["feature"], self.trees["feature"].shape[1]
        first = np.arange(len(feature))[:, None] * most
        itself = first + np.arange(most)
        left, right = (
            np.where(feature >= 0, first + self.trees[side], itself).ravel()
            for side in ("left", "right")
        )
        numbers = np.maximum(feature, 0).ravel().astype(np.intp)
        after = np.stack((left, right), axis=1).ravel()
        return numbers, self.trees["threshold"].ravel(), after

    def confidence(self, probability: float) -> float:
        """Return the accuracy on held-out records at this probability."""
        if not len(self.scores):
            return float(probability)
        return float(np.interp(probability, self.scores, self.shares))

    def save(self, path: Path) -> None:
        """Write the ranker for `load_ranker`."""
        arrays: dict[str, Any] = {f"tree_{name}": value for name, value in self.trees.items()}
        arrays |= {"weights": self.weights, "scores": self.scores, "shares": self.shares}
        np.savez_compressed(path, **arrays)


def untrained() -> Ranker:
    """Return a ranker with the hand-set distance `WEIGHTS` and no trees."""
    none = np.zeros(0)
    return Ranker(np.array(WEIGHTS), {"feature": np.zeros((0, 0))}, none, none)


def load_ranker(path: Path) -> Ranker:
    """Load the ranker that `save` wrote. Errors: ModelError."""
    kept = arrays_member(path)
    with raise_model_errors(path):
        trees = {
            name.removeprefix("tree_"): array
            for name, array in kept.items()
            if name.startswith("tree_")
        }
        ranker = Ranker(kept["weights"], trees, kept["scores"], kept["shares"])
        if ranker.weights.shape != (len(PAIR),):
            raise ModelError(f"{path} was trained by another release", hint="train the model again")
        _check(ranker)
    return ranker


def _check(ranker: Ranker) -> None:
    """Check the arrays. Errors: ValueError if they are inconsistent; KeyError if one is missing."""
    scores, shares = ranker.scores, ranker.shares
    if scores.ndim != 1 or scores.shape != shares.shape or (np.diff(scores) < 0).any():
        raise ValueError("its scores and shares are inconsistent")
    if ((shares < 0) | (shares > 1)).any():
        raise ValueError("a share is below 0 or above 1")
    feature = ranker.trees["feature"]
    if not feature.size:
        return
    parts = [ranker.trees[name] for name in ("feature", "left", "right", "threshold", "value")]
    if feature.ndim != 2 or any(each.shape != feature.shape for each in parts):
        raise ValueError("its trees have different sizes")
    if any(each.dtype.kind not in "iu" for each in parts[:3]):
        raise ValueError("its trees have nodes that are not numbers")
    here = np.broadcast_to(np.arange(feature.shape[1]), feature.shape)[feature >= 0]
    for side in parts[1:3]:
        after = side[feature >= 0]
        if ((after <= here) | (after >= feature.shape[1])).any():
            raise ValueError("a node has a successor that does not come after it")
    if (feature >= len(FEATURES)).any() or ranker.trees["start"].shape != (1,):
        raise ValueError("its trees refer to missing features")


_SAID = (
    ("No such file or directory", lambda entry: entry is not None),
    ("File exists", lambda entry: entry is None),
    ("Is a directory", lambda entry: entry is not None and not entry.perms.startswith("d")),
    ("Not a directory", lambda entry: entry is not None and entry.perms.startswith("d")),
)
"""The system's messages about a file (errno(3)), each with a test for entries that rule it out."""


def contradicts(kept: Kept, ours: Taken, state: State) -> bool:
    """Whether an answer reports a file error that the state's files disprove.

    Only files that the queried command names are checked. An error about standard input as a file
    is always wrong.
    """
    lines = [line for line in kept.output.splitlines() if " " in line]
    for said, is_wrong in _SAID:
        for line in lines:
            if not line.endswith(said):
                continue
            for each in (*ours.operands, *(one for _, one in ours.valued)):
                given = each.kind == "x"
                spend(1)
                if each.word not in line:
                    continue
                if not (each.key or (given and each.word)) or not re.search(
                    rf"(?:^|[ '\u2018]){re.escape(each.word)}['\u2019:]", line
                ):
                    continue
                if given or is_wrong(state.entry(each.word)):
                    return True
    return False
