"""What repeated runs of one input disagree about: the noise threshold and what to leave out."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from operator import attrgetter

from shioenv.behavior.similarity import similarity
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import Operation
from shioenv.errors import UsageError

CAP = 0.95
"""Algorithm 1's upper bound: above it outputs always count as the same."""


def noise_threshold(outputs: Sequence[bytes], *, cap: float = CAP) -> float:
    """Algorithm 1: the similarity that an output must exceed to count as the same, 0 to `cap`.

    Mean of the pairwise similarities less two sample standard deviations. One pair has no
    deviation, a single output no pair: then the threshold is the cap. Errors: UsageError for no
    output at all.
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

    A name that every run has, with another value each time, is known exactly. One that not every
    run has stands for names chosen at random (`mktemp`): other runs will choose others. Such names
    of one length in one directory give a pattern, fixed where they all agree.
    """

    exact: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    """NUL stands for any character except a directory's end."""

    def __bool__(self) -> bool:
        return bool(self.exact or self.patterns)

    def __contains__(self, name: str) -> bool:
        return name in self.exact or any(_fits(name, pattern) for pattern in self.patterns)

    @classmethod
    def of(cls, runs: Sequence[Mapping[str, object]]) -> NoisyNames:
        """What runs, each a mapping of names to values, do not all say alike."""
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
    """What cannot tell an argument's effect, because the runs of one input differ in it (D-2v)."""

    exit_code: bool = False
    flags: bool = False
    patch_digest: bool = False
    paths: NoisyNames = field(default_factory=NoisyNames)
    contents: NoisyNames = field(default_factory=NoisyNames)


NOTHING = Ignored()

_effects = attrgetter(
    "exit_code", "timed_out", "output_truncated", "patch_digest", "patch", "content_digests"
)
"""What runs may disagree about beside their output."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What N runs of one input say about each other."""

    threshold: float
    """Algorithm 1 with its cap, 0 to 0.95."""
    strict_threshold: float
    """1 where all outputs were byte-equal: only equal bytes are the same then. Else Algorithm 1
    without its cap (D-2s)."""
    ignored: Ignored
    """What the runs disagree about beside their output."""
    volatile: bool
    """The runs disagree about something, or one says of itself that it is volatile."""

    @classmethod
    def of(cls, runs: Sequence[Behavior]) -> Noise:
        """The noise of at least one run; all from the same state. UsageError for none."""
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
    """The operations of a patch under the path each begins with."""
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
    """Where a name lies, whether it is a file's own or stands escaped in a JSON Pointer."""
    return name[: max(name.rfind("/"), name.rfind("~1") + 1) + 1]


def _common(names: Sequence[str]) -> str:
    return "".join(
        same[0] if all(char == same[0] for char in same) else "\0"
        for same in zip(*names, strict=True)
    )


def _fits(name: str, pattern: str) -> bool:
    return len(name) == len(pattern) and all(
        expected in ("\0", char) for char, expected in zip(name, pattern, strict=True)
    )
