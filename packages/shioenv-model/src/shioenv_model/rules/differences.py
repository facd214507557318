"""Output of `diff` for files and directories, derived from their contents (diff(1)).

It abstains if several shortest edit scripts are equally good.
"""

from __future__ import annotations

import os
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from shioenv.domain.context import FileEntry
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.work import spend
from shioenv_model.rules.words import options_of

_MANY = 5
"""`diff` may ignore a line in the search if it occurs this often in the other file
(`analyze.c`)."""
_ALIKE, _TRIED = 200, 20_000
"""Maximum numbers of unfinished common subsequences, and of compared pairs of lines."""
_LOOKED_AT = 32_000
"""Number of leading bytes that `diff` checks at least: if none is NUL, the file is text."""

_LONG = {"--brief": "-q", "--recursive": "-r", "--report-identical-files": "-s"}


@dataclass(frozen=True)
class _Change:
    """A hunk: lines `start` to `stop` of the old file become lines `first` to `last` of the new."""

    start: int
    stop: int
    first: int
    last: int

    def moved(self, by: int) -> _Change:
        return _Change(self.start + by, self.stop + by, self.first + by, self.last + by)


def run_diff(words: Sequence[str], state: State) -> tuple[str, str, int]:
    """Return standard output, standard error and exit code of `diff`.

    Errors: Abstained for unsupported options, for unknown contents, and if several results are
    equally good.
    """
    options, names = options_of([_LONG.get(word, word) for word in words], "qrs")
    if len(names) != 2 or "-" in names:
        raise Abstained("no two files")
    if any(state.resolve(name).startswith(("/dev/", "/proc/")) for name in names):
        raise Abstained("files that are not on a disk")
    missing = [name for name in names if state.entry(name) is None]
    if missing:
        above = [state.entry(posixpath.dirname(name.rstrip("/"))) for name in missing]
        if any(entry and entry.perms[0] != "d" for entry in above):
            raise Abstained("a file in the place of a directory")
        return "", "".join(f"diff: {name}: No such file or directory\n" for name in missing), 2
    kinds = [_entry(name, state).perms[0] for name in names]
    if kinds == ["d", "-"] or kinds == ["-", "d"]:
        raise Abstained("a directory and a file")
    shown = " ".join(word for word in words if word not in names)
    told = _Told(state, options, f"diff {shown} " if shown else "diff ")
    told.compare(*names, asked=True)
    return "".join(told.lines), "", told.code


def _entry(name: str, state: State) -> FileEntry:
    entry = state.entry(name)
    if entry is None or entry.perms[0] not in "-d":
        raise Abstained("a path that is neither a file nor a directory")
    return entry


