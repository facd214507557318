"""An implementation compared with the machine: cases, verdicts, findings, and their counts."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from shioenv.bash.words import quoted
from shioenv.domain.predictor import PatchLevel, find_predictor, predictor_names
from shioenv.errors import PredictorError, did_you_mean
from shioenv.execution.job import Tell, processes_here, silent
from shioenv.files.unfinished import unfinished
from shioenv.protocols import EXECUTION
from shioenv.recording.cache import sources_digest
from shioenv.synthesis.cases import KINDS
from shioenv.system.store import System, find_system
from shioenv.text import rounded
from shioenv_eval.asking import Bounds, PredictorPool, Ready
from shioenv_eval.conform.findings import (
    CaseFinding,
    difference,
    finding_json,
    findings_of,
    script,
)
from shioenv_eval.conform.shrink import Files, Sides, name_of
from shioenv_eval.conform.truth import CaseMachine, Choice, TruthCase, truth_of
from shioenv_eval.conform.verdicts import (
    CaseVerdict,
    DifferenceClass,
    classes_of,
)
from shioenv_eval.metrics import Said

USUAL = Bounds()
EVERYTHING = Choice()

_SOURCES = ("shioenv.bash", "shioenv_eval", "shioenv.grammar", "shioenv.synthesis")
"""The packages whose code decides, beside what executes, which cases are asked and what is said."""

Progress = Callable[[str, int, int], None]
"""Called with what is being counted, how many of it are done, and of how many."""


@dataclass(frozen=True)
class CaseComparison:
    """What came of comparing an implementation, the other side, with the machine."""

    system: System
    name: str
    """The other side as it was named."""
    other: Ready
    level: PatchLevel
    seed: int
    truth: tuple[TruthCase, ...]
    """All cases that were drawn."""
    verdicts: tuple[CaseVerdict, ...]
    """Of the cases whose truth is steady, in their order."""
    findings: tuple[CaseFinding, ...]

    @property
    def share(self) -> float:
        """The share of verdicts that are right, 0 to 1; 1 where there are none."""
        right = sum(one.right for one in self.verdicts)
        return right / len(self.verdicts) if self.verdicts else 1.0

    @property
    def title(self) -> str:
        """The other side and its version, for people."""
        return f"{self.name} {self.other.version}".strip()

    def shown(self, finding: CaseFinding) -> list[str]:
        """The diff of a finding."""
        return difference(finding, self.level, self.system.name, self.title)

    def script(self, finding: CaseFinding) -> str:
        """The script of a finding."""
        return script(finding, self.system, self._files, self.other, self.name)

    @cached_property
    def _files(self) -> Files:
        return Files(self.system)

    @cached_property
    def document(self) -> dict[str, Any]:
        """Everything for programs.

        `commands`, `kinds` and `options` (by command) hold for each name the counts of `counted`.
        `findings` hold a diff and a script each.
        """
        kinds = {kind: [one for one in self.truth if one.drawn.kind == kind] for kind in KINDS}
        commands: dict[str, list[TruthCase]] = {}
        for case in self.truth:
            commands.setdefault(case.drawn.command, []).append(case)
        return {
            "system": self.system.name,
            "system_digest": self.system.digest,
            "against": self.name,
            "version": self.other.version,
            "level": self.level.value,
            "seed": self.seed,
            **self.counted(self.truth),
            "commands": {name: self.counted(commands[name]) for name in sorted(commands)},
            "kinds": {kind: self.counted(cases) for kind, cases in kinds.items() if cases},
            "options": {name: self._options(commands[name]) for name in sorted(commands)},
            "statuses": dict(Counter(one.said.status.value for one in self.verdicts)),
            "findings": [
                finding_json(one, self.shown(one), self.script(one)) for one in self.findings
            ],
        }

    def counted(self, cases: Iterable[TruthCase]) -> dict[str, Any]:
        """Of some cases: how many were drawn, are steady and right, and how others differ.

        A case that differs in several classes counts for each. `share` is of the steady cases, None
        where there is none.
        """
        drawn = list(cases)
        verdicts = [self._verdict[id(one)] for one in drawn if one.behavior is not None]
        right = sum(one.right for one in verdicts)
        classes = Counter(name for one in verdicts for name in one.classes)
        return {
            "drawn": len(drawn),
            "steady": len(verdicts),
            "right": right,
            "share": rounded(right / len(verdicts)) if verdicts else None,
            "differ": {name.value: classes[name] for name in DifferenceClass},
        }

    def _options(self, cases: Sequence[TruthCase]) -> dict[str, Any]:
        by_option: dict[str, list[TruthCase]] = {}
        for case in cases:
            for option in case.drawn.options:
                by_option.setdefault(option, []).append(case)
        return {option: self.counted(by_option[option]) for option in sorted(by_option)}

    @cached_property
    def _verdict(self) -> dict[int, CaseVerdict]:
        return {id(one.case): one for one in self.verdicts}


def predictor_of(against: str) -> str:
    """The predictor that a text names, which may be a command without `command:` before it.

    Errors: PredictorError where the text names neither a predictor nor a program. MissingExtraError
    as `find_predictor`.
    """
    head, _, text = against.partition(":")
    if head != "command":
        with suppress(PredictorError):
            find_predictor(head)
            return against
    command = text if head == "command" else against
    with suppress(ValueError):  # unclosed quotes: the predictor reports them
        program = "".join(shlex.split(command)[:1])
        if program and shutil.which(program) is None:
            if head == "command" or "/" in program:
                there = Path(program).exists()
                raise PredictorError(
                    f"{program} cannot be run" if there else f"there is no program {program!r}",
                    hint=f"make it executable: chmod +x {quoted(program)}" if there else None,
                )
            raise PredictorError(
                f"no predictor and no program is called {program!r}",
                hint=did_you_mean(program, predictor_names()),
            )
    return f"command:{command}"


@contextmanager
def compared(
    against: str,
    *,
    system: str | None = None,
    choice: Choice = EVERYTHING,
    level: PatchLevel | None = None,
    workers: int | None = None,
    bounds: Bounds = USUAL,
    progress: Progress = lambda what, done, total: None,
    tell: Tell = silent,
) -> Iterator[CaseComparison]:
    """The comparison of a predictor, by name or as a command, with a system's machine.

    `level` is what is compared; None: the most that the predictor knows. An answer that is late or
    none is a difference, and so is one that is lost with the predictor's process. The predictor is
    restarted then. The answers are kept until the block ends. Errors: those of `find_system`,
    `truth_of` and `PredictorPool`; PredictorError for a level beyond the predictor's.
    """
    built = find_system(system)
    name = predictor_of(against)
    count = processes_here(workers)
    start = built.declaration.start_directory
    with CaseMachine(built, workers) as machine:
        tell(f"{name} is started: {bounds.ready:g} s at most (--start-timeout)")
        with PredictorPool(name, system or built.name, start, count, bounds) as pool:
            level = _level(level, pool.ready.level, name)
            truth = truth_of(
                machine, choice, lambda done, total: progress("cases executed", done, total)
            )
            package = find_predictor(name).module.partition(".")[0]
            plan = {
                "system": built.digest,
                "against": name,
                "version": pool.ready.version,
                "level": level.value,
                "cases": asdict(choice),
                "seconds": asdict(bounds),
                "sources": [EXECUTION, sources_digest(*_SOURCES, package)],
            }
            with (
                unfinished("conform", plan) as kept,
                Sides(machine, pool, level, kept) as sides,
            ):
                if sides.kept:
                    tell(f"an earlier call was stopped: {sides.kept} of its answers are used")
                verdicts = tuple(_verdicts(truth, sides, level, progress))
                findings = findings_of(
                    sides,
                    verdicts,
                    Files(built),
                    lambda done, total: progress("differences", done, total),
                )
                yield CaseComparison(
                    built, name, pool.ready, level, choice.seed, tuple(truth), verdicts,
                    tuple(findings),
                )  # fmt: skip


def _verdicts(
    truth: Sequence[TruthCase], sides: Sides, level: PatchLevel, progress: Progress
) -> Iterator[CaseVerdict]:
    """The verdict of each steady case, in their order."""
    steady = {name_of(one.asked): one for one in truth if one.behavior is not None}
    said: dict[str, Said] = {}
    for key, answer in sides.answers({key: one.asked for key, one in steady.items()}):
        said[key] = answer
        progress("answers", len(said), len(steady))
    for key, case in steady.items():
        assert case.behavior is not None
        yield CaseVerdict(case, said[key], classes_of(case.behavior, said[key], level))


def _level(level: PatchLevel | None, known: PatchLevel, name: str) -> PatchLevel:
    if level is PatchLevel.FULL and known is PatchLevel.FILES:
        raise PredictorError(
            f"{name} knows which files change, and nothing else of a patch", hint="--level files"
        )
    return known if level is None else level
