"""bashkit: Bash and coreutils written anew in Rust, over a virtual file system.

bashkit is the strongest rule-based system that we know: a model that beats only a honeypot has
proved little.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.errors import MissingExtraError
from shioenv.evaluation.metrics import PatchLevel
from shioenv.evaluation.predictor import Setting
from shioenv.evaluation.predictors.tree import ShownFile, changes, loaded
from shioenv.system.store import IndexEntry, System, find_system

MOUNTED = ("/etc", "/usr", "/var", "/home")
"""Directories that are loaded once and mounted for every input.

A directory is loaded anew after an input that is seen to change something in it (`WATCHED`).
"""

BUILT_IN = frozenset({"/", "/bin", "/dev", "/proc", "/sys"})
"""Directories that bashkit has of its own, or does not let be made."""

FAR = ("/etc", "/var")
"""Directories that hold most files and seldom change: many inputs are looked at together there."""

WATCHED = ("/home", "/tmp", "/root", "/etc", "/var", "/srv", "/opt", "/mnt", "/media", "/run")
"""Directories where changes of an input are looked for; changes elsewhere are not seen."""

NEAR = tuple(top for top in WATCHED if top not in FAR)

_REACHING = re.compile(
    r"etc|var|\.\.|\b(?:cd|pushd|popd|eval|source)\b"
    r"|(?<![\w.*}\])-])/[\w.-]*(?:[*?\[{$'\"`\\]|(?<=/)(?:[\s;&|()<>]|\Z))"
)
"""What a text has that may name something `FAR`: a part of its path, or a way around that name."""

Loaded = list[tuple[IndexEntry, bytes | None]]
T = TypeVar("T")
Q = TypeVar("Q")


_SHELL = """\
import sys, os, bashkit
here = {"host_path": os.getcwd(), "vfs_path": os.getcwd(), "writable": True}
etc = {"host_path": "/etc", "vfs_path": "/etc", "writable": False}
errors = os.dup(2)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # it warns of what it mounts
bash = bashkit.Bash(
    username="root", cwd=os.getcwd(), mounts=[here, etc], allowed_mount_paths=[os.getcwd(), "/etc"]
)
os.dup2(errors, 2)
done = bash.execute_sync("{ " + sys.argv[1] + "\\n} 2>&1")
print(done.stdout + done.stderr, end="")
sys.exit(done.exit_code & 255)
"""
"""A program that runs an input in bashkit, in the current directory."""


class Bashkit:
    """Answers by running inputs in bashkit, each in a new interpreter with the system's files.

    Most files are laid out once (`MOUNTED`), and anew where an input changed them.
    bashkit's own /etc cannot be replaced file by file, so the system's is mounted over it. bashkit
    tells the host's time and knows no owners.
    """

    patch_level = PatchLevel.FILES
    at_once = 64
    shell = f"python3 -c {quoted(_SHELL)}"

    def __init__(self, setting: Setting) -> None:
        try:
            import bashkit
        except ImportError:
            raise MissingExtraError("the predictor bashkit", "evaluation", "bashkit") from None
        self._bashkit: Any = bashkit
        self.version = _version()
        self.install = (  # in a root of Debian that is there to be spoiled
            "apt-get install python3-pip && "
            f"pip install --break-system-packages bashkit=={self.version}"
        )
        system = find_system(setting.text or setting.system)
        self._start = setting.start
        self._hostname = system.declaration.machine.hostname
        self._environment = dict(system.declaration.session.environment)
        self._rest = [pair for pair in loaded(system) if not _is_under(pair[0].path, MOUNTED)]
        self._under = {top: [*_beneath(system, top)] for top in MOUNTED}
        self._mounts = {top: self._filled(top) for top in MOUNTED}
        self._together = False
        self._pristine: dict[tuple[str, ...], dict[str, ShownFile]] = {}
        """The files of a new interpreter, which are the same each time, by what is watched."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What the input does in bashkit, after the history in the same interpreter."""
        cwd = state.cwd if state else self._start
        history = state.history if state else ()
        far = _is_under(cwd, FAR) or any(map(_REACHING.search, (cwd, *history, shell_input)))
        watched = NEAR if self._together and not far else WATCHED
        bash = self._fresh(cwd)
        if watched not in self._pristine:
            self._pristine[watched] = self._tree(bash, watched)
        pristine = before = self._pristine[watched]
        for text in history:
            bash.execute_sync(f"{text}\n")
        if history:
            before = self._tree(bash, watched)
        done = bash.execute_sync(f"{{ {shell_input}\n}} 2>&1")
        after = self._tree(bash, watched)
        patch = changes(before, after, cwd)
        changed = {path for path in {*pristine, *after} if pristine.get(path) != after.get(path)}
        for top in MOUNTED:
            if any(_is_under(path, (top,)) for path in changed):
                self._mounts[top] = self._filled(top)
                self._pristine.clear()  # bashkit makes some files of its own, which are new then
        output = f"{done.stdout}{done.stderr}".encode("utf-8", "surrogateescape")
        return Behavior(exit_code=done.exit_code & 0xFF, output=output, patch=patch)

    def together(self, ask: Callable[[Q], T], questions: Sequence[Q]) -> list[T]:
        """What `ask` gives for each question; it calls `run` once for each.

        What is `FAR` is looked at after each question whose text, history or start directory may
        reach it, and once behind all of them. Where it changed unseen, all are asked anew, and it
        is looked at after each. A change through a link that another question undoes stays unseen.
        The home directories are laid out anew first, since a change that leaves size and time as
        they were is not seen.
        """
        self._mounts["/home"] = self._filled("/home")
        before = self._tree(self._fresh("/"), FAR)
        self._pristine.clear()
        self._together = True
        try:
            said = [ask(question) for question in questions]
        finally:
            self._together = False
            self._pristine.clear()
        if self._tree(self._fresh("/"), FAR) == before:
            return said
        self._mounts = {top: self._filled(top) for top in MOUNTED}
        return [ask(question) for question in questions]

    def _fresh(self, cwd: str) -> Any:
        """A new interpreter over the system's files as they were built, in directory `cwd`."""
        bash = self._bashkit.Bash(
            username="root", hostname=self._hostname, cwd=cwd, env=self._environment
        )
        for top, files in self._mounts.items():
            bash.mount(top, files)
        _fill(bash.fs(), self._rest)
        _date(bash, self._rest)
        bash.execute_sync(f"cd {quoted(cwd)}")
        return bash

    def _filled(self, top: str) -> Any:
        files = self._bashkit.FileSystem()
        _fill(files, self._under[top], top)
        bash = self._bashkit.Bash(username="root")
        bash.mount(top, files)
        _date(bash, self._under[top])
        return files

    def _tree(self, bash: Any, tops: Iterable[str]) -> dict[str, ShownFile]:
        files = bash.fs()
        found: dict[str, ShownFile] = {}
        waiting = [top for top in tops if files.exists(top)]
        while waiting:
            directory = waiting.pop()
            for entry in files.read_dir(directory):
                path, facts = f"{directory}/{entry['name']}", entry["metadata"]
                kind = facts["file_type"]
                if kind == "directory":
                    found[path] = ShownFile(kind, facts["mode"], 0.0)
                    waiting.append(path)
                else:  # links have the time at which they were loaded
                    modified = facts["modified"] if kind == "file" else 0.0
                    found[path] = ShownFile(kind, facts["mode"], modified, facts["size"])
        return found


