"""Reference predictors: constant answers as the floor, the machine itself as the ceiling."""

from __future__ import annotations

import posixpath
import stat
from dataclasses import dataclass

from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import State
from shioenv.system.store import System
from shioenv_eval.places import utilities


class Trivial:
    """Predicts no output, no change and exit code 0 for every input."""

    version = "1"
    patch_level = PatchLevel.FULL

    def __init__(self, setting: Setting) -> None:
        pass

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return exit code 0, no output and no patch."""
        return Behavior(exit_code=0, output=b"")


class Errors:
    """Predicts for every input that its first command is not found."""

    version = "1"
    patch_level = PatchLevel.FULL

    def __init__(self, setting: Setting) -> None:
        pass

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return exit code 127 and Bash's error message for the input's first command."""
        name = next(iter(utilities(shell_input)), shell_input.split(" ")[0])
        said = f"bash: line 1: {name}: command not found\n"
        return Behavior(exit_code=127, output=said.encode("utf-8", "surrogateescape"))


@dataclass(frozen=True, slots=True)
class InPlace:
    """A program that stands in for many others, by links with their names (like BusyBox)."""

    path: str
    names: tuple[str, ...]
    package: str
    version: str

    @property
    def install(self) -> str:
        """A shell command that installs exactly this version."""
        return f"apt-get install {quoted(f'{self.package}={self.version}')}"

    @property
    def shell(self) -> str:
        """The shell words that run an input in Bash, with the program's names first in PATH."""
        names = " ".join(map(quoted, self.names))
        program = (
            f"front=$(mktemp -d); for name in {names}; do "
            f'ln -s {quoted(self.path)} "$front/$name"; done; '
            'PATH="$front:$PATH" exec bash --norc --noprofile -c "$1"'
        )
        return f"bash -c {quoted(program)} front"


def in_place(system: System) -> InPlace | None:
    """Return the program that replaces the most files of other packages by links.

    None if no link of the system replaces a package's file.
    """
    files = _files_of_packages(system)
    names: dict[str, list[str]] = {}
    for path, entry in sorted(system.index.items()):
        if path in files and stat.S_ISLNK(entry.mode):
            program = system.resolve(path)
            if program in files and files[program] != files[path]:
                names.setdefault(program, []).append(posixpath.basename(path))
    if not names:
        return None
    program = max(names, key=lambda path: len(names[path]))
    package = files[program]
    return InPlace(program, tuple(names[program]), package, system.packages[package])


def _files_of_packages(system: System) -> dict[str, str]:
    """Map the resolved path of each file, except links, to the file's package."""
    found = {}
    for package in system.packages:
        listed = f"/var/lib/dpkg/info/{package}.md5sums"
        if listed in system.index:
            for line in system.read(listed).decode("utf-8", "replace").splitlines():
                path = f"/{line.partition('  ')[2]}"
                directory = system.resolve(posixpath.dirname(path))  # /bin leads to /usr/bin
                found[posixpath.join(directory or "", posixpath.basename(path))] = package
    return found


class SandboxPredictor:
    """Answers by running inputs on the pristine system."""

    patch_level = PatchLevel.FULL

    def __init__(self, runner: SandboxRunner) -> None:
        self._runner = runner
        self.version = f"{runner.system.name} {runner.system.digest[:12]}"
        self.install = f"shioenv system build {quoted(runner.system.name)}"
        self.shell = ""
        other = in_place(runner.system)
        if other is not None:
            self.version += f", {other.package} {other.version}"
            self.install, self.shell = other.install, other.shell

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return the input's behavior on the machine."""
        return self._runner.run(shell_input, state)

    def close(self) -> None:
        """Close the sandbox."""
        self._runner.close()


def sandbox(setting: Setting) -> SandboxPredictor:
    """Create the predictor `sandbox`, or `sandbox:SYSTEM` for a system other than the suite's."""
    return SandboxPredictor(open_sandbox(setting.text or setting.system))
