"""Filtered and reordered listings of `ps` and `find -ls`, derived from the full listings.

The rows are processes (ps(1)) or files found by a search (find(1)). The runner is queried for the
full listing, from which the requested rows are selected.
"""

# ruff: noqa: SIM905

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Sequence

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv_model.memory.forms import Form
from shioenv_model.rules.accounts import PASSWD, parse_accounts

LISTS, WALKS = "ps", "find"
"""The supported commands: `ps` lists processes, `find` lists files."""

Shown = Callable[[str, State], str | None]
"""A function that returns what a command prints in a state; None if unknown."""

_ALL = frozenset({"-e", "-A"})
_HOW = frozenset({"-f", "-l", "-y"})
_CHOOSES = frozenset({"-p", "-C", "-u", "-U"})
_BARE = frozenset({"--no-headers", "--no-headings"})
_COLUMNS = re.compile(r"[\w%]+(?:,[\w%]+)*")
_KEY = "[-+]?(?:pid|ppid|rss|vsz|%mem|pmem|%cpu|pcpu|user|uid|ni|pri|sz|comm)"
_KEYS = re.compile(f"{_KEY}(?:,{_KEY})*")
_ALONE = re.compile(r"[\w%]+")
_CUT = re.compile("(?:args|cmd|command),")
_NUMBER = 7
"""Width of a column of numbers."""

_PROCESS = re.compile(r" *(\d+) +\S+ +\S+ (.*)")


def chosen_rows(form: Form, state: State, start: State, shown: Shown) -> Behavior | None:
    """Return the output of a filtered or reordered listing, derived from the full listing.

    `shown` returns the output of commands that list all rows, or the usual ones, in the `start`
    state of the machine. None for any other command, and if the full listing is unknown.
    """
    try:
        if form.utility == WALKS:
            return _listed_files(form, state, start, shown)
        return _Rows(form, start, shown).listed() if form.utility == LISTS else None
    except LookupError:
        return None


def _listed_files(form: Form, state: State, start: State, shown: Shown) -> Behavior | None:
    """Return the output of `find PATH ... -ls`, from the found paths and a listing of the tree."""
    words = list(form.words)
    if state.before.document["fs"] != start.before.document["fs"]:
        return None
    if words[-1:] != ["-ls"] or not _OTHER_ACTIONS.isdisjoint(words[:-1]):
        return None
    rows: dict[str, tuple[list[str], str]] = {}
    widths = [9, 6, 0, 3, 8, 8, 8, 0]  # a column is wider if a value is
    for line in _lines(shown, f"{WALKS} . -ls", start):
        row = _FILE.fullmatch(line)
        if row is None:
            return None
        path = re.sub(r"\\(.)", r"\1", row[2].partition(" -> ")[0])
        rows[posixpath.normpath(path)] = row[1].split(maxsplit=7), row[2]
    found = shown(" ".join(map(shlex.quote, (WALKS, *words[:-1]))), state)
    if found is None:
        raise LookupError(form.command)
    printed = ""
    for path in found.splitlines():
        place = posixpath.relpath(posixpath.join(state.before.document["cwd"], path), start.cwd)
        before, listed = rows[place]
        widths = [max(width, len(cell)) for width, cell in zip(widths, before, strict=True)]
        cells = [
            cell.ljust(width) if number in _LEFT else cell.rjust(width)
            for number, (width, cell) in enumerate(zip(widths, before, strict=True))
        ]
        printed += f"{' '.join(cells)} {_escaped(path, listed)}\n"
    output = printed.encode()
    return Behavior(0, output, stdout=output, stderr=b"")


def _escaped(path: str, listed: str) -> str:
    """Escape a path as `-ls` does, given another path of the file as `-ls` listed it."""
    shown, arrow, target = listed.partition(" -> ")
    names = path.split("/")
    for number, name in enumerate(reversed(shown.split("/")), 1):
        if number <= len(names) and re.sub(r"\\(.)", r"\1", name) == names[-number]:
            names[-number] = name
    return "/".join(names) + arrow + target


_FILE = re.compile(r"( *\d+ +\d+ \S+ +\d+ \S+ +\S+ +\d+ \w+ +\d+ +[\d:]+) (\..*)")
_LEFT = (4, 5)
"""The columns of owner and group."""

_OTHER_ACTIONS = frozenset(
    "-o -or , ( -ls -print -print0 -printf -exec -execdir -ok -okdir -delete -fprint -fprint0"
    " -fprintf -fls -quit -L -H -follow".split()
)


def _lines(shown: Shown, command: str, state: State) -> Sequence[str]:
    said = shown(command, state)
    if not said:
        raise LookupError(command)
    return said.splitlines()