@dataclass
class _Told:
    """The output so far."""

    state: State
    options: set[str]
    called: str
    """The command with its options, as printed before the hunks of files in directories."""
    lines: list[str] = field(default_factory=list)
    code: int = 0

    def compare(self, old: str, new: str, *, asked: bool = False) -> None:
        """Compare two files of one kind. `asked`: they were named on the command line."""
        kinds = [_entry(name, self.state).perms[0] for name in (old, new)]
        if kinds == ["d", "d"]:
            if asked or "r" in self.options:
                self._directories(old, new)
            else:
                self.lines.append(f"Common subdirectories: {old} and {new}\n")
        elif kinds == ["-", "-"]:
            self._files(old, new, asked=asked)
        else:
            names = {"d": "a directory", "-": "a regular file"}
            one, other = (names[kind] for kind in kinds)
            self.lines.append(f"File {old} is {one} while file {new} is {other}\n")
            self.code = 1

    def _directories(self, old: str, new: str) -> None:
        these, those = ({*self.state.names(path)} for path in (old, new))
        for name in sorted(these | those, key=os.fsencode):
            if name in these and name in those:
                self.compare(posixpath.join(old, name), posixpath.join(new, name))
                continue
            self.lines.append(f"Only in {old if name in these else new}: {name}\n")
            self.code = 1

    def _files(self, old: str, new: str, *, asked: bool) -> None:
        contents = [self.state.read(name) for name in (old, new)]
        if None in contents:
            raise Abstained("an unknown content")
        before, after = (content or b"" for content in contents)
        spend((len(before) + len(after)) // 10)
        if before == after:
            if "s" in self.options:
                self.lines.append(f"Files {old} and {new} are identical\n")
            return
        self.code = 1
        if "q" in self.options:
            self.lines.append(f"Files {old} and {new} differ\n")
        elif b"\0" in before[:_LOOKED_AT] or b"\0" in after[:_LOOKED_AT]:
            self.lines.append(f"Binary files {old} and {new} differ\n")
        else:
            if not asked:
                self.lines.append(f"{self.called}{old} {new}\n")
            these, those = (_lines(content) for content in (before, after))
            for change in _changes(these, those):
                self.lines += _as_text(change, these, those)


def _lines(content: bytes) -> list[str]:
    lines = os.fsdecode(content).split("\n")
    return [f"{line}\n" for line in lines[:-1]] + lines[-1:] * bool(lines[-1])


def _as_text(change: _Change, these: Sequence[str], those: Sequence[str]) -> Iterator[str]:
    gone, come = these[change.start : change.stop], those[change.first : change.last]
    letter = "c" if gone and come else "d" if gone else "a"
    yield f"{_range(change.start, change.stop)}{letter}{_range(change.first, change.last)}\n"
    yield from (_line("<", line) for line in gone)
    if letter == "c":
        yield "---\n"
    yield from (_line(">", line) for line in come)


def _line(mark: str, line: str) -> str:
    return (
        f"{mark} {line}" if line[-1:] == "\n" else f"{mark} {line}\n\\ No newline at end of file\n"
    )


def _range(start: int, stop: int) -> str:
    """Format a range of lines, counted from 1; an empty range is the line before it."""
    if stop - start <= 1:
        return str(stop)
    return f"{start + 1},{stop}"


def _changes(these: Sequence[str], those: Sequence[str]) -> list[_Change]:
    """Return the shortest edit script from one file to the other. Errors: Abstained.

    The common first and last lines are removed first, so that no hunk slides into them.
    """
    start = 0
    while start < min(len(these), len(those)) and these[start] == those[start]:
        start += 1
    end = 0
    room = min(len(these), len(those)) - start
    while end < room and these[-1 - end] == those[-1 - end]:
        end += 1
    a, b = these[start : len(these) - end], those[start : len(those) - end]
    spend(4 * (len(a) + 1) * (len(b) + 1))
    counts = Counter(a), Counter(b)
    if any(max(counted[line] for counted in counts) > _MANY for line in counts[0] & counts[1]):
        raise Abstained("a line that occurs too often")
    answers = {
        tuple(_slid(change, a, b) for change in _grouped(pairs, len(a), len(b)))
        for pairs in _matched(a, b)
    }
    if len(answers) > 1:
        raise Abstained("several changes are equally short")
    (found,) = answers
    for (_, one), (other, _) in pairwise(found):
        if one.stop >= other.start and one.last >= other.first:
            raise Abstained("changes that slide into each other")
    return [latest.moved(start) for _, latest in found]


def _matched(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield every longest common subsequence as pairs of line indices. Errors: Abstained."""
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        here, below = lengths[i], lengths[i + 1]
        for j in range(len(b) - 1, -1, -1):
            here[j] = below[j + 1] + 1 if a[i] == b[j] else max(below[j], here[j + 1])
    open_: list[tuple[tuple[int, int], ...]] = [()]
    steps = 0
    while open_:
        pairs = open_.pop()
        i, j = (pairs[-1][0] + 1, pairs[-1][1] + 1) if pairs else (0, 0)
        left = lengths[i][j]
        if not left:
            yield pairs
            continue
        for k in range(i, len(a)):
            if lengths[k][j] < left:
                break
            for m in range(j, len(b)):
                if lengths[k][m] < left:
                    break
                steps += 1
                if a[k] == b[m] and lengths[k + 1][m + 1] == left - 1:
                    open_.append((*pairs, (k, m)))
        if len(open_) > _ALIKE or steps > _TRIED:
            raise Abstained("too many changes are equally short")


def _grouped(pairs: Sequence[tuple[int, int]], old: int, new: int) -> list[_Change]:
    """Return the hunks between matched lines, for files with `old` and `new` lines."""
    return [
        _Change(i + 1, k, j + 1, m)
        for (i, j), (k, m) in pairwise([(-1, -1), *pairs, (old, new)])
        if k > i + 1 or m > j + 1
    ]


def _slid(change: _Change, these: Sequence[str], those: Sequence[str]) -> tuple[_Change, _Change]:
    """Return the hunk after sliding it as far up as possible, and as far down as possible.

    Errors: Abstained for replaced lines that could slide.
    """
    old, new = (change.start, change.stop, these), (change.first, change.last, those)
    if change.start != change.stop and change.first != change.last:
        if any(_slides(*old)) or any(_slides(*new)):
            raise Abstained("lines that could be replaced elsewhere")
        return change, change
    back, on = _slides(*(new if change.start == change.stop else old))
    return change.moved(-back), change.moved(on)


def _slides(start: int, stop: int, lines: Sequence[str]) -> tuple[int, int]:
    """Return by how many lines an inserted or deleted run can slide up, and down."""
    back = on = 0
    while start > back and lines[start - back - 1] == lines[stop - back - 1]:
        back += 1
    while stop + on < len(lines) and lines[start + on] == lines[stop + on]:
        on += 1
    return back, on
