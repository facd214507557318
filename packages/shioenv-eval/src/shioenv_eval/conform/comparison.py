"""Comparison of an implementation with the machine: cases, verdicts, findings, and their counts."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from shioenv.bash.words import quoted
from shioenv.domain.predictor import PatchLevel, find_predictor, predictor_names
from shioenv.errors import PredictorError, did_you_mean
from shioenv.execution.job import Tell, processes_here, silent
from shioenv.files.durable import atomic_write, storage_errors
from shioenv.files.unfinished import unfinished
from shioenv.grammar.library import check_known, chosen_grammars
from shioenv.protocols import EXECUTION
from shioenv.recording.execution_cache import sources_digest
from shioenv.system.store import System, find_system
from shioenv.text import rounded, visible
from shioenv_eval.conform.cases import GIVEN, KINDS
from shioenv_eval.conform.findings import (
    CaseFinding,
    finding_json,
    findings_of,
    format_difference,
    reproduction_script,
)
from shioenv_eval.conform.shrink import Files, Sides, case_key
from shioenv_eval.conform.truth import CaseMachine, Choice, TruthCase, truth_of
from shioenv_eval.conform.verdicts import (
    CaseVerdict,
    DifferenceClass,
    classes_of,
)
from shioenv_eval.metrics import PredictorAnswer
from shioenv_eval.predictor_pool import Bounds, PredictorPool, Ready
from shioenv_eval.report.markup import FILE, LIBRARIES, grouped, rendered, script_json

USUAL = Bounds()
EVERYTHING = Choice()

_SOURCES = ("shioenv.bash", "shioenv_eval", "shioenv.grammar", "shioenv.synthesis")
"""Packages whose source affects cases and answers, in addition to the executing code."""

Progress = Callable[[str, int, int], None]
"""Callback with the item being counted, the number done, and the total."""


@dataclass(frozen=True)
class CaseComparison:
    """The result of comparing an implementation, the other side, with the machine."""

    system: System
    name: str
    """The other side's name, as given."""
    other: Ready
    level: PatchLevel
    seed: int
    truth: tuple[TruthCase, ...]
    """All drawn cases."""
    verdicts: tuple[CaseVerdict, ...]
    """Verdicts of the steady cases (with deterministic truth), in order."""
    findings: tuple[CaseFinding, ...]

    @property
    def share(self) -> float:
        """The share of verdicts that are right, 0 to 1; 1 if there are none."""
        right = sum(one.right for one in self.verdicts)
        return right / len(self.verdicts) if self.verdicts else 1.0

    @property
    def title(self) -> str:
        """The other side's name and version, for display."""
        return f"{self.name} {self.other.version}".strip()

    def shown(self, finding: CaseFinding) -> list[str]:
        """Return the diff of a finding."""
        return format_difference(finding, self.level, self.system.name, self.title)

    def script(self, finding: CaseFinding) -> str:
        """Return the script of a finding."""
        return reproduction_script(finding, self.system, self._files, self.other, self.name)

    @cached_property
    def _files(self) -> Files:
        return Files(self.system)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The whole result as a JSON object.

        `commands`, `kinds` and `options` (by command) hold the counts of `counted` for each name.
        `findings` hold a diff and a script each.
        """
        kinds = {
            kind: [one for one in self.truth if one.drawn.kind == kind] for kind in (*KINDS, GIVEN)
        }
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
        """Count the drawn, steady and right cases, and the differences by class.

        A case that differs in several classes counts for each. `share` is the share of right among
        steady cases, None if there are none.
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
    """Return the full predictor name for a text, which may be a command without `command:`.

    Errors: PredictorError if it is neither a predictor nor a program. MissingExtraError as in
    `find_predictor`.
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
                    f"{program} is not executable" if there else f"program {program!r} not found",
                    hint=f"make it executable: chmod +x {quoted(program)}" if there else None,
                )
            raise PredictorError(
                f"{program!r} is neither a predictor nor a program",
                hint=did_you_mean(program, predictor_names()),
            )
    return f"command:{command}"


@contextmanager
def compare_with_machine(
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
    """Compare a predictor, given by name or as a command, with a system's machine.

    `level` limits the comparison. By default it is the predictor's most detailed one.
    Missing and late answers count as differences. Answers lost in a crash count as differences too;
    the predictor is then restarted. Answers are kept until the `with` block ends. Errors: those of
    `find_system`, `truth_of` and `PredictorPool`; PredictorError for a more detailed level than the
    predictor supports.
    """
    name = predictor_of(against)
    find_predictor(name)
    check_known(chosen_grammars(choice.commands))
    built = find_system(system)
    count = processes_here(workers)
    start = built.declaration.start_directory
    with CaseMachine(built, workers) as machine:
        tell(f"starting {name}, which may take {bounds.ready:g} s (--start-timeout)")
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
                    tell(f"resuming a stopped call: {sides.kept} of its answers are reused")
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
    """Yield the verdict of each steady case, in order."""
    steady = {case_key(one.asked): one for one in truth if one.behavior is not None}
    said: dict[str, PredictorAnswer] = {}
    for key, answer in sides.answers({key: one.asked for key, one in steady.items()}):
        said[key] = answer
        progress("answers", len(said), len(steady))
    for key, case in steady.items():
        assert case.behavior is not None
        yield CaseVerdict(case, said[key], classes_of(case.behavior, said[key], level))


def _level(level: PatchLevel | None, known: PatchLevel, name: str) -> PatchLevel:
    if level is PatchLevel.FULL and known is PatchLevel.FILES:
        raise PredictorError(
            f"{name} reports only the names of changed files, not whole patches",
            hint="--level files",
        )
    return known if level is None else level


RESULTS, JUNIT, SCRIPTS = "results.json", "junit.xml", "findings"
"""Files of the directory, and its subdirectory with a script for each finding."""


def write_comparison(comparison: CaseComparison, directory: Path) -> None:
    """Write the files of a comparison, replacing those of an earlier one.

    The page is omitted if the extra `report` is not installed. Errors: DatasetStorageError.
    """
    document = json.dumps(comparison.document, ensure_ascii=False, indent=1)
    scripts = directory / SCRIPTS
    with storage_errors(directory):
        scripts.mkdir(parents=True, exist_ok=True)
        atomic_write(directory / RESULTS, f"{document}\n".encode("utf-8", "backslashreplace"))
        atomic_write(directory / JUNIT, _junit(comparison))
        for old in scripts.glob("[0-9]*.sh"):
            old.unlink()
        for number, finding in enumerate(comparison.findings, 1):
            text = comparison.script(finding)
            atomic_write(scripts / f"{number:04}.sh", text.encode("utf-8", "surrogateescape"))
        if all(find_spec(name) for name in LIBRARIES):
            atomic_write(directory / FILE, _page(comparison).encode("utf-8", "backslashreplace"))


def _junit(comparison: CaseComparison) -> bytes:
    """Return a JUnit document with a test suite for each command and a test for each case.

    A case that differs is a failure, with the diff of its minimal finding. A case without steady
    truth is skipped. Characters that XML cannot hold are escaped as in Python.
    """
    root = ElementTree.Element("testsuites", name=_text(f"shioenv conform {comparison.title}"))
    found = {
        id(verdict.case): finding for finding in comparison.findings for verdict in finding.verdicts
    }
    verdicts = {id(one.case): one for one in comparison.verdicts}
    shown = {id(one): "\n".join(comparison.shown(one)) for one in comparison.findings}
    for command, cases in grouped(comparison.truth, lambda one: one.drawn.command).items():
        counts = comparison.counted(cases)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=command,
            tests=str(counts["drawn"]),
            failures=str(counts["steady"] - counts["right"]),
            skipped=str(counts["drawn"] - counts["steady"]),
        )
        for case in cases:
            name = _text("\n".join((*case.drawn.history, case.drawn.input.text)))
            test = ElementTree.SubElement(
                suite, "testcase", classname=f"{command}.{case.drawn.kind}", name=name
            )
            verdict = verdicts.get(id(case))
            if verdict is None:
                ElementTree.SubElement(test, "skipped", message="the machine's own runs differ")
            elif not verdict.right:
                finding = found[id(case)]
                minimal = _text(f"minimal: {finding.reduced.asked.input.text}")
                kind = ", ".join(sorted(verdict.classes))
                failure = ElementTree.SubElement(test, "failure", type=kind, message=minimal)
                failure.text = _text(shown[id(finding)])
    content: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return content


def _text(text: str) -> str:
    return visible(text).encode("utf-8", "backslashreplace").decode()


def _page(comparison: CaseComparison) -> str:
    """Return the HTML page: shares, and every finding with its diff and script."""
    from markupsafe import Markup

    document = comparison.document
    findings = [
        {
            **{name: one[name] for name in ("command", "count", "classes", "recurs")},
            "input": visible(one["input"]),
            "history": [visible(line) for line in one["history"]],
            "difference": one["difference"],
            "script": visible(one["script"]),
        }
        for one in document["findings"]
    ]
    return rendered(
        __package__,
        title=f"{comparison.title} and {comparison.system.name}",
        other=comparison.title,
        document=document,
        data=Markup(script_json({"findings": findings})),
    )
