"""Judges a file of answers by the frozen answers: python3 judge.py answers.jsonl.

It needs only Python 3.10. The file has a JSON object on each line, as for `recording:FILE`. Its
keys are `input`, `cwd`, `history`, and those of the answer: `output`, `exit_code` and
`context_patch`. A line without `input` may give the `patch_level`, full or files. The exit status
is 0, or 2 for files that cannot be read.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import gzip
import hashlib
import json
import re
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any

COLUMNS = {
    "em": "EM", "em_masked": "masked", "em_exit": "+exit", "em_files": "files",
    "em_output": "output", "em_patch": "patch", "exit_code": "exit", "o_es": "O-ES", "djs": "ΔJS",
    "em_macro": "by utility",
}  # fmt: skip
"""The metrics of the table, with their headings."""

GROUPS = ("single", "multi", "all")
KEYS = ("abstained", "confidence", "context_patch", "exit_code", "output", "output_b64")
LENGTHS = {"a": 3, "=": 3, "r": 2, "m": 3}
"""Length of an operation: add, replace, remove, move."""
CHARACTERS = 8192
"""Characters of each output whose similarity is measured."""


def _text_of(value: Any) -> str:
    """Return a value as JSON, the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _keys(path: str) -> list[str]:
    """Split a JSON Pointer into its keys."""
    return [one.replace("~1", "/").replace("~0", "~") for one in path.split("/")[1:]]


def _is_content(operation: list[Any]) -> bool:
    """Whether an operation marks a file in which only the content changed."""
    return operation[0] == "=" and len(names := _keys(operation[1])) == 2 and names[0] == "fs"


def _paths_of(operation: list[Any]) -> list[str]:
    """Return the paths of an operation."""
    return operation[1:3] if operation[0] == "m" else operation[1:2]


class _Behavior:
    """An output, an exit code and a patch; a missing patch (None) makes an answer invalid."""

    def __init__(self, document: dict[str, Any]) -> None:
        encoded, text = document.get("output_b64"), document.get("output", "")
        if encoded is not None:
            raw = base64.b64decode(encoded, validate=True)
        elif isinstance(text, str):
            raw = text.encode("utf-8", "surrogatepass")
        else:
            raise ValueError("no text")
        self.output = raw.replace(b"\r\n", b"\n").decode("utf-8", "surrogateescape")
        self.exit_code = document.get("exit_code", 0)
        self.patch: list[list[Any]] | None = None
        if type(self.exit_code) is not int or not 0 <= self.exit_code <= 255:
            self.exit_code = 1
        else:
            self.patch = _patch_of(document.get("context_patch") or [])
        digests = document.get("content_digests")
        self.digests = digests if isinstance(digests, dict) else {}


def _patch_of(source: Any) -> list[list[Any]] | None:
    """Return a patch, which may be given as text; None if it is malformed."""
    try:
        patch: list[list[Any]] = json.loads(source) if isinstance(source, str) else source
    except (ValueError, RecursionError):
        return None
    for one in patch if isinstance(patch, list) else [None]:
        if not isinstance(one, list) or not one or not isinstance(one[0], str):
            return None
        if len(one) != LENGTHS.get(one[0]):
            return None
        if any(not isinstance(path, str) or path[:1] not in ("", "/") for path in _paths_of(one)):
            return None
    return patch


def _parse_answer(document: dict[str, Any]) -> _Behavior | None:
    """Return the behavior of an answer; None without an answer."""
    plain = {name.replace("_", ""): name for name in KEYS}
    for name in document.keys() - set(KEYS):
        meant = get_close_matches(re.sub(r"[\W_]", "", name).lower(), plain, 1, 0.8)
        if meant and plain[meant[0]] not in document:
            return None  # misspelt
    if document.get("abstained") or not {"output", "output_b64"} & document.keys():
        return None
    try:
        found = _Behavior(document)
    except (TypeError, ValueError, binascii.Error):
        return None
    sure = document.get("confidence", 1.0)
    if isinstance(sure, bool) or not isinstance(sure, (int, float)) or not 0 <= sure <= 1:
        found.patch = None
    return found


def _changed_contents(runs: list[_Behavior]) -> set[tuple[str, str]]:
    """Return the files in which a run changed only the content, with their entries."""
    found = set()
    for run in runs:
        patch = run.patch or []
        told = {tuple(_keys(path)[:2]) for one in patch for path in _paths_of(one)}
        found |= {(one[1], _text_of(one[2])) for one in patch if _is_content(one)}
        escaped = {name: name.replace("~", "~0").replace("/", "~1") for name in run.digests}
        found |= {(f"/fs/{path}", "") for name, path in escaped.items() if ("fs", name) not in told}
    return found


