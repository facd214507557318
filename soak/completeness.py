"""Check that the recorded patch contains everything that an input changed, and nothing else.

    python soak/completeness.py [--count 3000] [--seed 0] [--workers 2] [--json]

A third of the inputs are those of `writing.txt`, alone and then up to four chained; the rest are
drawn as for datasets. Each is compared with a search of the whole system that is independent of how
changes are recorded:

files    After the input, in the same file system, `find` prints every file of the system (not of
         /proc) with all attributes and the kernel's times, and `sha256sum` reads every
         file whose change time is not before the run (no program can set that one) and every one
         below the start directory. The same is printed for the untouched system. The patch applied
         to the files before must give the files after; `content_digests` must name exactly the
         contents that changed.
shell    The input again, followed by lines that print every variable, function, alias,
         option, limit, trap, the mask and the groups, one by one. An input that ends its shell
         never gets to those lines, and one with an open quote swallows them: counted, not compared.
network  The output of `ip` and `nft` before and after. A change must be recorded if and only if
         it differs; likewise the host's name.

Where a record differs from the real state, a rule of `docs/reference/context-patch.md` defines the
difference. This script applies these rules to its findings:

- A time within the run is written as the system's instant, and one in whole seconds within the
  second in which it began.
- A directory whose entries are not the same names as before keeps size, links and times.
- A directory that keeps its names: links as before and one for each directory more in it; the size
  as before.
- A new directory: size 4096, links two and one for each directory in it. A moved one keeps the size
  it had, and that is not compared.
- The routing table `local` is left out: the kernel keeps it itself.
- Variables with counters or copies (`_`, `BASH_*`, ...) are not part of a patch.

The input and the search run in one layer: that takes a request which only the backend itself uses.
"""

from __future__ import annotations

import math
import multiprocessing
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from common import Progress, drawn, parser, report
from shioenv.behavior.observe import open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import Operation
from shioenv.domain.runner import State
from shioenv.errors import SandboxError
from shioenv.sandbox.base import Execution, Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.wire import Ask
from shioenv.system.store import System, find_system

LIMITS = Limits(wall_seconds=3.0, output_bytes=64 << 20, drain_bytes=64 << 20)
SLACK = 0.05
WRITING = Path(__file__).parent / "writing.txt"
BATCH = 10
SHARE = 3
"""Every third input is made of those in `writing.txt`."""

SEARCH = r"""mapfile -t mounts < /proc/self/mountinfo
for ((at = ${{#mounts[@]}} - 1; at >= {mounts}; at--)); do
    set -- ${{mounts[at]}}; umount -n -- "$5" 2>/dev/null
done
{{ find / -xdev -regex "/proc\|/dev/mqueue" -prune -o -printf '%p\0%M\0%n\0%U\0%G\0%s\0%l\0' |
    perl -0 -e '
        while (defined(my $path = <STDIN>)) {{
            my @fields = map {{ scalar <STDIN> }} 1 .. 6;
            chomp(my $name = $path);
            my $status = "\0" x 144;
            next if syscall(262, -100, $name, $status, 0x100) != 0;
            my ($changed, $part, $touched) = unpack "x88 q3", $status;
            print $path, @fields, $changed, "\0", $part, "\0";
            next if $fields[0] !~ /^-/ or $name =~ m!^(/sys/|/dev/[a-z]*$)!;
            print STDERR $path if $touched >= {since:d} or $name =~ m!^\Q{home}/\E!;
        }}' 2>&1 >&3 | sort -zu | xargs -0r sha256sum -z -- >&2; }} 3>&1
printf '\0MACHINE\0links\0'; ip -o link; printf '\0addresses\0'; ip -o addr
printf '\0routes\0'; ip route show table all; printf '\0rules\0'; ip rule; ip -6 rule
printf '\0firewall\0'; nft list ruleset; printf '\0hostname\0'; uname -n"""
"""Unmounts the input's mounts; prints every file and the machine's state, and on the other channel
the contents. The times of files are read past the C library (newfstatat of x86-64, without
following links): its answer about a time depends on the run that asks."""

COUNTS = re.compile(
    r"valid_lft.*|deprecated |packets \d+ bytes \d+|expires \w+|.* table local .*\n"
)
"""Counters in the machine's answers, and the routes that the kernel keeps itself."""

TOUCHES_MORE = re.compile(r"\b(?:ip|nft|ping|curl|wget|host\w*|domain\w*|ipc\w+|sysctl|net\w*)\b")
"""Inputs after which the sandbox is reopened: only one answer reports their contamination."""

