"""Comparison of two behaviors: whether a sub-input has the same effects as the full input (delta).

Repeated runs of one input determine the noise threshold. They also determine which names are
ignored, because the runs disagree about them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import combinations
from operator import attrgetter

from rapidfuzz.distance import Indel, Levenshtein

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.errors import UsageError

CAP = 0.95
"""Upper bound of the threshold in Algorithm 1: outputs that are more similar always count as the
same."""


def noise_threshold(outputs: Sequence[bytes], *, cap: float = CAP) -> float:
    """Return the similarity that an output must exceed to count as the same (Algorithm 1).

    It lies between 0 and `cap`. The threshold is the mean of the pairwise similarities less two
    sample standard deviations. For a single pair the deviation is 0. For a single output the
    threshold is `cap`. Errors: UsageError for no output at all.
    """
    if not outputs:
        raise UsageError("a noise threshold needs at least one output")
    pairs = [similarity(a, b) for a, b in combinations(outputs, 2)]
    if not pairs:
        return cap
    spread = statistics.stdev(pairs) if len(pairs) > 1 else 0.0
    return max(0.0, min(cap, statistics.fmean(pairs) - 2 * spread))


@dataclass(frozen=True, slots=True)
class NoisyNames:
    """Paths or file names that runs disagree about (D-2v).

    A name that all runs have, but with different values, is an exact name. A name that only some
    runs have was probably chosen at random (`mktemp`): other runs will choose others. Such names of
    the same length in the same directory form a pattern of their common characters.
    """

    exact: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    """Names in which NUL matches any character except `/` and `~` (which begins an escaped `/`)."""

    def __bool__(self) -> bool:
        return bool(self.exact or self.patterns)

    def __contains__(self, name: str) -> bool:
        return name in self.exact or any(_fits(name, pattern) for pattern in self.patterns)

    @classmethod
    def of(cls, runs: Sequence[Mapping[str, object]]) -> NoisyNames:
        """Return the names on which runs disagree; each run maps names to values."""
        everywhere = set.intersection(*(set(run) for run in runs))
        exact = {name for name in everywhere if any(run[name] != runs[0][name] for run in runs[1:])}
        random: dict[tuple[str, int], list[str]] = {}
        for name in sorted(set().union(*runs) - everywhere):
            random.setdefault((_directory(name), len(name)), []).append(name)
        exact.update(name for names in random.values() for name in names)
        patterns = tuple(_common(names) for names in random.values() if len(names) > 1)
        return cls(frozenset(exact), patterns)


@dataclass(frozen=True, slots=True)
class Ignored:
    """Parts of behaviors that are not compared, because the input's own runs disagree (D-2v)."""

    exit_code: bool = False
    flags: bool = False
    patch_digest: bool = False
    paths: NoisyNames = field(default_factory=NoisyNames)
    contents: NoisyNames = field(default_factory=NoisyNames)


NOTHING = Ignored()

_effects = attrgetter(
    "exit_code", "timed_out", "output_truncated", "patch_digest", "patch", "content_digests"
)
"""The parts of a behavior that are compared between runs, apart from the output."""


@dataclass(frozen=True, slots=True)
class Noise:
    """The disagreement of N runs of one input, and the similarity of their outputs."""

    threshold: float
    """Algorithm 1 with its cap, 0 to 0.95."""
    strict_threshold: float
    """1 if all outputs had equal bytes. Then only outputs with equal bytes count as the same.

    Otherwise Algorithm 1 without its cap (D-2s)."""
    ignored: Ignored
    """The parts apart from the output on which the runs disagree."""
    volatile: bool
    """Whether the runs disagree in any part, or one of them is flagged as volatile."""

    @classmethod
    def of(cls, runs: Sequence[Behavior]) -> Noise:
        """Return the noise of one run or more, all from the same state. UsageError for no run."""
        outputs = [run.output for run in runs]
        threshold = noise_threshold(outputs)
        first = runs[0]
        steady = all(output == first.output for output in outputs)
        same = all(_effects(run) == _effects(first) for run in runs[1:])
        return cls(
            threshold=threshold,
            strict_threshold=1.0 if steady else noise_threshold(outputs, cap=1.0),
            ignored=NOTHING if same else _ignored(runs),
            volatile=not (steady and same) or any(run.volatile for run in runs),
        )


def operations_by_path(operations: Iterable[Operation]) -> dict[str, tuple[Operation, ...]]:
    """Group a patch's operations by their first path; for a move this is the old path."""
    by_path: dict[str, tuple[Operation, ...]] = {}
    for operation in operations:
        path: str = operation[1]
        by_path[path] = (*by_path.get(path, ()), operation)
    return by_path


def _ignored(runs: Sequence[Behavior]) -> Ignored:
    first = runs[0]
    return Ignored(
        exit_code=any(run.exit_code != first.exit_code for run in runs),
        flags=any(
            (run.timed_out, run.output_truncated) != (first.timed_out, first.output_truncated)
            for run in runs
        ),
        patch_digest=any(run.patch_digest != first.patch_digest for run in runs),
        paths=NoisyNames.of([operations_by_path(run.patch.operations) for run in runs]),
        contents=NoisyNames.of([run.content_digests for run in runs]),
    )


def _directory(name: str) -> str:
    """Return the directory of a name, which is a file name or part of a JSON Pointer."""
    return name[: max(name.rfind("/"), name.rfind("~1") + 1) + 1]


def _common(names: Sequence[str]) -> str:
    return "".join(
        same[0] if all(char == same[0] for char in same) else "\0"
        for same in zip(*names, strict=True)
    )


