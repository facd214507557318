"""Check that previews predict commands, leave the host unchanged, and leave nothing behind.

    python soak/previewing.py [--count 300] [--kills 60] [--seed 0]

Each of `--count` trials fills a directory with one of everything, draws a script of one to eight
changes, previews it, and then really runs it. Every second preview is an ordinary user's, over
single directories. No script touches a file with several hard links: a preview reports only the
link that is written to. Then these must hold:

- The preview has the script's output and exit status.
- It leaves the directory unchanged, including times and extended attributes.
- Its patch leads to the files that the script leaves: names, kinds, modes, links, sizes, targets.
  The digests of contents are theirs.

Then `--kills` previews are killed at random moments: the caller, the keeper, process 1 or the
command. A surviving caller reports an error or the command's end. No process of the preview
remains, and the directory is unchanged. In the end this process has its initial mounts, descriptors
and children.

No system is needed. 300 trials and 60 kills take five minutes on two cores.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from common import Progress, parser, report
from faults import children, descendants
from shioenv.domain.names import name_text
from shioenv_agents.preview.layered_run import Preview, preview

PATIENCE = 120.0
"""Most seconds until all processes of a killed preview have ended."""

KILLED = ("caller", "keeper", "process 1", "command")
"""The targets: each has started the next one."""

ENDS = {0, 125, 137}
"""Exit statuses of a caller whose preview was killed: the command's, or the preview's."""

CHANGES = r"""
echo three >> text; printf '\000\001' > binary; chmod 600 sparse
mkdir -p new/deep; echo x > new/deep/f
mv old renamed; rm -r gone; ln -sf text link; ln text twin; truncate -s 3 cut
: > empty; rmdir bare; mkfifo pipe2
touch "$(printf 'a\nb')" "$(printf 'b\377d')" 'c\d'
rm 'to be a directory'; mkdir 'to be a directory'
rm -r 'to be a file'; echo now > 'to be a file'; mv moved somewhere; chmod 1777 open
"""

PARTS = (
    "echo more >> text", "printf '\\000\\377' > binary", "chmod 600 sparse", "chmod u+s old",
    "mkdir -p new/deep/er && echo x > new/deep/f", "mv old renamed", "rm -rf gone",
    "ln text twin", "truncate -s 3 cut", ": > empty", "rmdir bare && mkdir bare", "mkfifo pipe2",
    "rm pipe", "mv moved somewhere", "chmod 1777 open", "cp -a 'to be a file' copied; rm -r moved",
    "rm -r 'to be a directory'; mkdir 'to be a directory'", "touch \"$(printf 'a\\nb')\" 'c d'",
    "rm -r 'to be a file' && echo now > 'to be a file'", "sed -i s/two/three/ text cut",
    "echo over > sparse", "tar cf all.tar --sort=name --mtime=@0 bare; tar tf all.tar",
    "ln -sfn text link",
    "cat text nothing", "ls open bare", "mv text link; cat link", "cd bare && echo in > ../out",
    "find . -name 'to*' | sort", "chmod 0 cut; rm -f cut", "ln -s nowhere bare/link", "exit 3",
)  # fmt: skip


def fill(place: Path) -> None:
    """Fill a directory with one file of every kind."""
    for name in ("text", "old", "cut", "twin of hard", "to be a directory"):
        (place / name).write_text(f"one\ntwo {name}\n")
    for name in ("gone/in", "moved/in", "to be a file/in"):
        (place / name).parent.mkdir()
        (place / name).write_text(f"{name}\n")
    (place / "bare").mkdir()
    (place / "open").mkdir()
    (place / "link").symlink_to("nowhere")
    (place / "hard").hardlink_to(place / "twin of hard")
    os.mkfifo(place / "pipe")
    with (place / "sparse").open("wb") as file:
        file.truncate(1 << 20)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place / "socket"))
    Path(os.fsdecode(bytes(place) + b"/n\n\xff")).write_bytes(b"\xff")
    os.setxattr(place / "text", "user.kept", b"value")


def digest(top: Path) -> str:
    """Digest everything below a directory: metadata except access times, contents, attributes."""
    told = hashlib.sha256()
    for directory, names, files in os.walk(bytes(top)):
        names.sort()
        for name in sorted((*names, *files, b".")):
            path = os.path.join(directory, name)  # noqa: PTH118 - bytes
            status = os.lstat(path)
            fields = list(status[:7])
            told.update(repr((path, fields, status.st_mtime_ns, status.st_ctime_ns)).encode())
            told.update(repr(status.st_blocks).encode())
            if stat.S_ISREG(status.st_mode):
                told.update(Path(os.fsdecode(path)).read_bytes())
            if stat.S_ISLNK(status.st_mode):
                told.update(os.readlink(path))  # noqa: PTH115 - bytes
            for attribute in os.listxattr(path, follow_symlinks=False):
                told.update(os.getxattr(path, attribute, follow_symlinks=False))
    return told.hexdigest()


def listed(top: Path) -> dict[str, tuple[Any, ...]]:
    """List a directory as a context does, without times and directories' sizes."""
    found: dict[str, tuple[Any, ...]] = {}
    for directory, names, files in os.walk(bytes(top)):
        for name in (*names, *files):
            path = os.path.join(directory, name)  # noqa: PTH118 - bytes
            status = os.lstat(path)
            is_directory = stat.S_ISDIR(status.st_mode)
            target = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None  # noqa: PTH115
            found[name_text(os.path.relpath(path, bytes(top)))] = (
                stat.filemode(status.st_mode),
                status.st_nlink,
                None if is_directory else status.st_size,
                target and name_text(target),
            )
    return found