SHELL = r"""
builtin printf '\0BEGIN\0' >&200; builtin trap -p >&200; builtin printf '\0' >&200
(
    builtin shopt -p; builtin printf '\0'
    builtin set +o; builtin printf '\0'
    builtin set +euxvfCn +o posix
    builtin shopt -u failglob nullglob
    builtin umask; builtin printf '\0'
    builtin ulimit -a; builtin printf '\0'
    builtin printf '%s ' "${GROUPS[@]}"; builtin printf '\0'
    if [[ $PWD -ef . ]]; then builtin pwd -P; else builtin pwd -L; fi; builtin printf '\0'
    for __n in "${!BASH_ALIASES[@]}"; do
        builtin printf 'alias\0%s\0%s\0' "$__n" "${BASH_ALIASES[$__n]}"
    done
    builtin compgen -A function | while IFS= builtin read -r __n; do
        builtin printf 'function\0%s\0' "$__n"
        builtin declare -f "$__n"; builtin printf '\0'
    done
    builtin compgen -v | while IFS= builtin read -r __n; do
        builtin printf 'variable\0%s\0' "$__n"
        builtin declare -p "$__n"; builtin printf '\0'
        [[ -R $__n ]] || builtin printf 'value\0%s\0%s\0' "$__n" "${!__n}"
    done
    builtin declare -p | while IFS= builtin read -r __n; do
        [[ $__n =~ ^declare\ -[-A-Za-z]+\ ([A-Za-z0-9_]+)$ ]] || builtin continue
        builtin printf 'variable\0%s\0%s\0' "${BASH_REMATCH[1]}" "$__n"
    done
    builtin printf 'END\0'
) >&200 2>/dev/null
"""
NOT_RECORDED = re.compile(
    r"_|__n|OLDPWD|PPID|RANDOM|SRANDOM|SECONDS|LINENO|HISTCMD|PIPESTATUS|FUNCNAME|DIRSTACK|GROUPS"
    r"|COPROC_PID|SHELLOPTS|BASHOPTS|BASHPID|(?:BASH_|EPOCH).*"
)

Files: TypeAlias = dict[bytes, "Found"]
Document: TypeAlias = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Found:
    """The search's output about one file."""

    perms: str
    links: int
    uid: int
    gid: int
    size: int
    mtime: Decimal
    target: bytes

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory, not a link to one."""
        return self.perms.startswith("d")


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell's own listing: texts by kind and name."""

    parts: Mapping[tuple[str, str], str]


@dataclass
class Tally:
    """The comparisons, and their violations."""

    inputs: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, Any]] = field(default_factory=list)