class _Rows:
    """The rows of one `ps` command. Errors: LookupError if a listing is unknown."""

    def __init__(self, form: Form, state: State, shown: Shown) -> None:
        self._form, self._state, self._shown = form, state, shown
        self._given: dict[str, list[str]] = {}
        for name, value in form.options:
            self._given.setdefault(name, []).append(value or "")
        self._printed: dict[str, Sequence[str]] = {}

    def listed(self) -> Behavior | None:
        """See `chosen_rows`."""
        given, operands = self._given, self._form.operands
        known = _ALL | _HOW | _CHOOSES | _BARE | {"-o", "--sort"}
        chooses = given.keys() - _ALL - _HOW - {"-o"}
        if given.keys() - known or not (chooses or ("-o" in given and not given.keys() & _ALL)):
            return None
        if operands and (len(operands) > 1 or not re.fullmatch("[auxw]*", operands[0])):
            return None
        if operands and (not {"a", "x"} <= set(operands[0]) or given.keys() - _BARE - {"--sort"}):
            return None
        columns = ",".join(given.get("-o", ()))
        bare = bool(given.keys() & _BARE)
        if re.fullmatch(r"(?:[\w%]+=(?:,|$))+", columns):
            columns, bare = columns.replace("=", ""), True
        if columns and (not _COLUMNS.fullmatch(columns) or given.keys() & _HOW):
            return None
        letters = "".join(sorted((name[1] for name in given.keys() & _HOW), reverse=True))
        base = f"ps {operands[0]}" if operands else f"ps -e{letters}"
        base += f" -o {columns}" if columns else ""
        header, *rows = self._column(columns) if _ALONE.fullmatch(columns) else self._lines(base)
        processes = self._processes("ps -e")
        if len(rows) != len(processes):
            return None
        if _CUT.search(columns):  # the row also contains the command itself
            return None
        own = " ".join((LISTS, *self._form.words)).replace("\\", "\\\\")
        rows[-1] = re.sub(rf"(?<!\S){LISTS} \S.*", own, rows[-1])
        order = self._sorted(self._chosen(processes))
        lines = [] if bare else [header]
        lines += [rows[place] for place in order]
        output = "".join(f"{line}\n" for line in lines).encode()
        return Behavior(0 if order else 1, output, stdout=output, stderr=b"", volatile=True)

    def _lines(self, command: str) -> Sequence[str]:
        if command not in self._printed:
            self._printed[command] = _lines(self._shown, command, self._state)
        return self._printed[command]

    def _column(self, name: str) -> Sequence[str]:
        """Return the lines of one column, its header first."""
        if name == "pid":
            return [line[:_NUMBER] for line in self._lines("ps -e")]
        return [line[_NUMBER + 1 :] for line in self._lines(f"ps -e -o pid,{name}")]

    def _processes(self, command: str) -> list[tuple[str, str]]:
        """Return number and name of each process that a command lists."""
        found = [_PROCESS.fullmatch(line) for line in self._lines(command)[1:]]
        if not all(found):
            raise LookupError(command)
        return [(match[1], match[2]) for match in found if match]

    def _chosen(self, processes: Sequence[tuple[str, str]]) -> list[int]:
        """Return the indices of the processes that the command selects, in output order."""
        given, places = self._given, range(len(processes))
        if self._form.operands or given.keys() & _ALL:
            return list(places)
        if not given.keys() & _CHOOSES:
            usual = {number for number, _ in self._processes("ps")[:-1]}
            return [at for at in places if processes[at][0] in usual or at == places[-1]]
        numbers, names = self._listed("-p"), self._listed("-C")
        owners = self._owners(self._listed("-u") | self._listed("-U"))
        return [
            at
            for at, (number, name) in enumerate(processes)
            if number in numbers or name in names or (owners and self._owner(at) in owners)
        ]

    def _listed(self, option: str) -> set[str]:
        """Return the values of an option that takes a list."""
        return {each for some in self._given.get(option, ()) for each in re.split("[, ]+", some)}

    def _owners(self, wanted: set[str]) -> set[str]:
        """Resolve users given by name or by number to names."""
        users = parse_accounts(self._state, PASSWD)
        if any(each not in users and not each.isdecimal() for each in wanted):
            raise LookupError(LISTS)
        return {name for name, user in users.items() if wanted & {name, *user[2:3]}}

    def _owner(self, place: int) -> str:
        return self._lines("ps -ef")[place + 1].split()[0]

    def _sorted(self, places: list[int]) -> list[int]:
        for keys in self._given.get("--sort", ()):
            if not _KEYS.fullmatch(keys):
                raise LookupError(keys)
            for key in reversed(keys.split(",")):
                values = [_value(line) for line in self._column(key.lstrip("-+"))[1:]]
                if len({type(each) for each in values}) > 1 or max(places, default=0) >= len(
                    values
                ):
                    raise LookupError(key)
                places.sort(key=values.__getitem__, reverse=key.startswith("-"))
        return places


def _value(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell.strip()
