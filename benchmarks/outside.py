"""Judge predictors on cases of public shell projects.

    python benchmarks/outside.py FOLDER [--half held|work] [--suite NAME ...] [--predictor NAME ...]
        [--out DIR] [--workers W] [--misses FILE] [--json]

FOLDER holds checkouts, or parts of them, named as the suites: `oils` (spec tests), `brush` (cases
in YAML), `bashkit` (spec cases), `intercode` (golds of NL2Bash) and `tldr` (examples of pages).
Only the inputs are read from them. The ground truth is what each input does on the default system,
executed twice; inputs that vary are left out. It is kept in `--out`, so that a second run is quick.

Files are divided into halves by the hash of their names. The work half is for development. The held
half is for closing figures: its misses cannot be listed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from shioenv.dataset.questions import Question
from shioenv.domain.behavior import Behavior
from shioenv.errors import ShioenvError, SuiteError
from shioenv.system.store import find_system
from shioenv_eval.adapting.adapt import adapt_inputs
from shioenv_eval.evaluate import evaluate
from shioenv_eval.mask import output_text_of
from shioenv_eval.metrics import PredictorAnswer
from shioenv_eval.suite import Suite, SuiteCase, read_suite, write_suite
from shioenv_eval.suite_recorder import recorded_suite

HALVES = ("work", "held")
SURE = 0.9
"""The confidence from which an answer counts as sure."""
MOST_CHARACTERS = 20_000
"""Longer inputs are left out."""

Cases = Iterator[tuple[str, str]]
"""The file of each case, relative to the suite's folder, and its input."""

_SHELLS = re.compile(r"^## compare_shells:.*\bbash", re.MULTILINE)
_OILS_CASE = re.compile(r"^####[ \t].*\n", re.MULTILINE)
_OILS_BLOCK = re.compile(
    r"^## .*?(?:STDOUT|STDERR):\n.*?^## END[ \t]*\n?", re.MULTILINE | re.DOTALL
)
_OILS_CODE = re.compile(r"^## code: (.*)$", re.MULTILINE)
_OILS_NOTE = re.compile(r"^## .*\n?", re.MULTILINE)
_OILS_SHELL = re.compile(r"\$SH\b|\$\{SH\}")
_OILS_HELPERS = re.compile(r"\w\.py\b|REPO_ROOT|\bspec/|\btestdata\b|_tmp\b|\bys[h:]\b")
_BASHKIT_CASE = re.compile(
    r"^### (?!(?:expect|end|exit_code|bash_diff|skip)\b)(\S+)\n", re.MULTILINE
)
_FENCE = re.compile(r"^`([^`].*)`$", re.MULTILINE)
_CHOICE = re.compile(r"\{\{\[([^]|}]*)\|[^}]*\]\}\}|\{\{([^}|]*)(?:\|[^}]*)?\}\}")


