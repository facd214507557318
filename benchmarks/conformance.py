"""The scoreboard: emulators, other implementations and the project's model against the machine.

    python benchmarks/conformance.py [--results DIR] [--page-only] [NAME ...]

Each row is a `shioenv conform` with the same cases, into a separate directory below DIR (default:
build/conformance). A row whose directory exists is not run again. The page's data of all rows are
written to docs/experiments/conformance.json, and the page from that file and from
docs/experiments/conformance.toml, which has the reviews of the most frequent findings. The rows
that are systems need `scripts/other_system.sh`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shioenv.files.durable import atomic_write
from shioenv.text import count, fixed, share, visible
from shioenv_eval.report.markup import Table

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "experiments"
RESULTS, JUDGED, PAGE = (PAGES / f"conformance.{kind}" for kind in ("json", "toml", "md"))

CASES = 1000
"""Cases of each row: the first of the stream of seed 0."""

COMMONEST = 10
"""Reviewed findings of each row."""

ROWS = {
    "bashkit": ("--against", "bashkit"),
    "just-bash": ("--against", "just-bash"),
    "Cowrie": ("--against", "cowrie", "--workers", "6"),  # it waits, so more run than processors
    "busybox": ("--against-system", "debian-12-busybox"),
    "toybox": ("--against-system", "debian-12-toybox"),
    "uutils": ("--against-system", "debian-12-uutils"),
    "uutils, Debian 13": ("--system", "debian-13", "--against-system", "debian-13-uutils"),
    "default model": ("--against", "default"),
}
"""Options of `shioenv conform`, by the row's name."""

WHOSE = ("theirs", "ours", "neither")

_HEAD = """\
# Conformance scoreboard

Made by `make scoreboard` from the first {cases:,} cases of
[`shioenv conform`](../how-to/conform.md#cases) with seed {seed}, all {commands} commands and
`--level files`. A case (an input) is right if its output, exit code and changed files are the
machine's. A case is *steady* if all its runs on the machine agree; only steady cases are judged.
All rows are compared with `debian-12` (`{digest}`), except *uutils, Debian 13*: it is
compared with a Debian 13 that has the packages of `debian-12`, on which its cases were sampled.

The cases cover all options equally often, unlike the inputs that people type, on which
[Evaluation of predictors](evaluation.md) reports. Busybox, toybox and uutils replace only the GNU
programs that they implement; in these rows, Bash and all other programs are Debian's. The
emulators get the system's files, but no processes or network devices that `ps` or `ip` could list.
"""

MODEL_1 = "default a4e904c851fd"
"""The version of default model 1, by which its results are recognised."""

_OUTDATED = """\
The row *default model* is default model 1. The package has model 2, whose figures are in [The
model](modeling.md#the-default-model).
"""


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The review of one finding."""

    whose: str
    what: str
    reproduced: bool


Key = tuple[str, str]
"""A row's name and a finding's lines."""


def lines_of(finding: Mapping[str, Any]) -> str:
    """Return a finding's lines: those before its input, and the input."""
    return "\n".join((*finding["history"], finding["input"]))


def looked_at(text: str) -> dict[Key, LookedAt]:
    """Return the reviews by row and finding. Errors: ValueError for a word outside `WHOSE`."""
    found = {}
    for row, findings in tomllib.loads(text).items():
        for one in findings:
            if one["whose"] not in WHOSE:
                raise ValueError(f"{row}: whose = {one['whose']!r}, not one of {', '.join(WHOSE)}")
            seen = LookedAt(one["whose"], one["what"], one.get("reproduced", False))
            found[row, one["lines"]] = seen
    return found


