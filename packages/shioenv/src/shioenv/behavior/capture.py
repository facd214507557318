"""Convert an execution into a behavior, with its changes as a context patch.

The context of a pristine system is constant. So after a run, only the files that it touched are
read. The fields `network` and `firewall` are parsed from the JSON output of the system's tools.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import floor
from operator import attrgetter
from typing import Any

from shioenv.behavior.shell_state import DECLARE, Malformed, ShellDump, merged
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import MONTHS, Context, FileEntry, escape
from shioenv.domain.names import file_key, name_text
from shioenv.domain.patch import ContextPatch, Operation, append_changes
from shioenv.errors import ContextError
from shioenv.sandbox.base import Execution, FileChange, FileStat

SHELL_FIELDS = ("env", "shell_options", "settings", "functions", "aliases", "limits")
"""Objects of a context that only the shell itself can report."""

MAX_OPERATIONS = 4096
"""Maximum number of a patch's operations, and of content digests. A patch with more is truncated
and gets a digest."""

CLOCK_SLACK = 0.05
"""Tolerance in seconds around a run within which a file time counts as the run's own. The clock of
file times lags by some milliseconds."""

DIRECTORY_SIZE = 4096
"""Size of a new directory in bytes. It is set here because file systems report different sizes."""

_LAST_SECOND = 67_768_036_191_676_799  # in 2147485547, the last year that the C library supports
_OF_CONTENT = ("size", "links", "month", "day", "year", "time")
_NO_CHANGES = ContextPatch()
_NO_DIGESTS: Mapping[str, str] = {}
_NO_INODES: Mapping[str, int] = {}
_NO_DIRECTORIES: Mapping[str, Mapping[str, Any]] = {}

_access = attrgetter("mode", "uid", "gid")
_of_content = attrgetter("size", "links", "mtime_ns", "target")
_kept = attrgetter("mode", "rdev", "mtime_ns", "digest")
"""The attributes of a file that renaming preserves, apart from the inode."""

_perms = lru_cache(maxsize=4096)(stat.filemode)


@dataclass(frozen=True, slots=True)
class Found:
    """The initial state of an execution, as far as its behavior depends on it."""

    shell: ShellDump | None
    """The shell's state; None if it is unknown."""
    cwd: bytes
    network: bytes | None = None
    """The network in the form of `Execution.network`; None for the untouched one."""
    touched: Collection[bytes] = ()
    """Paths that earlier lines changed. The times of these files before this line may lie within
    the shell's run, and are then converted like new ones."""


