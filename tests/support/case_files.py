"""Parse `cases/*.txt`: hostile inputs with their expected results, see `cases/README.txt`.

A malformed file is an error that names the file and line; no case is skipped silently.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from shioenv.sandbox.base import Limits

DIRECTORY = Path(__file__).parent / "cases"
FLAGS = ("timed_out", "output_truncated", "patch_truncated", "shell_unknown")
LIMITS: dict[str, Any] = {
    "wall_seconds": 4.0,
    "memory_bytes": 96 << 20,
    "processes": 200,
    "disk_bytes": 16 << 20,
    "disk_inodes": 8192,
    "output_bytes": 256 << 10,
    "drain_bytes": 4 << 20,
}
"""Limits of cases without limits: small, so that reaching them is quick."""

_ONCE = (
    "exit", "output", "flags", "reached", "refused", "wall", "limits", "length", "cwd", "only",
    "xfail",
)  # fmt: skip
_MANY = ("prints", "lacks", "patch", "patch-lacks", "after", "after-tty", "meanwhile")
_BARE = ("own", "escaped", "tty")
_PATTERNS = ("prints", "lacks", "patch", "patch-lacks")
_EXPECTATION = re.compile(r"=> ([a-z-]+)(?:\[(root|user)\])?(?: (.*))?")


@dataclass(frozen=True, slots=True)
class Case:
    """One input and its expected result, in a sandbox of root (`mode` "root") or an ordinary
    user."""

    group: str
    name: str
    mode: str
    text: str
    """Decoded like a file name: invalid UTF-8 becomes lone surrogates."""
    values: dict[str, str] = field(default_factory=dict)
    """The keys that occur at most once."""
    lists: dict[str, list[str]] = field(default_factory=dict)
    """The keys that may occur several times."""

    @property
    def limits(self) -> dict[str, Any]:
        """Keyword arguments of `Limits`."""
        chosen = dict(pair.split("=") for pair in self.values.get("limits", "").split())
        return LIMITS | {
            name: float(value) if "seconds" in name else int(value)
            for name, value in chosen.items()
        }


def unescape(text: str) -> str:
    r"""Decode `\n`, `\xff` and the like to bytes, and decode these as a file name."""
    raw = text.encode("utf-8").decode("latin-1").encode("latin-1", "backslashreplace")
    return raw.decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")


def load(path: Path, mode: str) -> list[Case]:
    """Parse the cases of one file for one mode. Raises ValueError with file, line and the fault."""
    cases: list[Case] = []
    names: list[str] = []
    name, start, lines, found = "", 0, [], []  # type: str, int, list[str], list[tuple[int, str]]

    def finish() -> None:
        if name:
            case = _case(path, start, name, mode, lines, found)
            names.append(name)
            if case.values.get("only", mode) == mode:
                cases.append(case)

    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        if line.startswith("# "):
            continue
        if line.startswith("### "):
            finish()
            name, start, lines, found = line[4:], number, [], []
        elif line.startswith("=>"):
            found.append((number, line))
        elif line.strip() and (not name or found):
            raise ValueError(f"{path.name}:{number}: neither an input nor an expectation: {line}")
        elif not found:
            lines.append(line)
    finish()
    if twice := {each for each in names if names.count(each) > 1}:
        raise ValueError(f"{path.name}: several cases are called {sorted(twice)}")
    if not names:
        raise ValueError(f"{path.name}: no case")
    return cases


def _case(
    path: Path, start: int, name: str, mode: str, lines: list[str], found: list[tuple[int, str]]
) -> Case:
    values: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    general: dict[str, str] = {}
    for number, line in found:
        where = f"{path.name}:{number}"
        match = _EXPECTATION.fullmatch(line)
        if match is None:
            raise ValueError(f"{where}: no expectation: {line}")
        key, only, value = match[1], match[2], match[3] or ""
        if key not in _ONCE + _MANY + _BARE:
            raise ValueError(f"{where}: there is no expectation {key!r}")
        if bool(value) == (key in _BARE) and key != "output":
            raise ValueError(f"{where}: {key} takes {'no' if value else 'a'} value")
        if key in _PATTERNS and re.search(value, "") is not None:
            raise ValueError(f"{where}: the pattern matches nothing at all: {value}")
        if key in _MANY:
            if only in (None, mode):
                lists.setdefault(key, []).append(value)
            continue
        target = general if only is None else values
        if only in (None, mode):
            if key in target:
                raise ValueError(f"{where}: {key} stands twice")
            target[key] = value
    values = general | values
    where = f"{path.name}:{start}"
    if not re.fullmatch(r"[a-z0-9-]+", name):
        raise ValueError(f"{where}: a name is small letters, digits and hyphens: {name!r}")
    text = "\n".join(lines).strip("\n")
    if not text:
        raise ValueError(f"{where}: no input")
    if ("exit" in values) == ("refused" in values):
        raise ValueError(f"{where}: exactly one of exit and refused")
    if "exit" in values and not re.fullmatch(r"!?\d+(\|\d+)*", values["exit"]):
        raise ValueError(f"{where}: an exit code is a number, N|M or !N: {values['exit']}")
    for key, known in (("flags", FLAGS), ("reached", Limits.__slots__)):
        for flag in values.get(key, "").split():
            if flag.rstrip("?") not in known:
                raise ValueError(f"{where}: there is no {flag!r} among the {key}")
    seen = {"output", "flags", "refused"} & set(values) | set(lists) - {"lacks", "patch-lacks"}
    if not seen and values["exit"] == "0":
        raise ValueError(f"{where}: says nothing but that it ended")
    if "escaped" in values:
        text = unescape(text)
    if "length" in values:
        if text.count("@FILL@") != 1:
            raise ValueError(f"{where}: length needs one @FILL@")
        size = int(values["length"]) - (len(text.encode("utf-8", "surrogateescape")) - 6)
        text = text.replace("@FILL@", "x" * size)
    case = Case(path.stem, name, mode, text, values, lists)
    Limits(**case.limits)
    return case


class Sentinel(NamedTuple):
    """An ordinary input of `sentinels.txt`."""

    section: str
    """Its effect on the traces of an input: "look" hides none from later sentinels, "ask" those in
    the network, "write" all."""
    text: str
    noticed: str
    """An input whose traces it shows, without a reset in between."""


def sentinels() -> list[Sentinel]:
    """Parse the ordinary inputs, in order. Raises ValueError for one without a known
    disturbance."""
    found: list[Sentinel] = []
    section = noticed = ""
    for line in (DIRECTORY.parent / "sentinels.txt").read_text("utf-8").splitlines():
        if line.startswith("== "):
            section = line[3:]
        elif line.startswith("!! "):
            noticed = line[3:]
        elif line and not line.startswith("# "):
            if not noticed:
                raise ValueError(f"what would disturb it? {line}")
            found.append(Sentinel(section, line, noticed))
            noticed = ""
    return found


def all_cases(mode: str) -> list[Case]:
    """Parse the cases of every file, in the order of their names."""
    return [case for path in sorted(DIRECTORY.glob("[a-z]*.txt")) for case in load(path, mode)]


def faults(case: Case, answer: dict[str, Any]) -> list[str]:
    """Return the answer's differences from the case; empty for a correct answer."""
    wanted = case.values
    if error := answer.get("error"):
        if "refused" in wanted and re.search(wanted["refused"], error):
            return []
        return [f"refused: {error}"]
    if "refused" in wanted:
        return ["it was not refused"]
    wrong = []
    expected, code = wanted["exit"], str(answer["exit_code"])
    if (code in expected.lstrip("!").split("|")) == expected.startswith("!"):
        wrong.append(f"exit code {code}, not {expected}")
    output, patch = answer["output"], answer["patch"]
    if "output" in wanted:
        exact = unescape(wanted["output"]).encode("utf-8", "surrogateescape").decode("latin-1")
        if output != exact:
            wrong.append(f"the output is not {wanted['output']!r}")
    for key, text in (("prints", output), ("patch", patch)):
        for pattern in case.lists.get(key, []):
            if not re.search(pattern, text, re.MULTILINE):
                wrong.append(f"{key}: not found: {pattern}")
    for key, text in (("lacks", output), ("patch-lacks", patch)):
        for pattern in case.lists.get(key, []):
            if re.search(pattern, text, re.MULTILINE):
                wrong.append(f"{key}: found: {pattern}")
    for key in ("flags", "reached"):
        names = wanted.get(key, "").split()
        if key == "reached":  # whether background processes end in time is not fixed
            names += [*_limits_of(wanted.get("flags", "").split()), "background_seconds?"]
        required, allowed = {n for n in names if "?" not in n}, {n.rstrip("?") for n in names}
        if not required <= set(answer[key]) <= allowed:
            wrong.append(f"{key} {answer[key]}, not {names}")
    for probe, before, after in answer["probes"]:
        if before != after:
            wrong.append(f"{probe!r} printed {before!r} before and {after!r} after it")
    return wrong


def _limits_of(flags: list[str]) -> list[str]:
    """Return the limits that flags report already."""
    told = {"timed_out": "wall_seconds", "output_truncated": "output_bytes"}
    return [told[f.rstrip("?")] + f[len(f.rstrip("?")) :] for f in flags if f.rstrip("?") in told]


def summary(answer: dict[str, Any]) -> str:
    """Summarise the input's results for a failure's message."""
    shown = {name: value for name, value in answer.items() if name != "sentinels"}
    return json.dumps({n: v[:1500] if isinstance(v, str) else v for n, v in shown.items()})
