"""Start programs and report the time of each, from its spawn until it was waited for.

Output is read through a pipe.

It measures bare bash and the other sandboxes. As root it has a new mount namespace, so that its
mounts end with it. Programs that it starts share that, so nothing is isolated. Signals that Python
ignores are reset, standard input is empty.

    python benchmarks/spawner.py ROOT      answers requests, one JSON line each, until end of file
"""

from __future__ import annotations

import ctypes
import json
import os
import resource  # noqa: F401 (os.wait4 imports it, which fails in another root)
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

MNT_DETACH = 2

LONGEST_SECONDS = 30
"""Time limit; a program that takes longer is killed with its process group, and fails."""


@dataclass(frozen=True)
class Overlay:
    """A pristine tree for one run: a fresh tmpfs over `lower`, mounted on `target`.

    Mounting and unmounting it counts as part of the run. `work` is an empty directory.
    """

    lower: str
    work: str
    target: str

    def mount(self) -> None:
        _mount("tmpfs", self.work, "tmpfs", "mode=755")
        for name in ("upper", "work"):
            Path(self.work, name).mkdir()
        layers = f"lowerdir={self.lower},upperdir={self.work}/upper,workdir={self.work}/work"
        _mount("overlay", self.target, "overlay", layers)

    def unmount(self) -> None:
        for path in (self.target, self.work):
            _libc.umount2(path.encode(), MNT_DETACH)


@dataclass(frozen=True)
class Spawned:
    """One finished program."""

    seconds: float
    cpu_seconds: float
    """Processor time of the program and of its awaited children."""
    status: int
    output: str


class Spawner(AbstractContextManager["Spawner"]):
    """The caller's side. `root` becomes the programs' root directory."""

    def __init__(self, root: Path = Path("/")) -> None:
        alone = ["unshare", "--mount"] if os.geteuid() == 0 else []
        self._process = subprocess.Popen(
            [*alone, sys.executable, __file__, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def _ask(self, request: Mapping[str, object]) -> dict[str, object]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, object] = json.loads(self._process.stdout.readline())
        return answer

    def spawn(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
        overlay: Overlay | None = None,
    ) -> Spawned:
        answer = self._ask(
            {
                "arguments": list(arguments),
                "environment": dict(environment),
                "directory": directory,
                "overlay": asdict(overlay) if overlay else None,
            }
        )
        return Spawned(**answer)  # type: ignore[arg-type]

    def copy(self, tree: str, count: int) -> None:
        """Have `count` pristine copies of the tree ready; remove the rest of older ones."""
        self._ask({"copy": tree, "count": count})

    def restore(self, tree: str) -> None:
        """Put the next pristine copy in the tree's place: two renames."""
        self._ask({"restore": tree})

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# ---- the process itself -----------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: str, kind: str, options: str) -> None:
    arguments = (source.encode(), target.encode(), kind.encode(), 0, options.encode())
    if _libc.mount(*arguments):
        error = ctypes.get_errno()
        raise OSError(error, f"mount {kind} on {target}: {os.strerror(error)}")


_DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9))


def _enter(root: str) -> None:
    """Make `root` this process's root directory, with the mounts and devices of a system."""
    subprocess.run(["mount", "--bind", root, root], check=True)
    for kind, name in (("proc", "proc"), ("sysfs", "sys")):
        subprocess.run(["mount", "-t", kind, kind, f"{root}/{name}"], check=True)
    os.umask(0)
    for name, major, minor in _DEVICES:
        path = Path(root, "dev", name)
        path.unlink(missing_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    os.umask(0o022)
    os.chroot(root)


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"took longer than {LONGEST_SECONDS} s")


def _spawn(
    arguments: list[str],
    environment: dict[str, str],
    directory: str,
    overlay: dict[str, str] | None,
    null: int,
) -> Spawned:
    layers = Overlay(**overlay) if overlay else None
    program = shutil.which(arguments[0], path=environment.get("PATH")) or arguments[0]
    os.chdir(directory)
    chunks, pid = [], 0
    signal.alarm(LONGEST_SECONDS)
    begun = time.perf_counter()
    try:
        if layers:
            layers.mount()
        reading, writing = os.pipe()
        pid = os.posix_spawn(
            program,
            arguments,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_DUP2, writing, 2),
            ],
            setpgroup=0,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
        os.close(writing)
        while chunk := os.read(reading, 1 << 16):
            chunks.append(chunk)
        os.close(reading)
        _, status, usage = os.wait4(pid, 0)
    except TimeoutError:
        if pid:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise
    finally:
        if layers:
            layers.unmount()
        seconds = time.perf_counter() - begun
        signal.alarm(0)
    output = b"".join(chunks).decode("utf-8", "replace")
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Spawned(seconds, cpu_seconds, os.waitstatus_to_exitcode(status), output)


def _spare(tree: str) -> Path:
    """Next to the tree: `pristine`, the copies by number, and in `used` the trees that they
    replaced."""
    parent, _, name = tree.rpartition("/")
    return Path(parent, f".{name}")


def _copy(tree: str, count: int) -> None:
    spare = _spare(tree)
    if not spare.exists():
        spare.mkdir()
        subprocess.run(["cp", "-a", tree, spare / "pristine"], check=True)
    for old in spare.iterdir():
        if old.name != "pristine":
            shutil.rmtree(old)
    (spare / "used").mkdir()
    for number in range(count):
        subprocess.run(["cp", "-a", spare / "pristine", spare / str(number)], check=True)


def _restore(tree: str) -> None:
    spare = _spare(tree)
    number = str(sum(1 for _ in (spare / "used").iterdir()))
    Path(tree).rename(spare / "used" / number)
    (spare / number).rename(tree)


def main() -> None:
    if sys.argv[1] != "/":
        _enter(sys.argv[1])
    elif os.geteuid() == 0:  # crun refuses a host with both versions of cgroups
        _libc.umount2(b"/sys/fs/cgroup/unified", MNT_DETACH)
    null = os.open(os.devnull, os.O_RDONLY)
    signal.signal(signal.SIGALRM, _too_long)
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, object] = {}
        if "copy" in request:
            _copy(request["copy"], request["count"])
        elif "restore" in request:
            _restore(request["restore"])
        else:
            try:
                answer = asdict(_spawn(**request, null=null))
            except OSError as error:
                answer = asdict(Spawned(0.0, 0.0, -1, str(error)))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