class Recorder:
    """Converts executions into behaviors.

    One recorder serves all runs in one start directory of a system. `baseline` is the dump of the
    shell's state after an empty input in `start`, and `cwd` the shell's working directory (None:
    `start`). `cwd` differs from `start` if that is reached through a symbolic link. If `baseline`
    is None, the sandbox cannot read the state of shells. `users` and `groups` are names by numeric
    ID. `instant` is the declared time at which each run starts, in
    seconds since 1970. A file time during a run is recorded as the instant plus the time since the
    run's start (D-4). `network` returns the untouched network in the form of `Execution.network`.
    It is called when a context is requested, and after a run that changed the network. Errors:
    ContextError for a baseline that is no dump.
    """

    def __init__(
        self,
        *,
        start: str,
        baseline: bytes | None,
        users: Mapping[int, str],
        groups: Mapping[int, str],
        instant: float,
        network: Callable[[], bytes | None] = lambda: None,
        cwd: bytes | None = None,
    ) -> None:
        self._start = start.encode("utf-8", "surrogateescape")
        self._users, self._groups = users, groups
        self._instant = int(instant)
        self._network = network
        self._newest: ShellDump | None = None
        try:
            shell = None if baseline is None else self.dump(baseline)
            self._fields: Mapping[str, Any] = {} if shell is None else shell.fields()
        except Malformed:
            raise ContextError(
                f"cannot parse the shell state before a run in {start}: {baseline!r:.60}",
                hint="the helper does not match the system's bash: build the system again",
            ) from None
        self.found = Found(shell, self._start if cwd is None else cwd)
        """The initial state of every run on the pristine system."""

    def dump(self, dump: bytes) -> ShellDump:
        """Parse the state that a shell reported. The newest is cached. Errors: Malformed.

        Several threads may call this at the same time: each gets the state of the dump that it
        passes.
        """
        newest = self._newest
        if newest is None or newest.dump != dump:
            self._newest = newest = ShellDump(dump, self._groups)
        return newest

    def behavior(self, execution: Execution, found: Found | None = None) -> Behavior:
        """Return the execution's behavior. An unreadable shell state sets a flag, and is no error.

        `found` is the initial state, from which the execution's `changes` are counted. None: the
        pristine state.
        """
        found = found or self.found
        operations: list[Operation] = []
        digests = _NO_DIGESTS
        inodes, directories = _NO_INODES, _NO_DIRECTORIES
        if execution.changes:
            digests, directories = self._files(execution, operations, found)
            inodes = {
                self.name(change.path): change.after.inode
                for change in execution.changes
                if change.after is not None
            }
        known = self._shell(found.shell, execution.shell, operations)
        if execution.cwd is not None and execution.cwd != found.cwd:
            operations.append(("=", "/cwd", name_text(execution.cwd)))
        if execution.hostname is not None:
            operations.append(("=", "/hostname", name_text(execution.hostname)))
        if execution.network is not None:
            before = network_fields(found.network or self._network())
            append_changes(before, network_fields(execution.network), "", operations)
        patch, digest = _NO_CHANGES, None
        if operations or digests:
            everything = ContextPatch(tuple(operations))
            patch, digests, digest = _cut(everything, digests, execution.changes_truncated)
        return Behavior(
            exit_code=execution.exit_code,
            output=execution.output,
            patch=patch,
            content_digests=digests,
            stdout=execution.stdout,
            stderr=execution.stderr,
            timed_out=execution.timed_out,
            output_truncated=execution.output_truncated,
            limits_hit=execution.limits_hit,
            patch_truncated=digest is not None,
            patch_digest=digest,
            volatile=execution.timed_out,
            shell_state_known=known,
            died_by_signal=execution.signal,
            processes=execution.processes,
            inodes=inodes,
            directories=directories,
        )

    def context(self, profile: Mapping[str, Any], files: Mapping[bytes, FileStat]) -> Context:
        """Return the context before every run, from the profile, `files`, and the shell's state.

        The keys of `files` are absolute paths. If `files` has all files of the system, patches of
        this recorder apply to the context. The context has every field. If the shell's state is
        unknown, the fields of `SHELL_FIELDS` are empty.
        """
        fs = {self.name(path): self.entry(file).to_json() for path, file in files.items()}
        document: dict[str, Any] = {name: {} for name in SHELL_FIELDS}
        document |= {**profile, **self._fields, **network_fields(self._network())}
        document.update(cwd=name_text(self.found.cwd), fs=fs)
        return Context(document)

    def name(self, path: bytes) -> str:
        """Return a file's key in `fs`: relative to the start directory inside it, else absolute."""
        return file_key(path, self._start)

    def entry(self, file: FileStat, *, own: tuple[float, float] | None = None) -> FileEntry:
        """Return the file's entry in a context.

        `own` is the run's first and last moment in seconds since 1970, with `CLOCK_SLACK` around
        them. A time within `own` becomes the instant plus the whole seconds since the run's start.
        """
        seconds, rest = divmod(file.mtime_ns, 1_000_000_000)
        # a time in whole seconds was set by utime(2), perhaps to the current second: round `first`
        first, last = own or (1, 0)
        if (first if rest else floor(first)) <= seconds + rest / 1e9 <= last:
            passed = seconds + rest / 1e9 - first - CLOCK_SLACK
            seconds = self._instant + max(0, int(passed))
        year, month, day, clock = _date(seconds // 60)
        return FileEntry(
            perms=_perms(file.mode),
            links=file.links,
            owner=self._users.get(file.uid) or str(file.uid),
            group=self._groups.get(file.gid) or str(file.gid),
            size=file.size,
            month=month,
            day=day,
            year=year,
            time=clock,
            target=None if file.target is None else name_text(file.target),
        )

    def _shell(
        self, before: ShellDump | None, dump: bytes | None, operations: list[Operation]
    ) -> bool:
        """Append the changes of the shell's state, and return whether that state is known."""
        if dump is None or before is None:
            return False
        if dump == before.dump:
            return True
        try:
            after = self.dump(dump)
            changed = [
                name
                for name, content in after.sections.items()
                if content != before.sections[name]
                and not (name == DECLARE and before.declarations.unchanged(content))
            ]
            if not changed:
                return True
            # several sections contribute to env and settings, so only the changed sections are
            # compared
            old = merged(before.state(name) for name in changed)
            new = merged(after.state(name) for name in changed)
        except Malformed:
            return False
        _settle_level(old, new)
        append_changes(old, new, "", operations)
        return True

    def _files(
        self, execution: Execution, operations: list[Operation], found: Found
    ) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
        """Append the changes of files.

        Return the digests of contents added or modified, and `Behavior.directories`.
        """
        own = (execution.started - CLOCK_SLACK, execution.ended + CLOCK_SLACK)

        def was(path: bytes, before: FileStat) -> FileEntry:
            return self.entry(before, own=own if path in found.touched else None)

        changes = [change for change in execution.changes if change.before != change.after]
        directories = _Directories(changes)
        removed: dict[int, list[tuple[bytes, FileStat]]] = {}
        added: list[tuple[bytes, FileStat]] = []
        digests: dict[str, str] = {}
        left_out: dict[str, dict[str, Any]] = {}
        for change in sorted(changes, key=lambda change: change.path):
            path, before, after = change.path, change.before, change.after
            if after is None:
                if before is not None:
                    removed.setdefault(before.inode, []).append((path, before))
            elif before is None:
                added.append((path, after))
            else:
                after = directories.settled(path, before, after)
                name = self.name(path)
                stayed = stat.S_ISDIR(before.mode) and stat.S_ISDIR(after.mode)
                its_entries = stayed and directories.entries_changed(path)
                known = len(operations)
                if not _looks_same(before, after, but_content=its_entries):
                    old, new = was(path, before).to_json(), self.entry(after, own=own).to_json()
                    if its_entries:
                        left_out[name] = {key: new[key] for key in _OF_CONTENT}
                        # the size if a history removed the directory and the input adds it again
                        left_out[name]["size"] = DIRECTORY_SIZE
                        new.update({key: old[key] for key in _OF_CONTENT})
                    append_changes(old, new, f"/fs/{escape(name)}", operations)
                if _content_changed(before, after):
                    digests[name] = str(after.digest)
                    if len(operations) == known:  # no attribute changed
                        entry = self.entry(after, own=own).to_json()
                        operations.append(("=", f"/fs/{escape(name)}", entry))
        # inputs without a history keep the form of older records: a tree that moved into a new
        # directory is recorded as removed and added
        moved = _moved_trees(removed, added, nested=found is not self.found)
        for path, after in added:
            name = self.name(path)
            source = moved.get(path) or _renamed_from(removed.get(after.inode, ()), after)
            if source is not None:
                origin, before = source
                settled = directories.new(path, after, before.size)
                if was(origin, before) == self.entry(settled, own=own):
                    removed[before.inode].remove(source)
                    target = f"/fs/{escape(name)}"
                    operations.append(("m", f"/fs/{escape(self.name(origin))}", target))
                    continue
            entry = self.entry(directories.new(path, after), own=own).to_json()
            operations.append(("a", f"/fs/{escape(name)}", entry))
            if after.digest is not None:
                digests[name] = after.digest
        for group in removed.values():
            operations.extend(("r", f"/fs/{escape(self.name(path))}") for path, _ in group)
        return digests, left_out


def settled(changes: Iterable[FileChange]) -> list[FileChange]:
    """Return the changes from the pristine system, with correct size and links of directories."""
    changes = [change for change in changes if change.before != change.after]
    directories = _Directories(changes)
    return [
        FileChange(path, before, after and directories.true(path, before, after))
        for path, before, after in ((each.path, each.before, each.after) for each in changes)
    ]


class _Directories:
    """Sizes and link counts of directories, derived from changed entries: overlays' are wrong."""

    def __init__(self, changes: Iterable[FileChange]) -> None:
        self._changed: set[bytes] = set()
        self._subdirectories: dict[bytes, int] = {}
        for change in changes:
            was = change.before is not None and stat.S_ISDIR(change.before.mode)
            is_now = change.after is not None and stat.S_ISDIR(change.after.mode)
            renamed = (change.before is None) != (change.after is None)
            if renamed or was != is_now:
                parent = change.path.rpartition(b"/")[0] or b"/"
                if renamed:
                    self._changed.add(parent)
                more = self._subdirectories.get(parent, 0) + is_now - was
                self._subdirectories[parent] = more

    def entries_changed(self, path: bytes) -> bool:
        """Whether an entry was added to the directory or removed from it."""
        return path in self._changed

    def true(self, path: bytes, before: FileStat | None, after: FileStat) -> FileStat:
        """Return a new or existing file with its correct size and number of links."""
        return self.new(path, after) if before is None else self.settled(path, before, after)

    def settled(self, path: bytes, before: FileStat, after: FileStat) -> FileStat:
        """Return a file that existed before; a directory gets its correct size and link count."""
        if not stat.S_ISDIR(after.mode):
            return after
        if not stat.S_ISDIR(before.mode):
            return self.new(path, after)
        links = before.links + self._subdirectories.get(path, 0)
        return replace(after, size=before.size, links=links)

    def new(self, path: bytes, after: FileStat, size: int = DIRECTORY_SIZE) -> FileStat:
        """Return a new file; a directory gets `size` and its correct number of links.

        A directory is linked from itself, from its parent, and from each directory in it.
        """
        if not stat.S_ISDIR(after.mode):
            return after
        return replace(after, size=size, links=2 + self._subdirectories.get(path, 0))


def _looks_same(before: FileStat, after: FileStat, *, but_content: bool) -> bool:
    """Whether both files have the same entry; with `but_content`, `_OF_CONTENT` may differ."""
    if _access(before) != _access(after):
        return False
    return but_content or _of_content(before) == _of_content(after)


def _renamed_from(
    candidates: Iterable[tuple[bytes, FileStat]], after: FileStat
) -> tuple[bytes, FileStat] | None:
    """Return the removed file with the mode, time and content of an added one: it was renamed."""
    return next((file for file in candidates if _kept(file[1]) == _kept(after)), None)


def _moved_trees(
    removed: Mapping[int, list[tuple[bytes, FileStat]]],
    added: list[tuple[bytes, FileStat]],
    *,
    nested: bool,
) -> dict[bytes, tuple[bytes, FileStat]]:
    """Map each added path in a moved directory to the removed path and its file.

    The overlay cannot rename a directory of the system itself. So `mv` copies the directory and
    removes it, and the inodes are new. A removed and an added tree are one tree that moved if
    names, modes, owners, times and contents of everything in them are equal. With `nested`, trees
    that lie inside other added and removed directories are found as well.
    """
    gone = {path: before for group in removed.values() for path, before in group}
    if not any(stat.S_ISDIR(before.mode) for before in gone.values()):
        return {}
    trees_of = _nested_trees if nested else _trees
    trees = {frozenset(_identities(tree)): tree for tree in trees_of(sorted(gone.items()))}
    moved: dict[bytes, tuple[bytes, FileStat]] = {}
    taken: set[bytes] = set()
    for tree in trees_of(added):
        if tree[0][0] in moved:
            continue
        origin = trees.pop(frozenset(_identities(tree)), None)
        if origin is not None and origin[0][0] not in taken:
            old, new = origin[0][0], tree[0][0]
            for path, before in origin:
                taken.add(path)
                moved[new + path[len(old) :]] = path, before
    return moved


def _trees(files: Iterable[tuple[bytes, FileStat]]) -> list[list[tuple[bytes, FileStat]]]:
    """Return the topmost directories among the sorted files, each with everything in it."""
    trees: list[list[tuple[bytes, FileStat]]] = []
    inside = b"\0"
    for path, file in files:
        if path.startswith(inside):
            trees[-1].append((path, file))
        elif stat.S_ISDIR(file.mode):
            trees.append([(path, file)])
            inside = path + b"/"
    return trees


def _nested_trees(
    files: Iterable[tuple[bytes, FileStat]],
) -> Iterable[list[tuple[bytes, FileStat]]]:
    """Yield each directory among the sorted files with everything in it, outer ones first."""
    waiting = _trees(files)
    while waiting:
        yield (tree := waiting.pop(0))
        waiting += _trees(tree[1:])


def _identities(tree: list[tuple[bytes, FileStat]]) -> Iterable[tuple[object, ...]]:
    top = len(tree[0][0])
    for path, file in tree:
        size = 0 if stat.S_ISDIR(file.mode) else file.size
        yield (
            path[top:], file.mode, file.uid, file.gid, size, file.mtime_ns, file.rdev,
            file.target, file.digest,
        )  # fmt: skip


def _content_changed(before: FileStat, after: FileStat) -> bool:
    """Whether the content of a regular file changed.

    Unknown digests do not matter: if the content is unchanged, either both are known or neither.
    Only a file that was replaced by another kind of file may lack one, because it was not read.
    """
    return after.digest is not None and before.digest != after.digest


def _settle_level(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Undo a decrement of SHLVL in `new`. Only a level that the input sets counts as a change.

    `exec` decrements SHLVL. Bash also decrements it before the last command of an input if it does
    not fork for that command.
    """
    before, after = old.get("env", {}).get("SHLVL"), new.get("env", {}).get("SHLVL")
    if before and after and before.isdecimal() and after == str(int(before) - 1):
        new["env"]["SHLVL"] = before


def _cut(
    patch: ContextPatch, digests: Mapping[str, str], incomplete: bool
) -> tuple[ContextPatch, Mapping[str, str], str | None]:
    """Truncate the patch and the digests to `MAX_OPERATIONS`, and return a digest of them all.

    The digest is None if nothing was cut, neither here nor before (`incomplete`).
    """
    if not incomplete and max(len(patch.operations), len(digests)) <= MAX_OPERATIONS:
        return patch, digests, None
    names = sorted(digests)
    whole = json.dumps([patch.operations, [[name, digests[name]] for name in names]])
    kept = {name: digests[name] for name in names[:MAX_OPERATIONS]}
    cut = ContextPatch(patch.operations[:MAX_OPERATIONS])
    return cut, kept, hashlib.sha256(whole.encode()).hexdigest()


@lru_cache(maxsize=4096)
def _date(minutes: int) -> tuple[int, str, int, str]:
    seconds = max(-_LAST_SECOND, min(minutes * 60, _LAST_SECOND))
    moment = time.gmtime(seconds)
    clock = f"{moment.tm_hour:02}:{moment.tm_min:02}"
    return moment.tm_year, MONTHS[moment.tm_mon - 1], moment.tm_mday, clock


_COUNTER = re.compile(r"counter packets \d+ bytes \d+")
_LINK = (
    "mtu", "operstate", "link_type", "address", "broadcast", "qdisc", "txqlen", "group", "master",
    "ifalias", "altnames",
)  # fmt: skip
_COUNTS = frozenset({"expires", "age", "cache", "cacheinfo", "used", "users"})


def network_fields(document: bytes | None) -> dict[str, Any]:
    """Return the fields `network` and `firewall` of a context, by name.

    `network` has `links` and `addresses` by the link's name, and `routes` and `rules` as sorted
    lines. `firewall` is a list of lines. All of them are empty for None and for malformed bytes.

    The document holds the lists that `ip -json` prints for links, addresses, routes and rules. It
    holds the firewall's rules as lines or as hexadecimal text. Counters, indices and lifetimes are
    left out: they change without an input.
    """
    printed = _load(document)
    links = {_name(link): _link(link) for link in _objects(printed.get("links"))}
    addresses = {
        _name(link): sorted(
            f"{address.get('local')}/{address.get('prefixlen')}"
            for address in _objects(link.get("addr_info"))
        )
        for link in _objects(printed.get("addresses"))
    }
    # the kernel fills the table `local` from the addresses
    routes = {
        key: [route for route in _objects(printed.get(key)) if route.get("table") != "local"]
        for key in ("routes", "routes6")
    }
    rules = {key: _objects(printed.get(key)) for key in ("rules", "rules6")}
    return {
        "network": {
            "links": links,
            "addresses": {name: texts for name, texts in addresses.items() if texts},
            "routes": [*_lines(routes["routes"]), *_lines(routes["routes6"], "family inet6")],
            "rules": [*_lines(rules["rules"]), *_lines(rules["rules6"], "family inet6")],
        },
        "firewall": _rules(printed.get("firewall")),
    }


def _lines(items: list[dict[str, Any]], *first: str) -> list[str]:
    """Format each object as a line of keys and values, in the order of `ip`, without counters."""
    return sorted(
        " ".join([*first, *(f"{key} {_word(item[key])}" for key in item if _says(key, item[key]))])
        for item in items
    )


def _says(key: str, value: Any) -> bool:
    return key not in _COUNTS and value not in (None, [], {})


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def _rules(listed: Any) -> list[str]:
    """Return the rules as lines, without blanks and counters."""
    if isinstance(listed, str):
        try:
            listed = bytes.fromhex(listed).decode("utf-8", "replace").splitlines()
        except ValueError:
            return []
    if not isinstance(listed, list):
        return []
    rules = (_COUNTER.sub("counter", str(rule)).strip() for rule in listed)
    return [rule for rule in rules if rule]


def _load(document: bytes | None) -> dict[str, Any]:
    try:
        printed = json.loads((document or b"{}").decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return printed if isinstance(printed, dict) else {}


def _objects(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _name(link: dict[str, Any]) -> str:
    return str(link.get("ifname", ""))


def _link(link: dict[str, Any]) -> dict[str, Any]:
    flags = link.get("flags")
    described: dict[str, Any] = {
        "flags": sorted(str(flag) for flag in flags) if isinstance(flags, list) else []
    }
    described.update({key: link[key] for key in _LINK if key in link})
    return described
