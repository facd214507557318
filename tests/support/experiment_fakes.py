"""Inputs with known scores, and a fake system, without any execution."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.domain.runner import ScriptedCall, ScriptedRunner
from shioenv.execution.job import NumberedJob, Tell, silent
from shioenv.execution.local import SerialExecutor
from shioenv.synthesis.traces import Sample, SegmentTrace
from shioenv_paper.exact import KnownInput, sub_input_set
from shioenv_paper.setting import Stream

T = TypeVar("T")
A = TypeVar("A")

HOME = "/home/ubuntu"
SYSTEM: Any = SimpleNamespace(
    name="fake",
    digest="d1935",
    packages={},
    host_clock=False,
    declaration=SimpleNamespace(start_directory=HOME),
)


def known(words: list[str], differing: Callable[[int], bool], number: int = 0) -> KnownInput:
    """A command with these arguments; `differing` decides for a mask whether its sub-input
    differs."""
    n = len(words)
    masks = sub_input_set(filter(differing, range(1 if n > 1 else 0, (1 << n) - 1)), n)
    return KnownInput(
        number=number,
        n=n,
        input_args=("cmd", *words),
        cwd=HOME,
        exit_code=0,
        noise_threshold=0.95,
        differs=masks,
        differs_strict=masks,
        seconds=0.1,
    )


def needing(n: int, *needed: int, number: int = 0) -> KnownInput:
    """A command of n arguments; the needed ones matter, whatever else is left out."""
    wanted = sum(1 << index for index in needed)
    return known([f"a{index}" for index in range(n)], lambda mask: mask & wanted != wanted, number)


def at_random(n: int, seed: int, number: int = 0) -> KnownInput:
    """Return n arguments with sub-inputs that differ at random."""
    bits = random.Random(seed).getrandbits(1 << n)
    return known([f"a{index}" for index in range(n)], lambda mask: bool(bits >> mask & 1), number)


class FakeRunner(ScriptedRunner):
    """`needs` behaves otherwise without `x`; `fails` fails, otherwise so without `x`; `shouts` with
    `x` prints what it prints without in capitals and another number; `pads` prints many
    blanks and two numbers, without `x` three; `random` is volatile; where `waits` is the last word,
    it runs out of time."""

    system: Any = SYSTEM

    def answer_to(self, asked: ScriptedCall) -> Behavior:
        words = asked.text.rpartition("; ")[2].split()
        code = {"needs": 0, "fails": 2, "shouts": 0, "pads": 0}[words[0]]
        if "random" in words:
            return Behavior(code, str(len(self.asked)).encode())
        if words[-1] == "waits":
            return Behavior(124, b"", timed_out=True)
        if words[0] == "shouts":
            return Behavior(code, b"LINE\t 1\n" if "x" in words else b"line 2\n")
        if words[0] == "pads":
            return Behavior(code, b"%s1%s" % (b" " * 200, b" 23" if "x" in words else b" 4 5"))
        return Behavior(code, b"with" if "x" in words else b"out")


def sample(*input_args: str, volatile: bool = False) -> Sample:
    return Sample(
        Input.from_marked(input_args), HOME, volatile, (SegmentTrace(input_args[0], False, ()),)
    )


def samples() -> Iterator[Sample]:
    """Generate lengths 2 and 3 in turn without end, every fifth input declared volatile."""
    number = 0
    while True:
        words = ["x", "random" if number % 7 == 3 else f"n{number}", "y"][: 2 + number % 2]
        yield sample("needs", *words, volatile=number % 5 == 4)
        number += 1


def stream(system: object, seed: int) -> Stream:
    return Stream(samples(), {"seed": seed, "grammar digest": "g"})


class FakeExecutor(SerialExecutor):
    """Executes in this process; interrupted after `fail_after` tasks. `executed` counts."""

    def __init__(self, fail_after: int | None = None) -> None:
        super().__init__(lambda system, limits: FakeRunner())
        self.executed = 0
        self._fail_after = fail_after

    def map(
        self, job: NumberedJob[T, A], tasks: Iterable[tuple[int, T]], tell: Tell = silent
    ) -> Iterator[tuple[int, A]]:
        return super().map(job, self._counted(tasks), tell)

    def _counted(self, tasks: Iterable[tuple[int, T]]) -> Iterator[tuple[int, T]]:
        for task in tasks:
            if self.executed == self._fail_after:
                raise KeyboardInterrupt
            self.executed += 1
            yield task


def columns_of(document: Mapping[str, Any]) -> set[int]:
    return {len(values) for values in document.values()}
