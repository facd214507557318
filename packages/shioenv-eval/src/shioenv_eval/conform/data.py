"""Export of cases with their ground truth: self-contained files, a checker, and a dataset card."""

from __future__ import annotations

import base64
import hashlib
import json
import lzma
import posixpath
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from shioenv.dataset.generate import grammar_digest
from shioenv.domain.behavior import Behavior, output_text
from shioenv.domain.context import keys
from shioenv.files.durable import atomic_write, new_directory
from shioenv.grammar.library import chosen_grammars, load_grammars, shipped_headers
from shioenv.grammar.traits import MACHINE
from shioenv.system.catalogue import catalogue
from shioenv.system.store import System, find_system
from shioenv_eval.conform.truth import CaseInput, CaseMachine, Choice, TruthCase, truth_of
from shioenv_eval.export import size_category
from shioenv_eval.patches import OF_CONTENT, operations

VERSION = 1
"""Version of the data format, raised whenever a key is added, removed, or changes its meaning."""

PORTABLE, SYSTEM = "portable", "system"
SPLITS = (PORTABLE, SYSTEM)
"""Cases that need only the home tree, and cases that need the system."""

FACTS, HOME, CHECKER, CARD = "truth.json", "home.json.xz", "check.py", "README.md"
"""Files in the directory, apart from `data/` with one file for each split."""

ELSEWHERE = "/opt/elsewhere"
ANOTHER_MACHINE = (
    f"cp -a . {ELSEWHERE}; cp -a /etc/alternatives /opt; "
    "for one in etc proc sys var root home; do mount -t tmpfs none /$one; done; "
    "mv /opt/alternatives /etc; hostname elsewhere; "
    f"export HOME={ELSEWHERE}; unset SHELL LOGNAME USER TERM; cd; unset OLDPWD one"
)
"""A shell line that makes this machine look like a different one.

It moves the home tree, changes the host name, and hides the system's users, processes and settings.
"""

_WITHOUT_GRAMMAR = frozenset(
    {
        "HOSTNAME", "dig", "getconf", "host", "ifconfig", "ip", "nc", "nslookup", "ssh",
        "traceroute",
    }
)  # fmt: skip


@cache
def not_portable() -> frozenset[str]:
    """Return words whose output depends on state that `ANOTHER_MACHINE` does not change.

    That state is the kernel, the file system, limits, the network, and the order of directories.
    Grammar headers mark such commands (`shows machine`); we chose the words without a grammar.
    """
    headers = shipped_headers().items()
    named = (name for name, header in headers if header.traits.shows == MACHINE)
    return _WITHOUT_GRAMMAR.union(named)


_OF_THE_FILE_SYSTEM = re.compile(
    r"\b(?:ls|v?dir)\b[^|;&\n]*\s(?:-[a-zA-Z\d]*[cfgnouU]|--sort[= ]none|--time)"
    r"|\b(?:[efr]?grep|g(?:un)?zip)\b[^|;&\n]*\s(?:-[a-zA-Z\d]*[rR]|--rec|--deref)"
    r"|\bgzip\b[^|;&\n]*\s(?:-[a-zA-Z\d]*c|--(?:to-)?std)"
    r"|(?<![\w./-])tar\s(?:[a-zA-Z]*c|(?:[^|;&\n]*\s)?(?:-[a-zA-Z]*c|--create))"
    r"|\b(?:ch(?:mod|own|grp)|rm|cp)\b(?=[^|;&\n]*\s(?:-[a-zA-Z]*[rR]|--rec))"
    r"(?=[^|;&\n]*\s(?:-[a-zA-Z]*[vc]|--verb|--changes))"
    r"|\btouch\b[^|;&\n]*\s(?:-[a-zA-Z]*h|--no-deref)"
    r"|\s(?:-\w*d *rec|--dir[a-z]*[= ]rec|--numeric-)"
)
"""Options whose output depends on directory order or on incidental attributes of files.

They select unsorted listings, listings sorted by access or change time, numeric owners, sizes of
directories, or messages of a recursive walk. Archives list files in directory order with the times
of new files; `gzip` output has them as well.
"""

_OF_DIRECTORIES = frozenset({"month", "day", "year", "time", "size"})

Progress = Callable[[str, int, int], None]

Changes = Mapping[str, str]
"""Changes of files by name: `added`, `removed` or `changed`."""


