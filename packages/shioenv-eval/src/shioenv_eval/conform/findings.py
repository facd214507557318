"""Findings: minimal differences, each with its cases, a diff, and a script that reproduces it."""

from __future__ import annotations

import base64
import shlex
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel
from shioenv.domain.readable import changes, readable_name
from shioenv.system.store import IndexEntry, System
from shioenv.text import visible
from shioenv_eval.conform.shrink import (
    Compared,
    Files,
    Reduced,
    Sides,
    less_input,
    shrunk,
)
from shioenv_eval.conform.verdicts import CaseVerdict, Classes
from shioenv_eval.mask import output_text_of
from shioenv_eval.metrics import PredictorAnswer, Status
from shioenv_eval.patches import changed_files, operations
from shioenv_eval.predictor_pool import Ready
from shioenv_eval.report.markup import grouped

CASES = 5
"""Maximum number of inputs listed for a finding."""

LINES = 200
"""Maximum number of lines of a diff."""

SCRIPT_BYTES = 1 << 20
"""Maximum size in bytes of the files that a script creates; beyond it, only names are written."""


@dataclass(frozen=True, slots=True)
class CaseFinding:
    """A minimal difference."""

    reduced: Reduced
    compared: Compared
    verdicts: tuple[CaseVerdict, ...]
    """The cases in which it was found, in order."""
    recurs: bool = True
    """Whether the other side still differed when asked again about the minimal case."""

    @property
    def count(self) -> int:
        """The number of cases in which it was found."""
        return len(self.verdicts)

    @property
    def command(self) -> str:
        """The command of its first case."""
        return self.verdicts[0].case.drawn.command


