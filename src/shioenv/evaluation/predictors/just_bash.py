"""just-bash: a Bash with its commands written anew in TypeScript, over a file system in memory."""

from __future__ import annotations

import base64
import shutil
import stat
from importlib.resources import files
from pathlib import Path

from shioenv.domain.behavior import Behavior
from shioenv.domain.names import file_key
from shioenv.domain.patch import ContextPatch, Operation
from shioenv.domain.pointer import escape
from shioenv.domain.runner import State
from shioenv.errors import HostError
from shioenv.evaluation.metrics import PatchLevel
from shioenv.evaluation.predictor import Setting
from shioenv.evaluation.predictors.lines import LineProcess, installed, told
from shioenv.evaluation.predictors.tree import loaded
from shioenv.system.store import System, find_system

VERSION = "3.4.2"
"""Installed by npm into the user's cache directory on first use."""


class JustBash:
    """Answers by running inputs in it, each in an interpreter of its own with the system's files.

    It tells the host's time and knows no owners and no link counts.
    """

    patch_level = PatchLevel.FILES
    version = VERSION

    def __init__(self, setting: Setting) -> None:
        node = shutil.which("node")
        if node is None:
            raise HostError(
                "the predictor just-bash needs Node.js", hint="apt-get install nodejs npm"
            )
        directory = installed(f"just-bash-{VERSION}", _install)
        module = directory / "node_modules" / "just-bash" / "dist" / "bundle" / "index.js"
        program = files("shioenv.evaluation.predictors").joinpath("just_bash.mjs")
        self._start = setting.start
        system = find_system(setting.text or setting.system)
        words = [node, str(program), str(module)]
        self._process = LineProcess(words, {"system": _described(system)}, setting)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """What it does there. Errors: those of `LineProcess.ask`."""
        cwd = state.cwd if state else self._start
        history = list(state.history) if state else []
        said = self._process.ask({"input": shell_input, "cwd": cwd, "history": history}, dict)
        operations = [_operation(verb, path, cwd) for verb, path in said["changes"]]
        output = base64.b64decode(said["output_b64"])
        return Behavior(said["exit_code"], output, ContextPatch(tuple(operations)))

    def make_ready(self) -> None:
        """Starts it again where it has ended."""
        self._process.make_ready()

    def close(self) -> None:
        """Ends it."""
        self._process.close()


def _install(directory: Path) -> None:
    words = ("npm", "install", "--prefix", directory, "--ignore-scripts", "--no-audit", "--no-fund")
    told((*words, f"just-bash@{VERSION}"), "just-bash", cwd=directory)


def _described(system: System) -> dict[str, object]:
    """The system's files as the program takes them."""
    found: list[list[object]] = []
    for entry, content in loaded(system):
        mode = stat.S_IMODE(entry.mode)
        if stat.S_ISLNK(entry.mode):
            found.append([entry.path, "symlink", mode, entry.mtime, entry.target])
        elif content is None:
            found.append([entry.path, "directory", mode, entry.mtime, ""])
        else:
            encoded = base64.b64encode(content).decode()
            found.append([entry.path, "file", mode, entry.mtime, encoded])
    for path, content in system.shown_in_proc().items():
        found.append([path, "file", 0o444, 0, base64.b64encode(content).decode()])
    return {"files": found, "environment": dict(system.declaration.session.environment)}


def _operation(verb: str, path: str, cwd: str) -> Operation:
    name = file_key(path.encode("utf-8", "surrogateescape"), cwd.encode())
    pointer = f"/fs/{escape(name)}"
    if verb == "removed":
        return ("r", pointer)
    return ("a", pointer, {}) if verb == "added" else ("=", f"{pointer}/content", True)