def _operations(
    behavior: _Behavior, moved: dict[str, Any], silent: set[tuple[str, str]] | None = None
) -> frozenset[tuple[str, str, str]]:
    """Return the operations that are compared; a move is a removal and an addition."""
    found = set()
    for one in behavior.patch or []:
        if _is_content(one) and (
            silent is None or silent & {(one[1], _text_of(one[2])), (one[1], "")}
        ):
            continue
        if one[0] == "m":
            found |= {("r", one[1], ""), ("a", one[2], _text_of(moved.get(one[1], one[1])))}
        else:
            found.add((one[0], one[1], "" if one[0] == "r" else _text_of(one[2])))
    return frozenset(found)


_Operations = frozenset[tuple[str, str, str]]


def _reconciled(ours: _Operations, theirs: _Operations) -> _Operations:
    """Return `ours`, with the values that its moves add filled in from `theirs`."""
    removed = {_text_of(path): path.rpartition("/")[0] for code, path, _ in theirs if code == "r"}
    added = {path: text for code, path, text in theirs if code == "a"}
    moved = {path: text for code, path, text in ours if code == "a" and text in removed}
    sources = set(moved.values())
    places = {removed[source] for source in sources}
    candidates = {source for source, place in removed.items() if place in places}
    if candidates != sources or len({added.get(path) for path in moved}) != 1:
        return ours
    return frozenset(
        (code, path, added.get(path, text) if path in moved and code == "a" else text)
        for code, path, text in ours
    )


def _changed_files(changes: _Operations) -> frozenset[tuple[str, str]]:
    """Return the change of each file: added, removed or changed."""
    found = set()
    for code, path, _ in changes:
        area, *names = _keys(path) or [""]
        if area == "fs" and len(names) == 1:
            found.add(({"a": "added", "r": "removed"}.get(code, "changed"), names[0]))
        elif area == "fs" and names and names[1] != "links":
            found.add(("changed", names[0]))
    return frozenset(found)


def _jaccard(first: frozenset[Any], second: frozenset[Any]) -> float | None:
    """Return the share of common members; None if both sets are empty."""
    union = len(first | second)
    return len(first & second) / union if union else None


def _similarity(first: str, second: str) -> float:
    """Return 2 m / (a + b), with m the length of the longest common subsequence."""
    if first == second:
        return 1.0
    first, second = first[:CHARACTERS], second[:CHARACTERS]
    if first == second:
        return 1.0
    places: dict[str, int] = {}
    for number, one in enumerate(first):
        places[one] = places.get(one, 0) | 1 << number
    left = ones = (1 << len(first)) - 1
    for one in second:
        common = left & places.get(one, 0)
        left = (left + common | left - common) & ones
    return 2 * (ones ^ left).bit_count() / (len(first) + len(second))


def _is_noisy(name: str, names: dict[str, list[str]]) -> bool:
    """Whether a name varies between the runs; NUL stands for any character but / and ~."""
    return name in names["exact"] or any(
        len(name) == len(pattern)
        and all(a == b or (b == "\0" and a not in "/~") for a, b in zip(name, pattern, strict=True))
        for pattern in names["patterns"]
    )


def _fits(patterns: list[str | None] | None, lines: list[str]) -> bool:
    """Whether lines match the patterns; the pattern None matches any number of lines."""
    if patterns is None:
        return False
    place = pattern = 0
    gap: tuple[int, int] | None = None
    while place < len(lines):
        here = patterns[pattern] if pattern < len(patterns) else None
        if pattern < len(patterns) and here is None:
            gap = pattern, place
            pattern += 1
        elif here is not None and re.fullmatch(here, lines[place]):
            pattern, place = pattern + 1, place + 1
        elif gap is not None:
            gap = gap[0], gap[1] + 1
            pattern, place = gap[0] + 1, gap[1]
        else:
            return False
    return all(left is None for left in patterns[pattern:])


