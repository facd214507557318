"""Check that `shioenv conform` finds faults: 30 are planted into the machine's own answers.

Each fault is one of some emulator: an option that is ignored, a width, a message, an exit code, a
file's mode. The machine answers through a program (`--answer`), which applies the faults. A fault
is found where it causes a finding. Every case is run, so a fault is missed where no case exercises
it, or where the comparison does not detect it.

A violation is a planted fault without a finding, or a finding without a planted fault. Where only
some commands are compared, faults without a case are no violations.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from common import parser, report
from shioenv.behavior.observe import open_sandbox
from shioenv.domain.answer_json import behavior_json
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.predictor import PatchLevel
from shioenv.domain.runner import State
from shioenv.sandbox.base import LIMITS
from shioenv_eval.conform.comparison import compare_with_machine
from shioenv_eval.conform.truth import Choice

Change = Callable[[Behavior], Behavior]


def lines(change: Callable[[list[bytes]], list[bytes]]) -> Change:
    """Return a change of the output's lines."""
    return lambda one: replace(one, output=b"".join(change(one.output.splitlines(keepends=True))))


def bytes_of(pattern: bytes, by: bytes) -> Change:
    """Return a change that replaces the matches of a pattern on each line of the output."""
    compiled = re.compile(pattern, re.MULTILINE)
    return lambda one: replace(one, output=compiled.sub(by, one.output))


def exits(old: int, new: int) -> Change:
    """Return a change of the exit code, where the machine's is `old`."""
    return lambda one: replace(one, exit_code=new) if one.exit_code == old else one


def patched(change: Callable[[Operation], Operation | None]) -> Change:
    """Return a change of the patch's operations; None removes one."""

    def changed(one: Behavior) -> Behavior:
        kept = (change(operation) for operation in one.patch.operations)
        return replace(one, patch=ContextPatch(tuple(each for each in kept if each is not None)))

    return changed


def without(attribute: str) -> Change:
    """Return a change that removes the changes of one file attribute from the patch."""
    return patched(lambda one: None if one[1].endswith(f"/{attribute}") else one)


def given(attribute: str, value: object) -> Change:
    """Return a change that sets another attribute of added files."""
    return patched(
        lambda one: (
            (one[0], one[1], {**one[2], attribute: value})
            if one[0] == "a" and isinstance(one[2], dict) and one[2].get(attribute) != value
            else one
        )
    )


def has(command: str, option: str = "") -> str:
    """Return a pattern of inputs that call a command, with an option as a separate word."""
    behind = rf"[^|;&<>]*\s{option}(?=[\s=]|$)" if option else r"(?=\s|$)"
    return rf"(?:^|[|;&]\s*){command}{behind}"


