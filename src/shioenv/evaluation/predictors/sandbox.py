"""The machine itself as a predictor: the ceiling of every suite."""

from __future__ import annotations

import posixpath
import stat
from dataclasses import dataclass

from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import State
from shioenv.evaluation.metrics import PatchLevel
from shioenv.evaluation.predictor import Setting
from shioenv.system.store import System

FRONT = "/usr/local/bin"
"""The directory of a system's PATH in which another implementation stands in front of GNU's."""


@dataclass(frozen=True, slots=True)
class InFront:
    """A program of a package that goes by the names of many others in `FRONT`."""

    path: str
    names: tuple[str, ...]
    package: str
    version: str

    @property
    def install(self) -> str:
        """A line of shell that installs just this version."""
        return f"apt-get install {quoted(f'{self.package}={self.version}')}"

    @property
    def shell(self) -> str:
        """The shell's words that run an input by Bash with the program in front."""
        names = " ".join(map(quoted, self.names))
        program = (
            f"front=$(mktemp -d); for name in {names}; do "
            f'ln -s {quoted(self.path)} "$front/$name"; done; '
            'PATH="$front:$PATH" exec bash --norc --noprofile -c "$1"'
        )
        return f"bash -c {quoted(program)} front"


def in_front(system: System) -> InFront | None:
    """The program that most links of `FRONT` lead to; None where it is of no package of Debian."""
    names: dict[str, list[str]] = {}
    for path, entry in sorted(system.index.items()):
        if posixpath.dirname(path) == FRONT and stat.S_ISLNK(entry.mode):
            names.setdefault(system.resolve(path) or "", []).append(posixpath.basename(path))
    names.pop("", None)
    if not names:
        return None
    program = max(names, key=lambda path: len(names[path]))
    paths = {program, program.removeprefix("/usr")}  # packages may name what a link of / leads to
    for package, version in system.packages.items():
        listed = f"/var/lib/dpkg/info/{package}.list"
        files = system.read(listed) if listed in system.index else None
        if files and not paths.isdisjoint(files.decode("utf-8", "replace").splitlines()):
            return InFront(program, tuple(names[program]), package, version)
    return None


class SandboxPredictor:
    """Answers by running inputs on the pristine system."""

    patch_level = PatchLevel.FULL

    def __init__(self, runner: SandboxRunner) -> None:
        self._runner = runner
        self.version = f"{runner.system.name} {runner.system.digest[:12]}"
        self.install = f"shioenv system build {quoted(runner.system.name)}"
        self.shell = ""
        other = in_front(runner.system)
        if other is not None:
            self.version += f", {other.package} {other.version}"
            self.install, self.shell = other.install, other.shell

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What the input does on the machine."""
        return self._runner.run(shell_input, state)

    def close(self) -> None:
        """Closes the sandbox."""
        self._runner.close()


def sandbox(setting: Setting) -> SandboxPredictor:
    """The predictor `sandbox`, or `sandbox:SYSTEM` for another system than the suite's."""
    return SandboxPredictor(open_sandbox(setting.text or setting.system))