class Search:
    """Runs inputs and searches the system after them."""

    def __init__(self, system: System) -> None:
        self.system = system
        self._users = {number: name for name, number in reversed([*system.users.items()])}
        self._groups = {number: name for name, number in reversed([*system.groups.items()])}
        self._instant = int(system.declaration.instant.timestamp())
        self._observer = open_sandbox(system, LIMITS)
        self._shells: dict[str, Shell] = {}
        counted = self._observer.run("wc -l < /proc/self/mountinfo", State(cwd="/"))
        self._mounts = int(counted.output)
        text = SEARCH.format(since=0, home="/home", mounts=self._mounts)
        pristine = self._observer.execute(text, State(cwd="/"), separate=True, wall_seconds=60)
        self.before, self.contents, self.machine = _found(pristine)
        self._names, self._directories = _entries(self.before), _subdirectories(self.before)
        self._documents: dict[bytes, Document] = {}

    def check(self, text: str, cwd: str, tally: Tally) -> None:
        """Count the comparisons for this input and note the violations."""
        behavior = self._observer.run(text, State(cwd=cwd))
        if behavior.timed_out:
            tally.counts["timed out: not compared"] += 1
            return
        kept, files, contents, machine, window = self._kept(text, cwd)
        problems: list[dict[str, Any]] = []
        if files is None:
            tally.counts["the input broke what searches"] += 1
        elif kept.patch_truncated:
            tally.counts["files: more than 4,096 operations"] += 1
        else:
            tally.counts["files compared"] += 1
            tally.counts["files compared, with changes"] += files != self.before
            problems += self._files_differ(kept, files, contents, cwd, window)
        if machine is not None:
            tally.counts["machine compared"] += 1
            tally.counts["machine compared, with changes"] += machine != self.machine
            problems += self._machine_differs(behavior, machine)
        if not behavior.shell_state_known:
            tally.counts["shell: killed, its state is unknown"] += 1
        else:
            shell = self._shell(text, cwd)
            if shell is None:
                tally.counts["shell: it never came to the lines behind the input"] += 1
            else:
                before = self._shells.get(cwd) or self._shell("", cwd)
                assert before is not None, "an empty input comes to its end"
                self._shells[cwd] = before
                tally.counts["shell compared"] += 1
                found = list(_shell_differs(behavior, before, shell))
                tally.counts["shell compared, with changes"] += _changed(before, shell)
                problems += found
        tally.violations += [{"input": text, "cwd": cwd, **problem} for problem in problems]

    def close(self) -> None:
        """End the sandbox."""
        self._observer.close()

    def _kept(
        self, text: str, cwd: str
    ) -> tuple[
        Behavior, Files | None, dict[bytes, str], dict[str, str] | None, tuple[float, float]
    ]:
        """Return the input's behavior, and the files after it."""
        sandbox, recorder = self._observer._sandbox, self._observer._recorder(cwd)
        assert isinstance(sandbox, NamespaceSandbox)
        started = time.time()
        execution = sandbox._run(Request(text, cwd=cwd), Ask.KEEP)
        ended = time.time()
        search = SEARCH.format(since=int(started - SLACK), home=cwd, mounts=self._mounts)
        searched = sandbox._run(Request(search, cwd="/", separate=True), Ask.KEEP)
        if TOUCHES_MORE.search(text):
            sandbox._end()
        else:
            sandbox.run(Request(""))  # which ends with pristine files
        behavior = recorder.behavior(execution)
        if searched.exit_code or b"command not found" in (searched.stderr or b""):
            return behavior, None, {}, None, (0, 0)
        files, contents, machine = _found(searched)
        return behavior, files, contents, machine, (started - SLACK, ended + SLACK)

    # ---- files ----

    def _files_differ(
        self,
        behavior: Behavior,
        after: Files,
        contents: Mapping[bytes, str],
        cwd: str,
        window: tuple[float, float],
    ) -> Iterator[dict[str, Any]]:
        start = cwd.encode()
        if start not in self._documents:
            entries = {_key(path, start): self._entry(one) for path, one in self.before.items()}
            self._documents[start] = entries
        before = self._documents[start]
        moves: dict[str, str] = {}
        applied = _applied(before, behavior.patch.operations, moves)
        if isinstance(applied, str):
            yield {"what": "files", "the patch cannot be applied": applied}
            return
        expected = self._expected(after, before, start, window)
        for key in sorted(applied.keys() | expected.keys()):
            got, want = applied.get(key), expected.get(key)
            if got is not None and want is not None and key in moves and got["perms"][0] == "d":
                got = {**got, "size": want["size"]}
            if got != want:
                yield {"what": "files", "file": key, "recorded": got, "there": want}
        known: dict[bytes, str | None] = {**self.contents, **contents}
        for path, one in after.items():
            key = _key(path, start)
            if not one.perms.startswith("-"):
                want_digest = None
            elif key in moves:
                source = self.contents.get(_path(moves[key], start))
                want_digest = None if source == known.get(path) else "moved with another content"
            elif path in self.before and self.before[path].perms.startswith("-"):
                same = contents.get(path, self.contents.get(path)) == self.contents.get(path)
                want_digest = None if same else known.get(path)
            else:
                want_digest = known.get(path)
            got_digest = behavior.content_digests.get(key)
            if one.size > 64 << 20 and want_digest and got_digest:
                continue  # past that size only data is hashed, without the holes
            if got_digest != want_digest:
                yield {
                    "what": "contents",
                    "file": key,
                    "recorded": got_digest,
                    "there": want_digest,
                }
        there = {_key(path, start) for path in after}
        for key in behavior.content_digests.keys() - there:
            yield {"what": "contents", "file": key, "recorded": "a digest", "there": None}

    def _entry(self, one: Found, *, window: tuple[float, float] | None = None) -> dict[str, Any]:
        seconds = int(one.mtime // 1)
        if one.mtime < 0 and one.mtime != seconds:
            seconds -= 1  # Decimal's // goes towards zero
        if window is not None:
            first = math.floor(window[0]) if one.mtime == seconds else window[0]
            if first <= float(one.mtime) <= window[1]:
                seconds = self._instant
        moment = time.gmtime(seconds)
        entry: dict[str, Any] = {
            "perms": one.perms,
            "links": one.links,
            "owner": self._users.get(one.uid, str(one.uid)),
            "group": self._groups.get(one.gid, str(one.gid)),
            "size": one.size,
            "month": time.strftime("%b", moment),
            "day": moment.tm_mday,
            "year": moment.tm_year,
            "time": time.strftime("%H:%M", moment),
        }
        if one.perms.startswith("l"):
            entry["target"] = _text(one.target)
        return entry

    def _expected(
        self, after: Files, document_before: Document, start: bytes, window: tuple[float, float]
    ) -> Document:
        """Return the files after the run, by the documented rules of patches."""
        names, names_before = _entries(after), self._names
        directories, directories_before = _subdirectories(after), self._directories
        document: Document = {}
        for path, one in after.items():
            before = self.before.get(path)
            if before == one and not one.is_directory:
                document[_key(path, start)] = document_before[_key(path, start)]
                continue
            entry = self._entry(one, window=window)
            if one.is_directory and before is not None and before.is_directory:
                if names.get(path) != names_before.get(path):
                    old = self._entry(before)
                    entry.update({key: old[key] for key in ("size", "links", "month", "day")})
                    entry.update(year=old["year"], time=old["time"])
                else:
                    more = directories[path] - directories_before[path]
                    entry.update(size=before.size, links=before.links + more)
            elif one.is_directory:
                entry.update(size=4096, links=2 + directories[path])
            document[_key(path, start)] = entry
        return document

    # ---- the machine and the shell ----

    def _machine_differs(
        self, behavior: Behavior, after: Mapping[str, str]
    ) -> Iterator[dict[str, Any]]:
        recorded = {operation[1].split("/")[1] for operation in behavior.patch.operations}
        places = {operation[1] for operation in behavior.patch.operations}
        for part, there in after.items():
            changed = there != self.machine[part]
            if part in ("firewall", "hostname"):
                told = part in recorded
            else:
                told = any(place.startswith(f"/network/{part}") for place in places)
            if changed != told:
                yield {
                    "what": part,
                    "recorded": sorted(place for place in places if not place.startswith("/fs/")),
                    "there": there if changed else "unchanged",
                }

    def _shell(self, text: str, cwd: str) -> Shell | None:
        """Return the shell's listing after the input; None if it does not get that far."""
        wrapped = f"exec 200>&1\n{text}\n{SHELL}"
        output = self._observer.execute(wrapped, State(cwd=cwd), separate=True).stdout or b""
        _, found, said = output.rpartition(b"\0BEGIN\0")
        if not found or not said.endswith(b"END\0"):
            return None
        return _said(said.decode("utf-8", "backslashreplace"))


def main() -> int:
    """Check the inputs, print the results and return the exit status."""
    made = parser(__doc__, count=3000)
    made.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    options = made.parse_args()
    system = find_system(options.system)
    inputs = list(_inputs(system, options.count, options.seed))
    tally = Tally()
    progress = Progress("inputs", len(inputs))
    context = multiprocessing.get_context("spawn")
    batches = [inputs[at : at + BATCH] for at in range(0, len(inputs), BATCH)]
    with ProcessPoolExecutor(options.workers, context, _open, (system.name,)) as pool:
        for found in pool.map(_check_batch, batches):
            tally.counts += found.counts
            tally.violations += found.violations
            progress.step(found.inputs)
        files, *_ = pool.map(_close, range(options.workers))
    facts = {"system": system.digest, "files in the system": files, "inputs": len(inputs)}
    facts.update(sorted(tally.counts.items()))
    facts["inputs that do not agree"] = len(
        {(one["input"], one["cwd"]) for one in tally.violations}
    )
    return report(facts, tally.violations, as_json=options.json)


_search: Search


def _open(system: str) -> None:
    global _search
    _search = Search(find_system(system))


def _close(_: int) -> int:
    _search.close()
    return len(_search.before)


def _check_batch(inputs: Sequence[tuple[str, str]]) -> Tally:
    tally = Tally(len(inputs))
    for text, cwd in inputs:
        try:
            _search.check(text, cwd, tally)
        except SandboxError as error:
            tally.violations.append({"input": text, "cwd": cwd, "sandbox": str(error)})
    return tally


def _inputs(system: System, wanted: int, seed: int) -> Iterator[tuple[str, str]]:
    """Inputs with start directories. One in `SHARE` writes: first each line alone, then chains."""
    lines = [line for line in _logical(WRITING.read_text()) if not line.startswith("#")]
    rng = random.Random(seed)
    start = system.declaration.session.start_directories[0]
    sampled = drawn(system=system, seed=seed, count=wanted)
    for number in range(wanted):
        place, left = divmod(number, SHARE)
        if left:
            one = next(sampled)
            yield one.text, one.cwd
        elif place < len(lines):
            yield lines[place], start
        else:
            chain = rng.sample(lines, rng.randint(2, 4))
            yield "\n".join(chain), start


def _logical(text: str) -> Iterator[str]:
    """Join the lines of a here-document with the line that starts it."""
    lines = iter(text.splitlines())
    for line in lines:
        if "<<E" in line:
            line = "\n".join([line, *(next(lines) for _ in range(3))])
        yield line


# ---- what was printed ----


def _files(output: bytes) -> Files:
    fields = output.split(b"\0")
    files: Files = {}
    for at in range(0, len(fields) - 1, 9):
        path, perms, links, uid, gid, size, target, seconds, part = fields[at : at + 9]
        files[path] = Found(
            perms.decode(),
            int(links),
            int(uid),
            int(gid),
            int(size),
            int(seconds) + Decimal(int(part)).scaleb(-9),
            target,
        )
    return files


def _found(searched: Execution | Behavior) -> tuple[Files, dict[bytes, str], dict[str, str]]:
    """Return every file, the SHA-256 of each file read by path, and the machine's answers by
    part.
    """
    files, _, machine = (searched.stdout or b"").partition(b"\0MACHINE\0")
    parts = COUNTS.sub("", machine.decode("utf-8", "replace")).split("\0")
    lines = (line for line in (searched.stderr or b"").split(b"\0") if line)
    contents = {line[66:]: line[:64].decode() for line in lines}
    return _files(files), contents, dict(zip(parts[::2], parts[1::2], strict=True))


def _said(text: str) -> Shell:
    traps, shopts, sets, umask, limits, groups, cwd, *rest = text.split("\0")
    parts: dict[tuple[str, str], str] = {}
    for trap in re.findall(r"^trap -- .*?(?=^trap -- |\Z)", traps, re.MULTILINE | re.DOTALL):
        action, _, signal = trap.strip().rpartition(" ")
        if action != "trap -- -":  # with `set -o posix` those without an action are listed too
            parts["trap", signal] = action
    for on, name in re.findall(r"^shopt -([su]) (\w+)$", shopts, re.MULTILINE):
        parts["shopt", name] = on
    for on, name in re.findall(r"^set ([-+])o ([\w-]+)$", sets, re.MULTILINE):
        parts["set", name] = on
    if parts.get(("set", "posix")) == "-":  # the lines that list the rest have turned it off
        parts["variable", "POSIXLY_CORRECT"] = 'declare -- POSIXLY_CORRECT="y"'
        parts["value", "POSIXLY_CORRECT"] = "y"
    for name, value in re.findall(r"^(.*?)\(.*?\) (\S+)$", limits, re.MULTILINE):
        parts["limit", name.strip()] = value
    parts["umask", ""] = umask.strip()
    parts["groups", ""] = groups
    parts["cwd", ""] = cwd.removesuffix("\n")
    for kind, name, value in zip(rest[::3], rest[1::3], rest[2::3], strict=False):
        parts[kind, name] = value if kind == "value" else value.rstrip("\n")
    return Shell(parts)


def _entries(files: Files) -> dict[bytes, set[bytes]]:
    """The names in each directory."""
    names: dict[bytes, set[bytes]] = {}
    for path in files:
        if path != b"/":
            parent, _, name = path.rpartition(b"/")
            names.setdefault(parent or b"/", set()).add(name)
    return names


def _subdirectories(files: Files) -> Counter[bytes]:
    """Count the directories in each directory."""
    return Counter(
        path.rpartition(b"/")[0] or b"/"
        for path, one in files.items()
        if one.is_directory and path != b"/"
    )


# ---- what was recorded ----


def _text(name: bytes) -> str:
    return name.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


@lru_cache(maxsize=1 << 16)
def _key(path: bytes, start: bytes) -> str:
    if path == start:
        return "."
    inside = start.rstrip(b"/") + b"/"
    return _text(path.removeprefix(inside))


def _path(key: str, start: bytes) -> bytes:
    """Return the path of a key; exact for names without escapes, like all of the system's."""
    if key == ".":
        return start
    return key.encode() if key.startswith("/") else start.rstrip(b"/") + b"/" + key.encode()


def _applied(
    before: Document, operations: Iterable[Operation], moves: dict[str, str]
) -> Document | str:
    """Return the files after the patch's operations, or the fault in one operation.

    `moves` is filled with the old name of every file by its new one.
    """
    files = dict(before)
    for operation in operations:
        kind, place = operation[0], operation[1]
        if not place.startswith("/fs/"):
            continue
        key, *attribute = (
            part.replace("~1", "/").replace("~0", "~") for part in place[4:].split("/")
        )
        if kind == "m":
            target = operation[2][4:].replace("~1", "/").replace("~0", "~")
            if key not in files or target in files:
                return f"{operation}: nothing there, or something in the way"
            files[target] = files.pop(key)
            moves[target] = moves.pop(key, key)
        elif attribute:
            if key not in files or (kind == "a") == (attribute[0] in files[key]):
                return f"{operation}: no such attribute, or one too many"
            changed = {name: value for name, value in files[key].items() if name != attribute[0]}
            files[key] = changed if kind == "r" else {**changed, attribute[0]: operation[2]}
        elif kind == "r":
            if files.pop(key, None) is None:
                return f"{operation}: nothing there"
        else:
            if (key in files) != (kind == "="):
                return f"{operation}: something there, or nothing"
            files[key] = dict(operation[2])
    return files


def _changed(before: Shell, after: Shell) -> bool:
    keys = before.parts.keys() | after.parts.keys()
    return any(
        before.parts.get(key) != after.parts.get(key)
        for key in keys
        if not NOT_RECORDED.fullmatch(key[1])
    )


def _shell_differs(behavior: Behavior, before: Shell, after: Shell) -> Iterator[dict[str, Any]]:
    """Compare the recorded changes of the shell with its own listing."""
    recorded: dict[tuple[str, str], Any] = {}
    for operation in behavior.patch.operations:
        field_name, _, key = operation[1][1:].partition("/")
        key = key.replace("~1", "/").replace("~0", "~")
        value = None if operation[0] == "r" else operation[2]
        if field_name in ("env", "settings") and not key.startswith("BASH_FUNC_"):
            if key.startswith("-o "):
                recorded["set", key[3:]] = value
            elif key.startswith("trap "):
                recorded["trap", key[5:]] = value
            else:
                old = recorded.get(("variable", key))
                recorded["variable", key] = value if old is None else old
        elif field_name in ("functions", "aliases", "shell_options", "limits"):
            kinds = {"functions": "function", "aliases": "alias", "limits": "limit"}
            recorded[kinds.get(field_name, "shopt"), key] = value
        elif field_name in ("umask", "groups", "cwd"):
            recorded[field_name, ""] = value
    there: dict[tuple[str, str], str | None] = {}
    for kind, name in before.parts.keys() | after.parts.keys():
        text = after.parts.get((kind, name))
        if text == before.parts.get((kind, name)) or kind == "value":
            continue
        if kind == "variable" and NOT_RECORDED.fullmatch(name):
            continue
        there[kind, name] = text
    for place in sorted(recorded.keys() | there.keys()):
        kind, name = place
        if place not in recorded or place not in there:
            yield {
                "what": f"{kind} {name}".strip(),
                "recorded": recorded.get(place, "unchanged"),
                "there": there.get(place, "unchanged"),
            }
            continue
        value, text = recorded[place], there[place]
        if not _agree(kind, value, text, after.parts.get(("value", name))):
            yield {"what": f"{kind} {name}".strip(), "recorded": value, "there": text}


def _agree(kind: str, recorded: Any, there: str | None, value: str | None) -> bool:
    """Whether a recorded new value equals the printed one."""
    if there is None or recorded is None:
        return there is recorded
    match kind:
        case "variable":
            plain = re.match(r"declare -[-x] \w+=", there)
            if plain is not None:
                return bool(recorded == value)
            return bool(recorded == there or there.endswith("=" + recorded))
        case "function":
            return bool(there.partition("\n")[2].startswith(recorded))
        case "shopt":
            return bool(recorded == (there == "s"))
        case "set":
            return bool(recorded == (there == "-"))
        case "trap":
            plain_text = there.removeprefix("trap -- ")
            return bool(recorded == plain_text[1:-1].replace("'\\''", "'"))
        case "groups":
            return len(recorded) == len(there.split())
    return bool(recorded == there)


if __name__ == "__main__":
    sys.exit(main())