def findings_of(
    sides: Sides,
    verdicts: Sequence[CaseVerdict],
    files: Files,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[CaseFinding]:
    """Return the findings from all verdicts that are not right, the most frequent first.

    Equal minimal differences are one finding. Findings with equal counts keep the order of their
    first cases. Timeouts are not minimised, since each attempt could take as long again. `report`
    is called with the number of steps done and the total.
    """
    wrong = [verdict for verdict in verdicts if not verdict.right]
    for one in wrong:
        behavior = one.case.behavior
        assert behavior is not None
        sides.known[one.case.asked.key] = Compared(behavior, one.said, one.classes)
    left = [Reduced(one.case.asked) for one in wrong]
    left = _smaller(sides, left, less_input, report)
    while True:
        pairs = zip(left, range(len(wrong)), strict=True)
        groups = [*grouped(pairs, lambda pair: (pair[0].asked.key, _classes(sides, pair[0])))
                  .values()]  # fmt: skip
        firsts = [group[0][0] for group in groups]
        smallest = _removed(sides, firsts, _smaller(sides, firsts, files.less, report))
        # without a file, an argument that names it may be removable too
        again = _smaller(sides, smallest, less_input, report)
        if [one.asked.key for one in again] == [one.asked.key for one in firsts]:
            break
        for reduced, group in zip(again, groups, strict=True):
            for _, number in group:
                left[number] = reduced
    said = sides.said(
        {
            number: one.whole
            for number, one in enumerate(smallest)
            if not _late(_compared(sides, one).said)
        }
    )
    found = []
    for number, (reduced, group) in enumerate(zip(smallest, groups, strict=True)):
        compared = _compared(sides, reduced)
        recurs = bool(sides.classes(compared.truth, said.get(number, compared.said)))
        cases = tuple(wrong[place] for _, place in group)
        found.append(CaseFinding(reduced, compared, cases, recurs))
    return sorted(found, key=lambda one: -one.count)


def _smaller(
    sides: Sides,
    differences: Sequence[Reduced],
    less: Callable[[Reduced], Iterator[Reduced]],
    report: Callable[[int, int], None],
) -> list[Reduced]:
    """Minimise the differences; timeouts are returned unchanged."""
    found = list(differences)
    in_time = [number for number, one in enumerate(found) if not _late(_compared(sides, one).said)]
    wanted = [(found[number], _classes(sides, found[number])) for number in in_time]
    for number, one in zip(in_time, shrunk(sides, wanted, less, report), strict=True):
        found[number] = one
    return found


def _removed(sides: Sides, before: Sequence[Reduced], after: Sequence[Reduced]) -> list[Reduced]:
    """Choose `after` for each difference, or `before` if the other side still has removed files.

    A finding's script creates only the remaining files. It would therefore not show a difference
    caused by an `rm` that had no effect.
    """
    asked = {number: one.listing for number, one in enumerate(after) if one.gone}
    found = list(after)
    for number, said in sides.said(asked).items():
        listed = said.behavior.output.decode(errors="replace") if said.behavior else None
        if listed is None or {*after[number].gone} & {*listed.splitlines()}:
            found[number] = before[number]
    return found


def _late(said: PredictorAnswer) -> bool:
    return said.status is Status.TIMED_OUT


def _compared(sides: Sides, reduced: Reduced) -> Compared:
    compared = sides.known[reduced.whole.key]
    assert compared is not None
    return compared


def _classes(sides: Sides, reduced: Reduced) -> Classes:
    return _compared(sides, reduced).classes


def format_difference(
    finding: CaseFinding, level: PatchLevel, machine: str, other: str
) -> list[str]:
    """Return a unified diff of both answers: output, exit code, changes.

    The machine's lines are marked `-`.
    """
    said = finding.compared.said
    theirs = [f"no answer: {said.status.value.replace('_', ' ')}, {said.why}"]
    if said.behavior is not None:
        theirs = list(_shown(said.behavior, level))
    ours = list(_shown(finding.compared.truth, level))
    lines = [*unified_diff(ours, theirs, machine, other, lineterm="", n=3)]
    cut = len(lines) - LINES
    return [*lines[:LINES], *([f"and {cut} more lines"] if cut > 0 else [])]


def _shown(behavior: Behavior, level: PatchLevel) -> Iterator[str]:
    text = output_text_of(behavior.output)
    yield from visible(text).removesuffix("\n").split("\n") if text else ()
    if text and not text.endswith("\n"):
        yield "(no newline at the end)"
    yield f"exit code {behavior.exit_code}"
    if level is PatchLevel.FILES:
        yield from sorted(
            f"{verb} {readable_name(name)}"
            for verb, name in changed_files(operations(behavior.patch))
        )
    elif level is PatchLevel.FULL:
        yield from map(str, changes(behavior.patch.operations))
        for name, digest in sorted(behavior.content_digests.items()):
            yield f"content of {readable_name(name)} {digest[:16]}"


def reproduction_script(
    finding: CaseFinding, system: System, files: Files, other: Ready, name: str
) -> str:
    """Return a Bash script that reproduces the difference, run as root on Debian.

    The script creates the files itself. Its exit status is 0 if both sides differ, 1 if they agree,
    2 if the script would overwrite something. If the other side cannot be called from a shell, the
    script contains its answer.
    """
    asked = finding.reduced.asked
    classes = ", ".join(sorted(finding.compared.classes))
    cwd = quoted(asked.cwd)
    lines = [
        "#!/bin/bash",
        f"# Differs in: {classes}; {finding.count} of the cases were reduced to this.",
        f"# The machine: {system.name} ({system.digest[:12]}).".replace("\n", " "),
        f"# The other side: {name} {other.version}".replace("\n", " "),
        f"# Install it: {other.install or 'see its documentation'}".replace("\n", " "),
        "# Run this as root in a disposable Debian container.",
        f"start={cwd}",
        f"input={quoted(_typed(asked.history, asked.input.text))}",
        "[ ! -e \"$start\" ] || { echo \"$start exists already\" >&2; exit 2; }",
        "answers=$(mktemp -d)",
        "files() {",
        "mkdir -p \"$start\" && cd \"$start\" || exit 2",
        *_made(files.left(finding.reduced), asked.cwd, system),
        "}",
        "machine() { unset OLDPWD; bash --norc --noprofile -c \"$input\"; }",
        *_other(other, finding),
        "for side in machine other; do",
        "  (files; listed > \"$answers/before\"",
        "   $side > \"$answers/$side\" 2>&1 < /dev/null",
        "   echo \"exit code $?\" >> \"$answers/$side\"",
        "   changes >> \"$answers/$side\")",
        "  rm -rf -- \"$start\"",
        "done",
        "! diff -a -u --label machine --label other \"$answers/machine\" \"$answers/other\"",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _typed(history: Sequence[str], text: str) -> str:
    """Return an input preceded by its history, whose output is discarded."""
    before = "".join(f"{{ {line}\n}} >/dev/null 2>&1\n" for line in history)
    return f"{before}{text}"


_CHANGES = r"""listed() {
  cd "$start" 2> /dev/null || return
  find . -mindepth 1 \( -type d -printf '%P\t%M %U %G\n' -o -printf '%P\t%M %U %G %s %T@ %l\n' \)
}
changes() {
  GUARD
  listed | awk -F '\t' '
    old { was[$1] = $2; next }
    !($1 in was) { print "added " $1; next }
    { if (was[$1] != $2) print "changed " $1; delete was[$1] }
    END { for (name in was) print "removed " name }' old=1 "$answers/before" old= - |
    LC_ALL=C sort
}"""
"""Lines of a script that list the changed files.

Times of directories are ignored, since every new entry sets them. `GUARD` prints the recorded
changes if the script cannot run the other side.
"""


def _other(other: Ready, finding: CaseFinding) -> Iterator[str]:
    if other.shell:
        yield f'other() {{ {other.shell} "$input"; }}'
        yield _CHANGES.replace("  GUARD\n", "")
        return
    behavior = finding.compared.said.behavior or Behavior(0, b"")
    content = base64.encodebytes(behavior.output).decode()
    yield "# The other side cannot be run from a script: this is its recorded answer."
    yield f"other() {{ base64 -d <<'END'\n{content}END\nreturn {behavior.exit_code}; }}"
    changed = sorted(
        f"{verb} {name}"
        for verb, name in changed_files(operations(behavior.patch))
        if not name.startswith("/")
    )
    told = f"printf '%s\\n' {' '.join(map(quoted, changed))}; " if changed else ""
    yield _CHANGES.replace("GUARD", f"[ $side = machine ] || {{ {told}return; }}")


def _made(entries: Sequence[IndexEntry], start: str, system: System) -> Iterator[str]:
    """Yield lines that create files in the start directory as on the pristine system."""
    size = 0
    for entry in entries:
        path = shlex.quote(entry.path.removeprefix(f"{start}/"))
        if stat.S_ISLNK(entry.mode):
            yield f"ln -s -- {shlex.quote(entry.target)} ./{path}"
            continue
        if stat.S_ISDIR(entry.mode):
            yield f"mkdir -- ./{path}"
        elif stat.S_ISFIFO(entry.mode):
            yield f"mkfifo -- ./{path}"
        elif stat.S_ISREG(entry.mode) and size + entry.size <= SCRIPT_BYTES:
            size += entry.size
            content = base64.encodebytes(system.read(entry.path) or b"").decode()
            yield f"base64 -d > ./{path} <<'END'\n{content}END"
        else:
            yield f"# omitted: {path!r}, {entry.size} bytes".replace("\n", " ")
            continue
        yield from _attributes(entry, f"./{path}")
    for entry in reversed(entries):
        if not stat.S_ISLNK(entry.mode):
            path = shlex.quote(entry.path.removeprefix(f"{start}/"))
            yield f"touch -c -d @{entry.mtime} ./{path}"


def _attributes(entry: IndexEntry, path: str) -> Iterator[str]:
    mode = f"{stat.S_IMODE(entry.mode):o}"
    yield f"chown {entry.uid}:{entry.gid} {path}; chmod {mode} {path}"


def finding_json(finding: CaseFinding, shown: Sequence[str], text: str) -> dict[str, Any]:
    """Return a finding as a JSON object, with its diff and its script."""
    reduced = finding.reduced
    return {
        "command": finding.command,
        "count": finding.count,
        "classes": sorted(finding.compared.classes),
        "input": reduced.asked.input.text,
        "cwd": reduced.asked.cwd,
        "history": list(reduced.asked.history),
        "without": list(reduced.gone),
        "recurs": finding.recurs,
        "why": finding.compared.said.why,
        "difference": list(shown),
        "cases": [
            {"input": one.case.drawn.input.text, "history": list(one.case.drawn.history)}
            for one in finding.verdicts[:CASES]
        ],
        "script": text,
    }