def _marks_of(
    case: dict[str, Any], answer: _Behavior | None, full: bool
) -> dict[str, float | None]:
    """Return the value of each metric for one answer; None: it does not apply."""
    gold = [_Behavior(one) for one in case["gold"]]
    changes = [_operations(run, case["moved"]) for run in gold]
    files = [_changed_files(one) for one in changes]
    marks: dict[str, float | None] = dict.fromkeys(COLUMNS, 0.0)
    del marks["em_macro"]
    marks["djs"] = 0.0 if all(changes if full else files) else None
    if answer is None:
        return marks
    outputs = [run.output == answer.output for run in gold]
    exits = [run.exit_code == answer.exit_code for run in gold]
    marks["em_output"], marks["exit_code"] = float(any(outputs)), float(any(exits))
    marks["o_es"] = max(_similarity(run.output, answer.output) for run in gold)
    if answer.patch is None:
        return marks
    own = _operations(answer, case["moved"], _changed_contents(gold))
    said = [_reconciled(own, one) for one in changes]
    told = [_changed_files(one) for one in said]
    pairs: list[Any] = list(zip(*((changes, said) if full else (files, told)), strict=True))
    patches = [one == other for one, other in pairs]
    shares = [_jaccard(one, other) for one, other in pairs]
    joint = [output and patch for output, patch in zip(outputs, patches, strict=True)]
    mask = case["mask"]

    def outside(one: frozenset[Any]) -> set[Any]:
        names = mask["paths" if full else "files"]
        return {each for each in one if not _is_noisy(each[1], names)}

    masked = (any(outputs) or _fits(mask["lines"], answer.output.split("\n"))) and any(
        outside(one) == outside(other) for one, other in pairs
    )
    return marks | {
        "em": float(any(joint)),
        "em_masked": float(masked),
        "em_exit": float(any(one and code for one, code in zip(joint, exits, strict=True))),
        "em_files": float(any(a and b == c for a, b, c in zip(outputs, files, told, strict=True))),
        "em_patch": float(any(patches)),
        "djs": None if None in shares else max(one for one in shares if one is not None),
    }


def _mean(values: list[float | None]) -> float | None:
    """Return the mean of the known values; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def judged(suite: Path, answers: Path) -> dict[str, Any]:
    """Judge a file of answers. Errors: OSError, ValueError, KeyError."""
    head, cases = _read_suite(suite)
    level, given = _read_answers(answers)
    scored = []
    for case in cases:
        question = case["question"]
        where, history = question.get("cwd") or head["start"], tuple(question.get("history") or ())
        found = [given.get((question["input"], cwd, history)) for cwd in (where, None)]
        line = next((one for one in found if one is not None), None)
        answer = None if line is None else _parse_answer(line)
        scored.append((case, _marks_of(case, answer, level == "full")))
    groups = {}
    for group in GROUPS:
        chosen = [one for one in scored if group in ("all", one[0]["question"]["steps"])]
        figures = {name: _mean([marks[name] for _, marks in chosen]) for name in list(COLUMNS)[:-1]}
        used: dict[str, list[float | None]] = {}
        for case, marks in chosen:
            for utility in case["utilities"]:
                used.setdefault(utility, []).append(marks["em"])
        figures["em_macro"] = _mean([_mean(values) for values in used.values()])
        rounded = {name: one if one is None else round(one, 4) for name, one in figures.items()}
        groups[group] = {"n": len(chosen), **rounded}
    about = {name: head[name] for name in ("name", "sha256", "system", "system_digest")}
    return {"suite": about, "patch_level": level, "answers": len(given), **groups}


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def _read_suite(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read the head and the cases of a file of frozen answers."""
    content = _content(path)
    first, _, body = content.partition(b"\n")
    head = json.loads(first)["suite"]
    if hashlib.sha256(body).hexdigest() != head["sha256"]:
        raise ValueError(f"{path} was changed since it was recorded")
    return head, [json.loads(line.decode("utf-8", "surrogatepass")) for line in body.splitlines()]


def _read_answers(path: Path) -> tuple[str, dict[Any, dict[str, Any]]]:
    """Return the patch level and the answers, by input, start directory and history."""
    level, found = "full", {}
    text = _content(path).decode("utf-8", "replace")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError(f"{path}:{number}: no JSON object")
        if "input" in document:
            history = tuple(document.get("history") or ())
            found[document["input"], document.get("cwd"), history] = document
        else:
            level = document.get("patch_level", level)
    if level not in ("full", "files"):
        raise ValueError(f"{path}: a patch level is full or files, not {level!r}")
    return level, found


def main() -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("answers", type=Path, help="the file of answers")
    parser.add_argument("--suite", default="public-test", metavar="NAME|FILE",
                        help="frozen answers: a file, or a name beside this program")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    beside = Path(__file__).parent / f"{given.suite}.jsonl.gz"
    try:
        document = judged(beside if beside.exists() else Path(given.suite), given.answers)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(document, indent=1, ensure_ascii=False))
        return 0
    about = document["suite"]
    print(f"{about['name']} on {about['system']} {about['system_digest'][:12]}, "
          f"patch level {document['patch_level']}\n")  # fmt: skip
    print("| | inputs |", " | ".join(COLUMNS.values()), "|")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for group in GROUPS:
        figures = [document[group][name] for name in COLUMNS]
        shown = ["-" if one is None else f"{one:.3f}" for one in figures]
        print(f"| {group} | {document[group]['n']} |", " | ".join(shown), "|")
    return 0


if __name__ == "__main__":
    sys.exit(main())