def _version() -> str:
    try:
        return version("bashkit")
    except PackageNotFoundError:
        return "unknown"


def _is_under(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _beneath(system: System, top: str) -> Loaded:
    return [pair for pair in loaded(system) if _is_under(pair[0].path, (top,))]


def _fill(files: Any, entries: Loaded, top: str = "") -> None:
    """Writes files; left out are those that bashkit refuses, such as names with newlines."""
    for entry, content in entries:
        path = entry.path[len(top) :]
        if path in BUILT_IN or not path:
            continue
        try:
            if stat.S_ISLNK(entry.mode):
                files.symlink(entry.target, path)
                continue
            if content is None:
                files.mkdir(path, True)
            else:
                files.write_file(path, content)
            files.chmod(path, stat.S_IMODE(entry.mode))
        except Exception:  # bashkit's errors have no type of their own
            continue


def _date(bash: Any, entries: Loaded) -> None:
    """Gives files and directories the system's times, all of one time at once."""
    times: dict[int, list[str]] = {}
    for entry, _ in entries:
        if not stat.S_ISLNK(entry.mode) and entry.path not in BUILT_IN and "\n" not in entry.path:
            times.setdefault(entry.mtime, []).append(quoted(entry.path))
    lines = (f"touch -d @{when} {' '.join(paths)}" for when, paths in times.items())
    bash.execute_sync("\n".join(lines))
