"""Record the frozen answers of `shioenv_eval.frozen` anew on the built system.

    python scripts/answers.py [--workers N]

The inputs are `public-test`, `sessions-200` and the first 1,000 cases of `shioenv conform`. Each is
run five times. The machine's files are written beside them, and `index.json` lists everything. Its
version is raised if a file has changed. At last the values of `shioenv reproduce quick` are made.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import json
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from shioenv.cli.progress import Meter
from shioenv.dataset.questions import Question, read_questions
from shioenv.files.durable import atomic_write
from shioenv.system.store import System, find_system
from shioenv_eval.conform.cases import CaseStream
from shioenv_eval.predictors.tree import loaded
from shioenv_eval.suite import FROZEN, read_suite, write_suite
from shioenv_eval.suite_recorder import recorded_suite
from shioenv_paper.reproduction import VALUES, Reproduction, made_values

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "packages" / "shioenv-eval" / "src" / "shioenv_eval"
INDEX, MACHINE = "index.json", "machine.json.gz"

CASES, SEED = 1000, 0
"""The cases of the scoreboard: the first of the stream of this seed."""

SUITES = PACKAGE / "suites"

OURS = "Apache-2.0, by the ShIOEnv developers"
OF_DEBIAN = "text printed by programs of the Debian packages in `packages`, under their licences"


def questions(name: str, system: System) -> Iterator[Question]:
    """Yield the inputs of a frozen suite."""
    if name != "conformance":
        yield from read_questions(name if name == "public-test" else SUITES / f"{name}.jsonl")
        return
    for number, case in enumerate(islice(CaseStream(system, (), SEED), CASES)):
        steps = "multi" if len(list(case.input.spans())) > 1 else "single"
        extra = {"command": case.command, "options": list(case.options)}
        text, history = case.input.text, case.history
        yield Question(str(number), text, case.cwd, case.kind, steps, history, extra)


def machine(system: System) -> dict[str, Any]:
    """Return the files that an emulator may be given.

    The contents of files below /usr and /var/lib are left out, since they belong to packages.
    """
    found: list[list[Any]] = []
    for entry, content in loaded(system):
        shown = not entry.path.startswith(("/usr/", "/var/lib/"))
        if stat.S_ISLNK(entry.mode):
            kind, text = "symlink", entry.target
        elif content is None:
            kind, text = "directory", ""
        elif shown:
            kind, text = "file", base64.b64encode(content).decode()
        else:
            continue
        mode = stat.S_IMODE(entry.mode)
        found.append([entry.path, kind, mode, entry.mtime, text, entry.uid, entry.gid])
    for path, content in system.shown_in_proc().items():
        found.append([path, "file", 0o444, 0, base64.b64encode(content).decode(), 0, 0])
    return {
        "system": system.name,
        "system_digest": system.digest,
        "start": system.declaration.start_directory,
        "environment": dict(system.declaration.session.environment),
        "files": found,
    }


def conffiles(system: System) -> dict[str, list[str]]:
    """Return the configuration files of Debian packages, by package."""
    found: dict[str, list[str]] = {}
    package, inside = "", False
    for line in system.read("/var/lib/dpkg/status").decode().splitlines():
        name, _, value = line.partition(": ")
        package = value if name == "Package" else package
        inside = line == "Conffiles:" or (inside and line.startswith(" "))
        if inside and line.startswith(" /") and (path := line.split()[0]) in system.index:
            found.setdefault(package, []).append(path)
    return dict(sorted(found.items()))


def record(system: System, workers: int | None) -> None:
    """Record every suite."""
    for name in FROZEN:
        with (
            tempfile.TemporaryDirectory() as directory,
            Meter(name, lasting=True, stopped="stopped: the same command resumes") as meter,
        ):
            inputs = Path(directory) / name
            lines = [json.dumps(one.to_json()) for one in questions(name, system)]
            inputs.write_text("".join(f"{line}\n" for line in lines))
            with recorded_suite(
                inputs,
                system=system.name,
                workers=workers,
                report=lambda done, total: meter.update("runs", done, total),
            ) as suite:
                suite = replace(suite, head=replace(suite.head, name=name))
                write_suite(suite, PACKAGE / "frozen" / f"{name}.jsonl.gz")


def index(system: System) -> dict[str, Any]:
    """Return the index of the files that lie in the package now."""
    listed = {}
    for name in FROZEN:
        head = read_suite(PACKAGE / "frozen" / f"{name}.jsonl.gz")
        facts = {"inputs": len(head.cases), "runs": head.head.runs, "volatile": head.volatile}
        listed[f"{name}.jsonl.gz"] = {**facts, "sha256": head.head.sha256}
    content = gzip.decompress((PACKAGE / "frozen" / MACHINE).read_bytes())
    listed[MACHINE] = {"sha256": hashlib.sha256(content).hexdigest()}
    return {
        "version": 1,
        "system": system.name,
        "system_digest": system.digest,
        "conformance": {"seed": SEED, "count": CASES},
        "files": listed,
        "licences": {
            "inputs": OURS,
            "outputs": OF_DEBIAN,
            "home tree": OURS,
            "other files of the machine": "of the Debian packages: `conffiles` belong to the "
            "package named, others were made by its installation",
        },
        "conffiles": conffiles(system),
        "packages": dict(sorted(system.packages.items())),
    }


def reproduction(workers: int | None) -> None:
    """Make the committed values of `shioenv reproduce quick` twice, and write them if they agree.

    On a busy host a sub-input near the time limit ends in one run and not in the other.
    """
    with tempfile.TemporaryDirectory() as directory:
        made, again = (made_values(Path(directory, name), workers=workers) for name in "12")
    if faults := Reproduction(again, made).faults:
        raise SystemExit("\n".join(("two runs differ: is the host idle?", *faults)))
    path = ROOT / "packages" / "shioenv-paper" / "src" / "shioenv_paper" / VALUES
    atomic_write(path, f"{json.dumps(made.to_json(), indent=1)}\n".encode())


def main() -> None:
    """Record, and write the index and the committed values."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--workers", type=int)
    given = parser.parse_args()
    system = find_system()
    record(system, given.workers)
    content = json.dumps(machine(system), separators=(",", ":")).encode()
    atomic_write(PACKAGE / "frozen" / MACHINE, gzip.compress(content, mtime=0))
    made, path = index(system), PACKAGE / "frozen" / INDEX
    if path.exists():
        known = json.loads(path.read_text())
        changed = known["files"] != made["files"]
        made["version"] = known["version"] + changed
    atomic_write(path, f"{json.dumps(made, indent=1)}\n".encode())
    reproduction(given.workers)


if __name__ == "__main__":
    main()
