"""The predictor bashkit: Bash and coreutils reimplemented in Rust, on a virtual file system.

bashkit is the strongest rule-based system that we know, and harder to beat than a honeypot.
"""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import State
from shioenv.errors import MissingExtraError
from shioenv.system.store import IndexEntry, find_system
from shioenv_eval.predictors.tree import EmulatedFile, file_changes_patch, is_program, loaded

BUILT_IN = frozenset({"/", "/bin", "/dev", "/proc", "/sys"})
"""Directories that bashkit provides itself, or does not allow to be created."""

FAR = {"/etc": ("etc",), "/usr": ("usr", "lib", "sbin", "PATH"), "/var": ("var",)}
"""Large directories that seldom change, with the words that indicate access to them in a text.

For inputs that are asked together, these directories are checked once for all.
"""

VAST = ("/usr",)
"""Directories of `FAR` that take half a second to list.

They are checked only if an input may reach them.
"""

NEAR = ("/home", "/tmp", "/root", "/srv", "/opt", "/mnt", "/media", "/run", "/boot")
"""Directories that are checked for changes after each input.

Changes elsewhere, except in `FAR`, are not detected; they vanish with the interpreter.
"""

_ALONE = tuple(top for top in FAR if top not in VAST)

_AROUND = re.compile(
    r"\.\.|\b(?:cd|pushd|popd|eval|source)\b"
    r"|(?<![\w.*}\])-])/[\w.-]*(?:[*?\[{$'\"`\\]|(?<=/)(?:[\s;&|()<>]|\Z))"
)
"""Patterns of text that may reach a `FAR` directory without naming it."""

Loaded = Mapping[str, tuple[IndexEntry, bytes | None]]
Shown = dict[str, EmulatedFile]
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


class _Mount:
    """A directory of the system, which is mounted in every interpreter.

    Its files are written once, and restored if an input changes them.
    """

    def __init__(self, bashkit: Any, top: str, entries: Loaded) -> None:
        self._bashkit, self._top, self._entries = bashkit, top, entries
        self.lay_out()

    def lay_out(self) -> None:
        """Recreate all files."""
        self._files = self._bashkit.FileSystem()
        for entry in self._files.read_dir("/"):  # a new file system has some files
            self._files.remove(f"/{entry['name']}", True)
        self._write(self._entries)
        self.pristine = self.shown()
        """The files as written; they are restored after changes."""

    def give(self, bash: Any) -> None:
        """Mount the files in an interpreter."""
        bash.mount(self._top, self._files)

    def shown(self) -> Shown:
        """Return the current files."""
        if not self._files.exists("/"):  # an input removed the directory itself
            return {}
        found = {self._top: _shown(self._files.stat("/"))}
        waiting = [""] if found[self._top].kind == "directory" else []
        while waiting:
            directory = waiting.pop()
            for entry in self._files.read_dir(directory or "/"):
                path = f"{directory}/{entry['name']}"
                file = found[f"{self._top}{path}"] = _shown(entry["metadata"])
                if file.kind == "directory":
                    waiting.append(path)
        return found

    def put_back(self, shown: Shown) -> None:
        """Restore the files to the system's state; `shown` is the current state."""
        old = self.pristine
        if self._top not in shown or shown[self._top].kind != "directory":
            self.lay_out()
            return
        changed = sorted(path for path in {*old, *shown} if old.get(path) != shown.get(path))
        with suppress(Exception):  # bashkit's errors have no special class
            for path in changed:
                was, now = old.get(path), shown.get(path)
                same = was is not None and now is not None and was.kind == now.kind
                within = path.removeprefix(self._top)
                if now is not None and not same and self._files.exists(within):
                    self._files.remove(within, True)
            self._write({path: self._entries[path] for path in changed if path in self._entries})
        if self.shown() != old:
            self.lay_out()

    def _write(self, entries: Loaded) -> None:
        _fill(self._files, entries.values(), self._top)
        bash = self._bashkit.Bash(username="root")
        self.give(bash)
        _date(bash, entries.values())