def oils(folder: Path) -> Cases:
    """Parse the spec tests that are compared with Bash and need no file of the project."""
    for path in sorted(folder.rglob("*.test.sh")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if not _SHELLS.search(text):
            continue
        for case in _OILS_CASE.split(text)[1:]:
            code = _OILS_CODE.search(case)
            script = code[1] if code else _OILS_NOTE.sub("", _OILS_BLOCK.sub("", case))
            if not _OILS_HELPERS.search(script):
                yield str(path.relative_to(folder)), _OILS_SHELL.sub("bash", script).strip("\n")


def brush(folder: Path) -> Cases:
    """Parse the cases in YAML that consist of a script alone."""
    for path in sorted(folder.rglob("*.yaml")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        for case in document.get("cases", ()) if isinstance(document, dict) else ():
            if not {"args", "test_files", "env", "pty", "skip"} & case.keys() and "stdin" in case:
                yield str(path.relative_to(folder)), case["stdin"].rstrip("\n")


def bashkit(folder: Path) -> Cases:
    """Parse the spec cases for Bash and for the programs that the system has."""
    for path in sorted(folder.rglob("*.test.sh")):
        if path.parent.name not in ("awk", "bash", "grep", "sed"):
            continue
        text = path.read_text(encoding="utf-8")
        for case in _BASHKIT_CASE.split(text)[2::2]:
            script, expected, _ = case.partition("\n### expect")
            lines = [line for line in script.split("\n") if not line.startswith("### ")]
            if expected:
                yield str(path.relative_to(folder)), "\n".join(lines).strip("\n")


def intercode(folder: Path) -> Cases:
    """Parse the golds of NL2Bash. Each counts as a file, because there are few files."""
    for path in sorted(folder.rglob("nl2bash_fs_*.json")):
        for number, case in enumerate(json.loads(path.read_text(encoding="utf-8"))):
            yield f"{path.name}#{number}", case["gold"]


def tldr(folder: Path) -> Cases:
    """Parse the examples of the pages, the first of each choice."""
    for path in sorted(folder.rglob("*.md")):
        if path.parent.name not in ("common", "linux"):
            continue
        for example in _FENCE.findall(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(folder)), _CHOICE.sub(lambda m: m[1] or m[2] or "", example)


SUITES: dict[str, Callable[[Path], Cases]] = {
    "oils": oils,
    "brush": brush,
    "bashkit": bashkit,
    "intercode": intercode,
    "tldr": tldr,
}
ADAPTED = frozenset({"intercode", "tldr"})
"""Suites whose files are replaced by those of the system."""


def half_of(file: str) -> str:
    """Return the half to which a file belongs."""
    return HALVES[hashlib.sha256(file.encode()).digest()[0] & 1]


def questions(name: str, folder: Path, half: str) -> list[Question]:
    """Return the distinct inputs of a half of a suite. Errors: SuiteError without any."""
    found: dict[str, Question] = {}
    for file, text in SUITES[name](folder / name):
        if half_of(file) != half or not text.strip() or "\0" in text or len(text) > MOST_CHARACTERS:
            continue
        found.setdefault(text, Question(f"{file}:{len(found)}", text))
    if not found:
        raise SuiteError(
            f"{folder / name} has no cases", hint="it must contain a checkout of the suite"
        )
    asked = list(found.values())
    if name not in ADAPTED:
        return asked
    system = find_system()
    programs = system.programs
    here = [each for each in asked if each.input.removeprefix("sudo ").split()[0] in programs]
    return list(adapt_inputs(here if name == "tldr" else asked, system).questions)


def recorded(name: str, folder: Path, half: str, out: Path, workers: int | None) -> Suite:
    """Return a half of a suite with ground truth, executed unless `out` has it."""
    path = out / f"{name}-{half}.suite"
    inputs = out / f"{name}-{half}.jsonl"
    asked = questions(name, folder, half)
    if path.exists():
        suite = read_suite(path)
        same = [case.question.input for case in suite.cases] == [each.input for each in asked]
        if same and suite.head.system_digest == find_system().digest:
            return suite
    out.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(each.to_json(), ensure_ascii=False) for each in asked]
    inputs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with recorded_suite(inputs, runs=2, seconds_apart=0.0, workers=workers) as suite:
        write_suite(suite, path)
    return suite


@dataclass(frozen=True)
class Figures:
    """The right answers of a predictor to a half of a suite, by output and exit code."""

    suite: str
    half: str
    predictor: str
    inputs: int
    right: int
    sure: int
    """Answers with a confidence of at least `SURE`."""
    sure_right: int


def is_right(case: SuiteCase, said: Behavior | None) -> bool:
    """Whether output and exit code are those of a run of the case."""
    return said is not None and any(
        run.exit_code == said.exit_code
        and output_text_of(run.output) == output_text_of(said.output)
        for run in case.gold
    )


def judged(
    suite: Suite, place: tuple[str, str], predictors: Sequence[str], workers: int | None
) -> Iterator[tuple[Figures, list[dict[str, Any]]]]:
    """Yield the figures of each predictor, and its misses."""
    cases = tuple(case for case in suite.cases if len(case.gold) == 1)
    for one in evaluate(Suite(suite.head, cases), predictors, workers=workers).predictors:
        marks = [
            is_right(*pair) for pair in zip(cases, (s.behavior for s in one.said), strict=True)
        ]
        sure = [(said.confidence or 0.0) >= SURE for said in one.said]
        figures = Figures(
            *place, one.name, len(cases), sum(marks), sum(sure),
            sum(right and known for right, known in zip(marks, sure, strict=True)),
        )  # fmt: skip
        pairs = zip(cases, one.said, marks, strict=True)
        yield figures, [_miss(case, said) for case, said, right in pairs if not right]


def _miss(case: SuiteCase, said: PredictorAnswer) -> dict[str, Any]:
    gold, got = case.gold[0], said.behavior
    return {
        "id": case.question.id,
        "input": case.question.input,
        "gold": [gold.exit_code, output_text_of(gold.output)],
        "answer": None if got is None else [got.exit_code, output_text_of(got.output)],
        "confidence": said.confidence,
        "why": said.why,
    }


def print_table(found: Sequence[Figures]) -> None:
    """Print the figures as Markdown."""
    print(f"| suite | predictor | n | EM | answers ≥ {SURE:g}: share, right |")
    print("|---|---|---:|---:|---|")
    for row in found:
        surely = f"{row.sure_right / row.sure:.3f}" if row.sure else ""
        share = f"{row.sure / row.inputs:.2f}, {surely}"
        counts = f"{row.inputs:,} | {row.right / row.inputs:.3f} | {share}"
        print(f"| {row.suite}, {row.half} half | {row.predictor} | {counts} |")


def main() -> int:
    """Print the figures of the chosen suites; 1 where one has no cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--half", choices=HALVES, default="held")
    parser.add_argument("--suite", action="append", choices=SUITES, metavar="NAME")
    parser.add_argument("--predictor", action="append", metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("build/outside"), metavar="DIR")
    parser.add_argument("--workers", type=int, metavar="W")
    parser.add_argument(
        "--misses", type=Path, metavar="FILE", help="list the misses (only of the work half)"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.misses and given.half == "held":
        parser.error("--misses needs --half work: misses of the held half stay unseen")
    names = given.suite or [name for name in SUITES if (given.folder / name).is_dir()]
    found: list[Figures] = []
    missed: list[dict[str, Any]] = []
    try:
        for name in names:
            suite = recorded(name, given.folder, given.half, given.out, given.workers)
            place = name, given.half
            for figures, misses in judged(
                suite, place, given.predictor or ["default"], given.workers
            ):
                found.append(figures)
                missed += [{"suite": name, "predictor": figures.predictor} | one for one in misses]
    except ShioenvError as error:
        print(error.message, file=sys.stderr)
        return 1
    if not found:
        print(f"{given.folder} contains none of the suites {', '.join(SUITES)}", file=sys.stderr)
        return 1
    if given.misses:
        lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in missed]
        given.misses.write_text("".join(lines), encoding="utf-8", errors="surrogatepass")
    if given.json:
        print(json.dumps([vars(row) for row in found], indent=2))
    else:
        print_table(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