@dataclass(frozen=True, slots=True)
class TruthData:
    """The result of an export: directory, cases of each split, and total bytes."""

    directory: Path
    splits: Mapping[str, int]
    drawn: int
    """Number of drawn cases; unsteady ones are not exported."""
    bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        return {
            "directory": str(self.directory),
            "drawn": self.drawn,
            "splits": dict(self.splits),
            "bytes": self.bytes,
        }


def export_truth(
    directory: Path,
    *,
    system: str | None = None,
    choice: Choice,
    workers: int | None = None,
    licence: str = "unknown",
    progress: Progress = lambda what, done, total: None,
) -> TruthData:
    """Write cases with their ground truth to a directory, all or nothing.

    The same choice, system and library versions give the same bytes. A portable case behaves the
    same when executed again after `ANOTHER_MACHINE`. Its input, history and output name no path
    outside the home tree. Errors: those of `find_system` and `truth_of`; OutputExistsError.
    """
    built = find_system(system)
    with new_directory(directory) as temporary:
        with CaseMachine(built, workers) as machine:
            truth = truth_of(machine, choice, lambda *done: progress("cases executed", *done))
            chosen = _portable(
                machine, truth, lambda *done: progress("cases executed elsewhere", *done)
            )
        counts = _write(temporary, built, truth, chosen, choice, licence)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return TruthData(directory, counts, len(truth), size)


def _portable(
    machine: CaseMachine, truth: Sequence[TruthCase], report: Callable[[int, int], None]
) -> frozenset[int]:
    """Return the numbers of the cases that need only the home tree."""
    names = _names_of(machine.system)
    tasks = [
        (
            number,
            CaseInput(case.drawn.cwd, (ANOTHER_MACHINE, *case.drawn.history), case.asked.input),
        )
        for number, case in enumerate(truth)
        if case.behavior is not None and not _tells(case, case.behavior, names)
    ]
    found = set()
    for done, (number, there) in enumerate(machine.single_runs(tasks), 1):
        report(done, len(tasks))
        case = truth[number]
        here = case.behavior
        assert here is not None
        if _same(machine.system, case.drawn.cwd, here, there):
            found.add(number)
    return frozenset(found)


def _names_of(system: System) -> re.Pattern[str]:
    """Compile a pattern for paths outside the home tree; `/dev/null` exists everywhere."""
    top = sorted({path.split("/")[1] for path in system.index} - {""})
    return re.compile(rf"\.\./\.\.|/(?!dev/null\b)(?:{'|'.join(map(re.escape, top))})(?![\w.-])")


def _tells(case: TruthCase, behavior: Behavior, names: re.Pattern[str]) -> bool:
    """Whether a case names something outside the home tree, or a word of `not_portable`."""
    text = "\n".join((*case.drawn.history, case.drawn.input.text))
    words = set(re.split(r"[^\w.-]+", text))
    return bool(
        words & not_portable()
        or _OF_THE_FILE_SYSTEM.search(text)
        or names.search(f"{text}\n{behavior.text}")
    )


def _same(system: System, cwd: str, here: Behavior, there: Behavior) -> bool:
    """Whether both behaved the same, and changed no file outside the home tree."""
    if (here.exit_code, here.output) != (there.exit_code, there.output):
        return False
    prefix = f"{ELSEWHERE}/"
    moved = {name.removeprefix(prefix): to for name, to in there.content_digests.items()}
    elsewhere = {
        name.removeprefix(prefix): change
        for name, change in file_changes(system, cwd, there).items()
        if name != ELSEWHERE
    }
    changes = file_changes(system, cwd, here)
    inside = not any(name.startswith(("/", "..")) for name in changes)
    return inside and changes == elsewhere and here.content_digests == moved


def file_changes(system: System, cwd: str, behavior: Behavior) -> Changes:
    """Return a behavior's changes of files, ignoring sizes and times of directories."""
    found: dict[str, str] = {}
    for code, path, _ in sorted(operations(behavior.patch)):
        area, *names = keys(path) or [""]
        if area != "fs" or not names or names[0] == ".":
            continue
        name = names[0]
        if len(names) == 1:
            change = {"a": "added", "r": "removed"}.get(code, "changed")
            found[name] = "changed" if name in found else change
        elif names[1] not in OF_CONTENT and not (
            names[1] in _OF_DIRECTORIES and _was_directory(system, cwd, name)
        ):
            found.setdefault(name, "changed")
    return dict(sorted(found.items()))


