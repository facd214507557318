"""bashkit: Bash and coreutils written anew in Rust, over a virtual file system.

bashkit is the strongest rule-based system that we know: a model that beats only a honeypot has
proved little.
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
from shioenv_eval.predictors.tree import ShownFile, changes, is_program, loaded

BUILT_IN = frozenset({"/", "/bin", "/dev", "/proc", "/sys"})
"""Directories that bashkit has of its own, or does not let be made."""

FAR = {"/etc": ("etc",), "/usr": ("usr", "lib", "sbin", "PATH"), "/var": ("var",)}
"""Directories that hold most files and seldom change, and what names them in a text.

Inputs that come together are checked there together.
"""

VAST = ("/usr",)
"""Directories `FAR` that take half a second to list: an input that cannot reach them is not checked
there, even alone."""

NEAR = ("/home", "/tmp", "/root", "/srv", "/opt", "/mnt", "/media", "/run", "/boot")
"""Directories where changes of each input are looked for.

Changes in what is neither `NEAR` nor `FAR` are not seen, and end with the interpreter.
"""

_ALONE = tuple(top for top in FAR if top not in VAST)

_AROUND = re.compile(
    r"\.\.|\b(?:cd|pushd|popd|eval|source)\b"
    r"|(?<![\w.*}\])-])/[\w.-]*(?:[*?\[{$'\"`\\]|(?<=/)(?:[\s;&|()<>]|\Z))"
)
"""What a text has that may lead to a directory `FAR` without its name."""

Loaded = Mapping[str, tuple[IndexEntry, bytes | None]]
Shown = dict[str, ShownFile]
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
    """A directory of the system, which every interpreter is given.

    Its files are laid out once, and put back where an input changed them.
    """

    def __init__(self, bashkit: Any, top: str, entries: Loaded) -> None:
        self._bashkit, self._top, self._entries = bashkit, top, entries
        self.lay_out()

    def lay_out(self) -> None:
        """Lays out all files anew."""
        self._files = self._bashkit.FileSystem()
        for entry in self._files.read_dir("/"):  # it begins with some of bashkit's own
            self._files.remove(f"/{entry['name']}", True)
        self._write(self._entries)
        self.pristine = self.shown()
        """The files as they were laid out; what changes the files puts them back."""

    def give(self, bash: Any) -> None:
        """Mounts the files in an interpreter."""
        bash.mount(self._top, self._files)

    def shown(self) -> Shown:
        """The files as they are now."""
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
        """Makes the files as the system has them; `shown` is how they are."""
        old = self.pristine
        if self._top not in shown or shown[self._top].kind != "directory":
            self.lay_out()
            return
        changed = sorted(path for path in {*old, *shown} if old.get(path) != shown.get(path))
        with suppress(Exception):  # bashkit's errors have no type of their own
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

    The system's directories are laid out once, and put back where an input is seen to change
    something. bashkit tells the host's time and knows no owners.
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
        self.install = (  # in a root of Debian that is there to be spoiled
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
        """The directories `FAR` that are checked whatever the input is."""
        self._unseen = False
        """Whether a question met a change that an earlier one made unseen."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What the input does in bashkit, after the history in the same interpreter."""
        behavior, changed = self._answered(shell_input, state)
        if self._always or not changed:
            return behavior
        # earlier questions were not all checked: the change may be theirs, and is put back now
        again, _ = self._answered(shell_input, state)
        self._unseen |= again.patch != behavior.patch
        return again

    def _answered(self, shell_input: str, state: State | None) -> tuple[Behavior, bool]:
        """What the input does, and whether a directory that is `FAR` had changed behind it."""
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
        patch = changes(*_differing(before, after), cwd)
        output = f"{done.stdout}{done.stderr}".encode("utf-8", "surrogateescape")
        behavior = Behavior(exit_code=done.exit_code & 0xFF, output=output, patch=patch)
        return behavior, any(
            after[top] != self._mounts[top].pristine for top in FAR if top in after
        )

    def together(self, ask: Callable[[Q], T], questions: Sequence[Q]) -> list[T]:
        """What `ask` gives for each question; it calls `run` once for each.

        What is `FAR` is looked at after each question whose text, history or start directory may
        reach it, and once behind all of them. Where it changed unseen, all are asked anew, and it
        is looked at after each. A change through a link that another question undoes stays unseen.
        The home directories are laid out anew first, since a change that leaves size and time as
        they were is not seen.
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
        """A new interpreter over the system's files as they were built, in directory `cwd`."""
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


def _shown(facts: Mapping[str, Any]) -> ShownFile:
    kind, mode = facts["file_type"], facts["mode"]
    if kind == "directory":
        return ShownFile(kind, mode, facts["modified"])
    # links have the time at which they were made
    return ShownFile(kind, mode, facts["modified"] if kind == "file" else 0.0, facts["size"])


def _reached(texts: Sequence[str]) -> tuple[str, ...]:
    """The directories `FAR` that texts may lead to."""
    if any(map(_AROUND.search, texts)):
        return tuple(FAR)
    return tuple(
        top for top, names in FAR.items() if any(name in text for name in names for text in texts)
    )


def _differing(before: Mapping[str, Shown], after: Mapping[str, Shown]) -> tuple[Shown, Shown]:
    """Of both the files of those directories in which they differ."""
    tops = [top for top in before if before[top] != after[top]]
    old, new = (
        {path: file for top in tops for path, file in one[top].items()} for one in (before, after)
    )
    return old, new


def _fill(files: Any, entries: Iterable[tuple[IndexEntry, bytes | None]], top: str = "") -> None:
    """Writes files; left out are those that bashkit refuses, such as names with newlines."""
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
        except Exception:  # bashkit's errors have no type of their own
            continue


def _date(bash: Any, entries: Iterable[tuple[IndexEntry, bytes | None]]) -> None:
    """Gives files and directories the system's times, all of one time at once."""
    times: dict[int, list[str]] = {}
    for entry, _ in entries:
        if not stat.S_ISLNK(entry.mode) and "\n" not in entry.path:
            times.setdefault(entry.mtime, []).append(quoted(entry.path))
    # bashkit takes this form in a tenth of the time that it takes for `-d @SECONDS`
    lines = (
        f"touch -t {time.strftime('%Y%m%d%H%M.%S', time.gmtime(when))} {' '.join(paths)}"
        for when, paths in times.items()
    )
    bash.execute_sync("\n".join(lines))