class Bashkit:
    """Answers by running inputs in bashkit, each in a new interpreter with the system's files.

    The system's directories are written once, and restored after detected changes. bashkit uses the
    host's clock and does not model owners.
    """

    patch_level = PatchLevel.FILES
    at_once = 64
    shell = f"python3 -c {quoted(_SHELL)}"

    def __init__(self, setting: Setting) -> None:
        try:
            import bashkit
        except ImportError:
            raise MissingExtraError("the predictor bashkit", "emulators", "bashkit") from None
        self._bashkit: Any = bashkit
        self.version = _version()
        self.install = (  # for a disposable Debian root
            "apt-get install python3-pip && "
            f"pip install --break-system-packages bashkit=={self.version}"
        )
        system = find_system(setting.text or setting.system)
        self._start = setting.start
        self._hostname = system.declaration.machine.hostname
        self._environment = dict(system.declaration.session.environment)
        beneath: dict[str, dict[str, tuple[IndexEntry, bytes | None]]] = {}
        for entry, content in loaded(system):
            if is_program(entry, content):
                continue
            top = f"/{entry.path.split('/')[1]}"
            beneath.setdefault(top, {})[entry.path] = entry, content
        self._links = [
            files[top] for top, files in beneath.items()
            if top not in BUILT_IN and stat.S_ISLNK(files[top][0].mode)
        ]  # fmt: skip
        self._mounts = {
            top: _Mount(bashkit, top, files) for top, files in beneath.items()
            if top not in BUILT_IN and stat.S_ISDIR(files[top][0].mode)
        }  # fmt: skip
        self._always = _ALONE
        """The `FAR` directories that are checked for every input."""
        self._unseen = False
        """Whether a question encountered a change that an earlier one left undetected."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Run the input in bashkit, after the history in the same interpreter."""
        behavior, changed = self._answered(shell_input, state)
        if self._always or not changed:
            return behavior
        # an earlier question may have made the change undetected; it is restored now
        again, _ = self._answered(shell_input, state)
        self._unseen |= again.patch != behavior.patch
        return again

    def _answered(self, shell_input: str, state: State | None) -> tuple[Behavior, bool]:
        """Return the input's behavior, and whether a `FAR` directory has changed afterwards."""
        cwd = state.cwd if state else self._start
        history = state.history if state else ()
        reached = _reached((cwd, *history, shell_input))
        watched = NEAR + tuple(top for top in FAR if top in self._always or top in reached)
        bash = self._fresh(cwd)
        before = self._pristine(watched)
        try:
            for text in history:
                bash.execute_sync(f"{text}\n")
            if history:
                before = self._shown(watched)
            done = bash.execute_sync(f"{{ {shell_input}\n}} 2>&1")
        finally:
            after = self._shown(watched)
            self._put_back(after)
        patch = file_changes_patch(*_differing(before, after), cwd)
        output = f"{done.stdout}{done.stderr}".encode("utf-8", "surrogateescape")
        behavior = Behavior(exit_code=done.exit_code & 0xFF, output=output, patch=patch)
        return behavior, any(
            after[top] != self._mounts[top].pristine for top in FAR if top in after
        )

    def together(self, ask: Callable[[Q], T], questions: Sequence[Q]) -> list[T]:
        """Return the result of `ask` for each question; `ask` calls `run` once.

        A `FAR` directory is checked after each question that may reach it by text, history or start
        directory, and once at the end. If an undetected change is found, all questions are asked
        again with all checks. The home directories are recreated first, since changes that keep
        size and time are not detected.
        """
        self._mounts["/home"].lay_out()
        try:
            self._always, self._unseen = (), False
            said = [ask(question) for question in questions]
            far = self._shown(FAR)
            if far == self._pristine(FAR) and not self._unseen:
                return said
            self._put_back(far)
            self._always = tuple(FAR)
            return [ask(question) for question in questions]
        finally:
            self._always = _ALONE

    def _fresh(self, cwd: str) -> Any:
        """Return a new interpreter with the system's pristine files, in directory `cwd`."""
        bash = self._bashkit.Bash(
            username="root", hostname=self._hostname, cwd=cwd, env=self._environment
        )
        for mount in self._mounts.values():
            mount.give(bash)
        _fill(bash.fs(), self._links)
        bash.execute_sync(f"cd {quoted(cwd)}; unset OLDPWD")  # D-27
        return bash

    def _pristine(self, tops: Iterable[str]) -> dict[str, Shown]:
        return {top: self._mounts[top].pristine for top in tops if top in self._mounts}

    def _shown(self, tops: Iterable[str]) -> dict[str, Shown]:
        return {top: self._mounts[top].shown() for top in tops if top in self._mounts}

    def _put_back(self, shown: Mapping[str, Shown]) -> None:
        for top, files in shown.items():
            if files != self._mounts[top].pristine:
                self._mounts[top].put_back(files)


def _version() -> str:
    try:
        return version("bashkit")
    except PackageNotFoundError:
        return "unknown"


def _shown(facts: Mapping[str, Any]) -> EmulatedFile:
    kind, mode = facts["file_type"], facts["mode"]
    if kind == "directory":
        return EmulatedFile(kind, mode, facts["modified"])
    # a link's time is the time of its creation
    return EmulatedFile(kind, mode, facts["modified"] if kind == "file" else 0.0, facts["size"])


def _reached(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the `FAR` directories that texts may access."""
    if any(map(_AROUND.search, texts)):
        return tuple(FAR)
    return tuple(
        top for top, names in FAR.items() if any(name in text for name in names for text in texts)
    )


def _differing(before: Mapping[str, Shown], after: Mapping[str, Shown]) -> tuple[Shown, Shown]:
    """Return the files before and after, only of the directories that differ."""
    tops = [top for top in before if before[top] != after[top]]
    old, new = (
        {path: file for top in tops for path, file in one[top].items()} for one in (before, after)
    )
    return old, new


def _fill(files: Any, entries: Iterable[tuple[IndexEntry, bytes | None]], top: str = "") -> None:
    """Write files, skipping those that bashkit refuses, such as names with newlines."""
    for entry, content in entries:
        path = entry.path.removeprefix(top) or "/"
        try:
            if stat.S_ISLNK(entry.mode):
                files.symlink(entry.target, path)
                continue
            if content is not None:
                files.write_file(path, content)
            elif path != "/":
                files.mkdir(path, True)
            files.chmod(path, stat.S_IMODE(entry.mode))
        except Exception:  # bashkit's errors have no special class
            continue


def _date(bash: Any, entries: Iterable[tuple[IndexEntry, bytes | None]]) -> None:
    """Set files and directories to the system's times, one call for each distinct time."""
    times: dict[int, list[str]] = {}
    for entry, _ in entries:
        if not stat.S_ISLNK(entry.mode) and "\n" not in entry.path:
            times.setdefault(entry.mtime, []).append(quoted(entry.path))
    # in bashkit, this form is ten times as fast as `-d @SECONDS`
    lines = (
        f"touch -t {time.strftime('%Y%m%d%H%M.%S', time.gmtime(when))} {' '.join(paths)}"
        for when, paths in times.items()
    )
    bash.execute_sync("\n".join(lines))