def _was_directory(system: System, cwd: str, name: str) -> bool:
    inside = name.removeprefix(f"{ELSEWHERE}/")
    entry = system.index.get(posixpath.join(cwd, inside))
    return entry is not None and stat.S_ISDIR(entry.mode)


def _write(
    directory: Path,
    system: System,
    truth: Sequence[TruthCase],
    portable: frozenset[int],
    choice: Choice,
    licence: str,
) -> dict[str, int]:
    (directory / "data").mkdir()
    lines: dict[str, list[str]] = {name: [] for name in SPLITS}
    for number, case in enumerate(truth):
        if case.behavior is not None:
            row = case_row(system, number, case, case.behavior)
            split = PORTABLE if number in portable else SYSTEM
            lines[split].append(json.dumps(row, ensure_ascii=True, separators=(",", ":")))
    counts = {name: len(rows) for name, rows in lines.items()}
    contents = {
        f"data/{name}.jsonl.xz": "".join(f"{row}\n" for row in rows) for name, rows in lines.items()
    }
    cwd = truth[0].drawn.cwd
    contents[HOME] = json.dumps(list(_home(system, cwd)))
    packed = {name: lzma.compress(text.encode(), preset=6) for name, text in contents.items()}
    packed[CHECKER] = files(__package__).joinpath(CHECKER).read_bytes()
    facts = {
        "version": VERSION,
        "system": system.name,
        "system_digest": system.digest,
        "grammar_digest": grammar_digest(
            load_grammars(chosen_grammars(choice.commands), host_clock=system.host_clock),
            {cwd: catalogue(system, cwd)},
        ),
        "commands": list(choice.commands),
        "seed": choice.seed,
        "drawn": len(truth),
        "cwd": cwd,
        "splits": counts,
        "sha256": {name: hashlib.sha256(packed[name]).hexdigest() for name in sorted(packed)},
    }
    packed[FACTS] = (json.dumps(facts, indent=1) + "\n").encode()
    packed[CARD] = _card(facts, licence).encode()
    for name, content in packed.items():
        atomic_write(directory / name, content)
    return counts


def case_row(system: System, number: int, case: TruthCase, behavior: Behavior) -> dict[str, Any]:
    """Return a case as a row of the data; each key has the same type in every row."""
    drawn = case.drawn
    output, encoded = output_text(behavior.output)
    stderr, stderr_encoded = output_text(behavior.stderr or b"")
    changes = file_changes(system, drawn.cwd, behavior)
    digests = behavior.content_digests
    return {
        "number": number,
        "kind": drawn.kind,
        "command": drawn.command,
        "options": list(drawn.options),
        "cwd": drawn.cwd,
        "history": list(drawn.history),
        "input": drawn.input.text,
        "output": output,
        "output_b64": encoded,
        "stderr": stderr,
        "stderr_b64": stderr_encoded,
        "exit_code": behavior.exit_code,
        "context_patch": behavior.patch.to_json(),
        "files": [
            {"name": name, "change": change, "sha256": digests.get(name)}
            for name, change in changes.items()
        ],
    }


def _home(system: System, cwd: str) -> Iterator[dict[str, Any]]:
    """Yield the files of the home tree, parents first."""
    for entry in sorted(system.beneath(cwd), key=lambda entry: entry.path):
        content = system.read(entry.path) if stat.S_ISREG(entry.mode) else b""
        yield {
            "name": posixpath.relpath(entry.path, cwd),
            "mode": entry.mode,
            "uid": entry.uid,
            "gid": entry.gid,
            "mtime": entry.mtime,
            "target": entry.target,
            "content_b64": base64.b64encode(content).decode(),
        }


def _card(facts: Mapping[str, Any], licence: str) -> str:
    """Return the dataset card: YAML metadata for the hub, then a description of the cases."""
    template = files(__package__).joinpath("templates", "card.md").read_text(encoding="utf-8")
    count = sum(facts["splits"].values())
    return template.format(
        licence=licence,
        size=size_category(count),
        portable=f"{facts['splits'][PORTABLE]:,}",
        of_system=f"{facts['splits'][SYSTEM]:,}",
        **{name: facts[name] for name in ("version", "system", "system_digest", "grammar_digest")},
        commands=" ".join(facts["commands"]) or "all of the set `paper`",
        seed=facts["seed"],
        drawn=f"{facts['drawn']:,}",
    )