FAULTS: dict[str, tuple[str, Change]] = {
    "sort -r does not reverse": (has("sort", "-r"), lines(lambda said: said[::-1])),
    "sort -u keeps a line twice": (has("sort", "-u"), lines(lambda said: [*said, *said[-1:]])),
    "sort -n goes by characters": (has("sort", "-n"), lines(sorted)),
    "sort --check ends with 0": (has("sort", "--check"), exits(1, 0)),
    "uniq -c pads too little": (has("uniq", "-c"), bytes_of(rb"^ {3}", b"")),
    "uniq -d prints nothing": (has("uniq", "-d"), lines(lambda said: [])),
    "wc -l counts one too many": (
        has("wc", "-l"),
        lambda one: replace(
            one,
            output=re.sub(rb"\d+", lambda n: b"%d" % (int(n[0]) + 1), one.output, count=1),
        ),
    ),
    "wc -L prints no name": (has("wc", "-L"), bytes_of(rb"(\d) \S+$", rb"\1")),
    "head -n prints one line less": (has("head", "-n [0-9]+"), lines(lambda said: said[:-1])),
    "head -c ends with a newline": (
        has("head", "-c [0-9]+"),
        lambda one: replace(one, output=one.output + b"\n"),
    ),
    "tail -n prints one line less": (has("tail", "-n [0-9]+"), lines(lambda said: said[1:])),
    "cat -n pads too little": (has("cat", "-n"), bytes_of(rb"^ ( +\d+\t)", rb"\1")),
    "cat -E shows no end of lines": (has("cat", "-E"), bytes_of(rb"\$$", b"")),
    "cut -f separates by a blank": (has("cut", "-f ?[0-9,-]+"), bytes_of(rb"\t", b" ")),
    "ls -l has no total": (has("ls", "-l"), bytes_of(rb"^total \d+\n", b"")),
    "ls -a has no ..": (has("ls", "-a"), bytes_of(rb"^\.\.\n", b"")),
    "ls -F marks no directory": (has("ls", "-F"), bytes_of(rb"/$", b"")),
    "ls ends with 1 where a file is missing": (has("ls"), exits(2, 1)),
    "grep ends with 0 where nothing matches": (has("grep"), exits(1, 0)),
    "grep -c prints no 0": (has("grep", "-c"), bytes_of(rb"^0\n", b"")),
    "grep -n has a blank behind the number": (has("grep", "-n"), bytes_of(rb"^(\d+):", rb"\1 ")),
    "mkdir -m does not set the mode": (has("mkdir", "-m \\S+"), given("perms", "drwxr-xr-x")),
    "mkdir -v prints nothing": (has("mkdir", "-v"), lines(lambda said: [])),
    "touch does not change a time": (
        has("touch"),
        patched(lambda one: None if one[1].rpartition("/")[2] in {"time", "day", "month"} else one),
    ),
    "chmod does not change the mode": (has("chmod"), without("perms")),
    "rm leaves the file": (has("rm"), patched(lambda one: None if one[0] == "r" else one)),
    "ln -s makes an empty file": (has("ln", "-s"), given("size", 0)),
    "tr has no end of lines": (has("tr"), bytes_of(rb"\n\Z", b"")),
    "messages have other quotes": (
        has("(?:cp|mv|rm)"),
        lambda one: replace(one, output=one.output.replace(b"'", "\u2019".encode())),
    ),
    "cd to what is missing ends with 0": (has("cd"), exits(1, 0)),
}
"""The planted faults: a pattern of the affected inputs, and the change."""


def faulty(text: str, did: Behavior) -> tuple[Behavior, list[str]]:
    """Return the machine's behavior with all faults applied, and the names of the effective
    ones.
    """
    names = []
    for name, (pattern, change) in FAULTS.items():
        if re.search(pattern, text) and (changed := change(did)) != did:
            did = changed
            names.append(name)
    return did, names


def answer() -> int:
    """Answer questions on standard input until it ends, as described in `docs/how-to/judge.md`.

    Return the exit status.
    """
    with open_sandbox(sys.argv[2], limits=LIMITS) as sandbox:
        for line in sys.stdin:
            question = json.loads(line)
            if "hello" in question:
                said = {"version": "planted", "patch_level": "full"}
            else:
                state = State(cwd=question["cwd"], history=tuple(question["history"]))
                did, names = faulty(question["input"], sandbox.run(question["input"], state))
                said = {**behavior_json(did), "source": "; ".join(names)}
            print(json.dumps(said), flush=True)
    return 0


def main() -> int:
    """Compare, count, and return the exit status."""
    options = parser(__doc__, count=20_000)
    options.add_argument("--command", action="append", help="only this command (again: another)")
    chosen = options.parse_args()
    system = chosen.system or "debian-12"
    program = shlex.join([sys.executable, __file__, "--answer", system])
    with compare_with_machine(
        f"command:{program}",
        system=system,
        choice=Choice(tuple(chosen.command or ()), chosen.count, chosen.seed),
        level=PatchLevel.FULL,
    ) as done:
        pass
    found = Counter(name for one in done.findings for name in one.compared.said.why.split("; "))
    cases = Counter(name for one in done.verdicts for name in one.said.why.split("; "))
    wrong = [
        {"input": one.reduced.asked.input.text, "classes": sorted(one.compared.classes)}
        for one in done.findings
        if not one.compared.said.why
    ]
    facts = {
        "cases": len(done.truth),
        "steady": len(done.verdicts),
        "right": sum(one.right for one in done.verdicts),
        "findings": len(done.findings),
        "faults": len(FAULTS),
        "found": sum(bool(found[name]) for name in FAULTS),
    }
    rows = [(name, cases[name], found[name]) for name in FAULTS]
    wanted = [name for name in FAULTS if cases[name] or not chosen.command]
    missed = [{"missed": name} for name in wanted if not found[name]]
    tables = [("planted", ("fault", "cases", "findings"), rows)]
    return report(facts, [*missed, *wrong], as_json=chosen.json, tables=tables)


if __name__ == "__main__":
    sys.exit(answer() if sys.argv[1:2] == ["--answer"] else main())