def without_links(listing: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """Return a listing without directories' link counts: no patch has those of a parent alone."""
    return {
        name: (one[0], None, *one[2:]) if one[0].startswith("d") else one
        for name, one in listing.items()
    }


CLOCK = ("month", "day", "year", "time")
"""Fields of a file that change where a minute ends between two listings."""


def applied(before: dict[str, tuple[Any, ...]], made: Preview) -> dict[str, tuple[Any, ...]]:
    """Return the listing after a patch."""
    operations = made.behavior.patch.operations
    kept = [one for one in operations if one[0] != "=" or not str(one[1]).endswith(CLOCK)]
    patch = replace(made.behavior.patch, operations=tuple(kept))
    fields = ("perms", "links", "size", "target")
    fs = {name: dict(zip(fields, values, strict=True)) for name, values in before.items()}
    own = dict.fromkeys((*fields, "owner", "group", *CLOCK))
    after = patch.apply({"fs": {".": own, **fs}})["fs"]
    return {
        name: tuple(
            None if field == "size" and entry["perms"][0] == "d" else entry.get(field)
            for field in fields
        )
        for name, entry in after.items()
        if name != "."
    }


def captured(*command: str, **options: Any) -> Preview:
    """Preview a command with its output in the result."""
    return preview(command, capture=True, **options)


def running(*words: str) -> Iterator[int]:
    """Return the processes of the host that were started with these words."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            given = (directory / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if all(word.encode() in given for word in words):
            yield int(directory.name)


class Previewing:
    """All trials, and their faults."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.violations: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()

    def trial(self, number: int, top: Path) -> None:
        """Preview and run one script."""
        script = "; ".join(self._draw.choices(PARTS, k=self._draw.randint(1, 8)))
        before, was = digest(top), listed(top)
        whole = number % 2 == 0 and os.geteuid() == 0
        with mock.patch("shioenv_agents.preview.keeper.may_mount", return_value=whole):
            made = captured("sh", "-c", script)
        self.counts["of the whole root" if made.whole else "of directories"] += 1
        self._expect("the host changed", digest(top), before, script)
        told = applied(was, made)
        done = subprocess.run(
            ["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._expect("exit code", made.behavior.exit_code, done.returncode, script)
        self._expect("output", made.behavior.output, done.stdout, script)
        self._expect("files", without_links(told), without_links(listed(top)), script)
        for name, content in made.behavior.content_digests.items():
            path = top / name
            if path.is_file() and "\\" not in name:
                real = hashlib.sha256(path.read_bytes()).hexdigest()
                self._expect(f"content of {name}", content, real, script)

    def kill(self, top: Path) -> None:
        """Kill one preview."""
        before, word = digest(top), str(self._draw.randint(10**6, 10**7))
        script = f"echo x > y; rm -r gone; (setsid sleep {word} &); exec sleep {word}"
        words = [sys.executable, "-m", "shioenv", "preview", "--", "sh", "-c", script]
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, **pipes) as process:
            until = time.monotonic() + PATIENCE
            while not list(running("sleep", word)) and time.monotonic() < until:
                if self._draw.random() < 0.005:
                    break
                time.sleep(0.005)
            chain = [process.pid, *descendants(process.pid)][: len(KILLED)]
            victim = self._draw.choice(chain)
            self.counts[f"killed: {KILLED[chain.index(victim)]}"] += 1
            with_caller = victim == process.pid
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                self.counts["was gone"] += 1
            status = process.wait(PATIENCE)
        while list(running("sleep", word)) and time.monotonic() < until:
            time.sleep(0.005)
        self._expect("a process goes on", list(running("sleep", word)), [], script)
        ended = status == -signal.SIGKILL if with_caller else status in ENDS
        self._expect("the caller's end", (ended, status), (True, status), script)
        self._expect("the host changed", digest(top), before, script)

    def _expect(self, what: str, found: object, expected: object, script: str) -> None:
        if found == expected:
            return
        if isinstance(found, dict) and isinstance(expected, dict):
            names = {name for name in found | expected if found.get(name) != expected.get(name)}
            found, expected = ({name: one.get(name) for name in names} for one in (found, expected))
        self.violations.append(
            {"what": what, "found": found, "expected": expected, "script": script}
        )


def held() -> tuple[str, int, list[int]]:
    """Return mounts, the number of descriptors, and children of this process."""
    mounts = Path("/proc/self/mountinfo").read_text()
    return mounts, len(os.listdir("/proc/self/fd")), children(os.getpid())  # noqa: PTH208


def main() -> int:
    """Try, kill, and report."""
    options = parser(__doc__, count=300)
    options.add_argument("--kills", type=int, default=60, help="previews to kill (default: 60)")
    given = options.parse_args()
    made = Previewing(given.seed)
    begin = Path.cwd()
    before = held()
    with tempfile.TemporaryDirectory(prefix="shioenv-previewing.") as directory:
        progress = Progress("previews", given.count + given.kills)
        for number in range(given.count + given.kills):
            top = Path(directory, "place")
            top.mkdir()
            os.chdir(top)
            fill(top)
            if number < given.count:
                made.trial(number, top)
            else:
                made.kill(top)
            os.chdir(begin)
            shutil.rmtree(top)
            progress.step()
    for what, was, now in zip(("mounts", "descriptors", "children"), before, held(), strict=True):
        if was != now:
            made.violations.append({"what": what, "found": now, "expected": was})
    facts = {"seed": given.seed, **dict(sorted(made.counts.items()))}
    return report(facts, made.violations, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