def _fits(name: str, pattern: str) -> bool:
    return len(name) == len(pattern) and all(
        expected == char or (expected == "\0" and char not in "/~")
        for char, expected in zip(name, pattern, strict=True)
    )


COMPARED_CHARACTERS = 8192
"""Number of characters of each output that are compared. The cost grows with the square of this
number."""


def similarity(a: bytes, b: bytes) -> float:
    """Return the normalised edit similarity of two outputs, 0 to 1; 1 if both are empty.

    This is the indel ratio 2 m / (len(a) + len(b)), with m the length of the longest common
    subsequence. It is symmetric. The raw text is compared: no case folding, no collapsing of blanks
    or digits. Section C.1.3 specifies only a "normalized edit similarity". We chose this ratio,
    because common libraries use that term for it. The text is the first 8,192 characters decoded as
    UTF-8; an undecodable byte counts as one character. Outputs that differ only after these
    characters have similarity 1.
    """
    if a == b:
        return 1.0
    return Indel.normalized_similarity(_text(a), _text(b))


def levenshtein_similarity(a: bytes, b: bytes) -> float:
    """Return 1 - Levenshtein distance / length of the longer output."""
    return Levenshtein.normalized_similarity(_text(a), _text(b))


def compared(output: bytes) -> bytes:
    """Return an output's beginning, up to 32 KiB, which has all characters that are compared."""
    return output[: 4 * COMPARED_CHARACTERS]


def _text(output: bytes) -> str:
    return compared(output).decode("utf-8", "surrogateescape")[:COMPARED_CHARACTERS]


BLOCK = 1024
"""Number of texts that are compared with as many others at once: 8 MB of similarities."""

NEAREST_CHARACTERS = 1024
"""Number of characters of each text that are compared. The cost grows with the square of this
number."""

_CLOSE = 1e-9
_SLACK = 0.05
"""Margin by which the library's cut-off is below the threshold: by rounding, the library may
exclude a similarity of exactly the threshold."""


def nearest(
    texts: Sequence[str], others: Sequence[str], threshold: float
) -> list[tuple[float, int] | None]:
    """Find each text's highest similarity to one of `others`, and the first index that has it.

    None if no other text reaches `threshold`. Similarity is the indel ratio of `similarity`, 0 to
    1, of the first 1,024 characters. Memory for similarities is bounded. Time grows with the
    product of the numbers of texts.
    """
    import numpy
    from rapidfuzz.process import cdist

    best: list[tuple[float, int] | None] = [None] * len(texts)
    cut = [text[:NEAREST_CHARACTERS] for text in others]
    for top in range(0, len(texts), BLOCK):
        rows = [text[:NEAREST_CHARACTERS] for text in texts[top : top + BLOCK]]
        for left in range(0, len(cut), BLOCK):
            scores = cdist(
                rows,
                cut[left : left + BLOCK],
                scorer=Indel.normalized_similarity,
                score_cutoff=max(0.0, threshold - _SLACK),
                dtype=numpy.float64,
            )
            columns = scores.argmax(axis=1)
            for row, column in enumerate(columns.tolist()):
                score = float(scores[row, column])
                known = best[top + row]
                if score >= threshold - _CLOSE and (known is None or score > known[0]):
                    best[top + row] = score, left + column
    return best


class Channel(StrEnum):
    """The channels in which two behaviors can differ, in the order of comparison."""

    EXIT_CODE = "exit_code"
    TIMED_OUT = "timed_out"
    OUTPUT_TRUNCATED = "output_truncated"
    PATCH = "patch"
    CONTENT = "content"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Difference:
    """The first channel in which two behaviors differ."""

    channel: Channel
    similarity: float | None = None
    """The similarity of the outputs, 0 to 1, if the channel is `OUTPUT`; else None."""


def differs(
    full: Behavior, reduced: Behavior, noise_threshold: float, *, ignore: Ignored = NOTHING
) -> Difference | None:
    """Return the first difference between two behaviors (the paper's delta), or None.

    Behaviors are the same if exit codes and context patches are equal and the outputs' similarity
    exceeds the threshold. A similarity equal to the threshold is not enough (Section C.1.3).
    Outputs with equal bytes are the same under any threshold, so a threshold of 1 requires equal
    bytes. The contents of files must be equal as well (our choice, because they are effects too).
    The same holds for reached limits of time and output. The parts in `ignore` are not compared.
    """
    if full.exit_code != reduced.exit_code and not ignore.exit_code:
        return Difference(Channel.EXIT_CODE)
    if not ignore.flags:
        if full.timed_out != reduced.timed_out:
            return Difference(Channel.TIMED_OUT)
        if full.output_truncated != reduced.output_truncated:
            return Difference(Channel.OUTPUT_TRUNCATED)
    if _operations(full.patch, ignore.paths) != _operations(reduced.patch, ignore.paths) or (
        full.patch_digest != reduced.patch_digest and not ignore.patch_digest
    ):
        return Difference(Channel.PATCH)
    contents = _contents(full.content_digests, ignore.contents)
    if contents != _contents(reduced.content_digests, ignore.contents):
        return Difference(Channel.CONTENT)
    if full.output == reduced.output:
        return None
    likeness = similarity(full.output, reduced.output)
    return None if likeness > noise_threshold else Difference(Channel.OUTPUT, likeness)


def _operations(patch: ContextPatch, ignore: NoisyNames) -> tuple[Operation, ...]:
    if not ignore:
        return patch.operations
    return tuple(operation for operation in patch.operations if operation[1] not in ignore)


def _contents(digests: Mapping[str, str], ignore: NoisyNames) -> Mapping[str, str]:
    if not ignore:
        return digests
    return {name: digest for name, digest in digests.items() if name not in ignore}