def kept(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a comparison's document that the page needs."""
    facts = ("system", "system_digest", "against", "version", "level", "seed")
    counts = ("drawn", "steady", "right", "share", "differ")
    findings = document["findings"]
    shown = ("command", "count", "classes", "history", "input", "cwd", "without", "difference")
    return {
        **{name: document[name] for name in (*facts, *counts)},
        "commands": {
            name: {each: row[each] for each in counts} for name, row in document["commands"].items()
        },
        "findings": None if findings is None else len(findings),
        "commonest": [{each: one[each] for each in shown} for one in (findings or [])[:COMMONEST]],
    }


def page(rows: Mapping[str, Mapping[str, Any]], seen: Mapping[Key, LookedAt]) -> str:
    """Return the page as Markdown."""
    first = next(iter(rows.values()))
    head = _HEAD.format(
        cases=first["drawn"],
        seed=first["seed"],
        commands=len(first["commands"]),
        digest=first["system_digest"][:12],
    )
    outdated = any(row["version"].startswith(MODEL_1) for row in rows.values())
    return "\n".join([head, *([_OUTDATED] if outdated else []), *_parts(rows, seen)])


def _parts(rows: Mapping[str, Mapping[str, Any]], seen: Mapping[Key, LookedAt]) -> Iterator[str]:
    classes = tuple(next(iter(rows.values()))["differ"])
    yield Table(
        "By class of difference",
        "A case that differs in several classes is counted in each. *Answer* counts missing, late "
        "and invalid answers. The last column counts [findings](../how-to/conform.md#findings): "
        "cases with the same minimal difference count once.",
        ("", "version", "steady cases", "right", *classes, "findings"),
        [
            (
                name,
                row["version"],
                count(row["steady"]),
                fixed(row["share"]),
                *(count(row["differ"][one]) for one in classes),
                "-" if row["findings"] is None else count(row["findings"]),
            )
            for name, row in rows.items()
        ],
    ).markdown
    commands = sorted({command for row in rows.values() for command in row["commands"]})
    yield Table(
        "By command",
        "Each cell has the numbers of right and of steady cases. [The results](conformance.json) "
        "have the counts by class and command.",
        ("command", *rows),
        [(f"`{one}`", *(_of_command(row["commands"], one) for row in rows.values()))
         for one in commands],
    ).markdown  # fmt: skip
    yield _LOOKED
    for name, row in rows.items():
        if row["findings"] is None:
            yield (
                f"### {name}\n\nIts differences were counted but not minimised. They were measured "
                f"on an earlier build, on which {count(row['steady'])} cases were steady.\n"
            )
            continue
        yield Table(
            name,
            _whose(name, row, seen),
            ("cases", "input", "differs in", "cause", "explanation"),
            [_finding(name, one, seen) for one in row["commonest"]],
        ).markdown.replace("## ", "### ", 1)


_LOOKED = f"""\
## Review of the most frequent findings

Each table lists the {COMMONEST} most frequent findings of one implementation. We reviewed
the cause of each. `theirs` means that the implementation does not behave like Debian. `ours` means
that the cause is our machine, or the way in which we run the implementation. `neither` means that
the behavior is unspecified, or that the emulator had no access to the information. A star means
that the finding's script (`findings/NNNN.sh`) reproduced the difference in a plain Debian root
file system.
"""


def _of_command(commands: Mapping[str, Any], name: str) -> str:
    row = commands.get(name)
    return "-" if row is None or not row["steady"] else f"{row['right']}/{row['steady']}"


def _whose(name: str, row: Mapping[str, Any], seen: Mapping[Key, LookedAt]) -> str:
    of = [seen.get((name, lines_of(one))) for one in row["commonest"]]
    parts = [f"{sum(one is not None and one.whose == whose for one in of)} {whose}"
             for whose in WHOSE]  # fmt: skip
    cases = sum(one["count"] for one in row["commonest"])
    wrong = row["steady"] - row["right"]
    return (
        f"{count(wrong)} of the {count(row['steady'])} steady cases differ "
        f"({share(wrong, row['steady'])}). The {len(of)} findings below cover {cases} of them. "
        f"Their causes: {', '.join(parts)}."
    )


def _finding(name: str, finding: Mapping[str, Any], seen: Mapping[Key, LookedAt]) -> Sequence[str]:
    one = seen.get((name, lines_of(finding)))
    whose, what = ("not reviewed", "") if one is None else (one.whose, one.what)
    star = " \\*" if one is not None and one.reproduced else ""
    text = " ⏎ ".join(visible(line) for line in lines_of(finding).split("\n"))
    ticks = "``" if "`" in text else "`"
    return (
        f"{finding['count']}",
        f"{ticks}{text}{ticks}",
        ", ".join(finding["classes"]),
        f"{whose}{star}",
        what,
    )


def written(rows: Mapping[str, Mapping[str, Any]], judged: str) -> None:
    """Write results and page."""
    document = json.dumps(rows, ensure_ascii=False, indent=1)
    atomic_write(RESULTS, f"{document}\n".encode("utf-8", "backslashreplace"))
    atomic_write(PAGE, page(rows, looked_at(judged)).encode())


def main() -> None:
    """Run the missing rows, and write results and page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="rows to run (default: all)")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "conformance")
    parser.add_argument(
        "--page-only", action="store_true", help="only write the page, from the saved results"
    )
    options = parser.parse_args()
    unknown = set(options.names) - ROWS.keys()
    if unknown:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}; choose from {', '.join(ROWS)}")
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in () if options.page_only else options.names or ROWS:
        directory = options.results / name.replace(", ", "-").replace(" ", "-")
        if not (directory / "results.json").exists():
            print(f"running {name}", file=sys.stderr)
            words = [sys.executable, "-m", "shioenv", "conform", *ROWS[name]]
            words += ["--count", str(CASES), "--level", "files", "--out", str(directory)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        rows[name] = kept(json.loads((directory / "results.json").read_text()))
    written({name: rows[name] for name in ROWS if name in rows}, JUDGED.read_text())


if __name__ == "__main__":
    main()
