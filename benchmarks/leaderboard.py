"""The leaderboard: figures of predictors by the frozen answers, and the page that shows them.

    python benchmarks/leaderboard.py add ANSWERS.jsonl --suite SUITE --name NAME --by WHO
    python benchmarks/leaderboard.py record [--suite SUITE] [--workers N]
    python benchmarks/leaderboard.py again

`add` judges a file of answers, appends a row to benchmarks/leaderboard.jsonl, and keeps the answers
beside it unless `--without-answers` is given. `record` asks the predictors of `PREDICTORS` anew,
and resumes in build/leaderboard.
`again` judges all kept answers by the present frozen answers. Each writes the page.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shioenv.files.durable import atomic_write
from shioenv.text import fixed
from shioenv_eval.frozen import judge
from shioenv_eval.report.markup import Table
from shioenv_eval.suite import FROZEN, read_suite

ROOT = Path(__file__).parents[1]
ROWS, ANSWERS = ROOT / "benchmarks" / "leaderboard.jsonl", ROOT / "benchmarks" / "answers"
PAGE = ROOT / "docs" / "experiments" / "leaderboard.md"

PREDICTORS = ("trivial", "just-bash", "bashkit", "default")
SECONDS = "300"
"""Time limit for an answer, so that a busy host loses none."""

OURS = "the ShIOEnv developers"

_HEAD = """\
# Leaderboard

Predictors judged by the [frozen answers](../reference/frozen-answers.md), on all inputs of each
suite. The columns are the [metrics](../design/evaluation.md#metrics) of `judge.py`. EM, masked,
+exit, patch and ΔJS compare patches at the level in parentheses after the predictor's name: `full`
or `files`. *Answers* are files in `benchmarks/answers`, from which a test computes the row again.
Rows without such a file show the reported figures.

To add a row, judge your file of answers and propose the change:

```bash
python benchmarks/leaderboard.py add answers.jsonl --suite public-test --name mine --by "Your Name"
```
"""


def judged(suite: str, answers: Path) -> dict[str, Any]:
    """Return the figures of a file of answers."""
    frozen = Path(judge.__file__).parent / f"{suite}.jsonl.gz"
    document = judge.judged(frozen, answers)
    about = document["suite"]
    return {
        "suite": suite,
        "suite_sha256": about["sha256"],
        "system_digest": about["system_digest"],
        "patch_level": document["patch_level"],
        "figures": {group: document[group] for group in judge.GROUPS},
    }


def rows() -> list[dict[str, Any]]:
    """Return the rows of the leaderboard."""
    return [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]


def row(suite: str, answers: Path, name: str, by: str, *, keep: bool = True) -> dict[str, Any]:
    """Return a row; its answers are kept if `keep`."""
    content = answers.read_bytes()
    content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    first = json.loads(content.split(b"\n")[0])
    version = "" if "input" in first else str(first.get("version", ""))
    kept = None
    if keep:
        kept = f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}-{suite}.jsonl.gz"
        ANSWERS.mkdir(exist_ok=True)
        atomic_write(ANSWERS / kept, gzip.compress(content, mtime=0))
    return {"name": name, "version": version, "by": by, "answers": kept, **judged(suite, answers)}


def page(found: list[dict[str, Any]]) -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *_tables(found)])


def _tables(found: list[dict[str, Any]]) -> Iterator[str]:
    for suite in FROZEN:
        those = [one for one in found if one["suite"] == suite]
        those.sort(key=lambda one: -one["figures"]["all"]["em_files"])
        lines = [
            (
                f"{one['name']} {one['version']} ({one['patch_level']})",
                *(fixed(one["figures"]["all"][each]) for each in judge.COLUMNS),
                "-" if one["answers"] is None else f"`{one['answers']}`",
                one["by"],
            )
            for one in those
        ]
        if those:
            digests = sorted({one["system_digest"][:12] for one in those})
            note = f"The suite belongs to the system `{'`, `'.join(digests)}`."
            headings = ("predictor", *judge.COLUMNS.values(), "answers", "by")
            yield Table(suite, note, headings, lines).markdown


def write(found: list[dict[str, Any]]) -> None:
    """Write rows and page."""
    lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in found]
    atomic_write(ROWS, "".join(lines).encode())
    atomic_write(PAGE, page(found).encode())


def recorded(suites: list[str], workers: int) -> Iterator[dict[str, Any]]:
    """Ask the predictors anew and yield their rows."""
    shioenv = [sys.executable, "-m", "shioenv", "evaluate"]
    for suite in suites:
        directory = ROOT / "build" / "leaderboard" / f"{suite}-{read_suite(suite).head.sha256[:12]}"
        names = [word for name in PREDICTORS for word in ("--predictor", name)]
        words = ["--suite", suite, "--out", str(directory), "--workers", str(workers)]
        words += ["--timeout", SECONDS]
        subprocess.run([*shioenv, *names, *words], check=True, stdout=subprocess.DEVNULL)
        for name in PREDICTORS:
            answers = directory / "answers.jsonl"
            words = ["answers", str(directory), "--predictor", name, "--out", str(answers)]
            subprocess.run([*shioenv, *words], check=True, stdout=subprocess.DEVNULL)
            yield row(suite, answers, name, OURS)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("again")
    recording = verbs.add_parser("record")
    recording.add_argument("--workers", type=int, default=2)
    recording.add_argument("--suite", choices=FROZEN, action="append")
    adding = verbs.add_parser("add")
    adding.add_argument("answers", type=Path)
    adding.add_argument("--suite", choices=FROZEN, required=True)
    adding.add_argument("--name", required=True)
    adding.add_argument("--by", required=True)
    adding.add_argument("--without-answers", action="store_true")
    given = parser.parse_args()
    found = rows() if ROWS.exists() else []
    if given.verb == "record":
        suites = given.suite or list(FROZEN)
        found = [one for one in found if one["by"] != OURS or one["suite"] not in suites]
        write([*recorded(suites, given.workers), *found])
        return
    if given.verb == "add":
        keep = not given.without_answers
        found.append(row(given.suite, given.answers, given.name, given.by, keep=keep))
    else:
        found = [
            one if one["answers"] is None
            else one | judged(one["suite"], ANSWERS / one["answers"])
            for one in found
        ]  # fmt: skip
    write(found)


if __name__ == "__main__":
    main()
