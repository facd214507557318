"""The predictor just-bash: Bash reimplemented in TypeScript, with an in-memory file system."""

from __future__ import annotations

import base64
import shutil
import stat
from importlib.resources import files
from pathlib import Path

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import State
from shioenv.errors import HostError
from shioenv.system.store import System, find_system
from shioenv_eval.predictors.line_program import LineProcess, installed, run_installer
from shioenv_eval.predictors.tree import changed_file, is_program, loaded

VERSION = "3.4.2"
"""The version that npm installs into the user's cache directory on first use."""


class JustBash:
    """Answers by running inputs in just-bash, each in a new interpreter with the system's files.

    just-bash uses the host's clock and does not model owners or link counts.
    """

    patch_level = PatchLevel.FILES
    version = VERSION
    install = f"npm install --global just-bash@{VERSION}"
    shell = 'just-bash --root "$PWD" --allow-write -c'

    def __init__(self, setting: Setting) -> None:
        node = shutil.which("node")
        if node is None:
            raise HostError(
                "the predictor just-bash needs Node.js", hint="apt-get install nodejs npm"
            )
        directory = installed(f"just-bash-{VERSION}", _install)
        module = directory / "node_modules" / "just-bash" / "dist" / "bundle" / "index.js"
        program = files("shioenv_eval.predictors").joinpath("just_bash.mjs")
        self._start = setting.start
        system = find_system(setting.text or setting.system)
        words = [node, str(program), str(module)]
        self._process = LineProcess(words, {"system": _described(system)}, setting)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return the input's behavior in just-bash. Errors: those of `LineProcess.ask`."""
        cwd = state.cwd if state else self._start
        history = list(state.history) if state else []
        said = self._process.ask({"input": shell_input, "cwd": cwd, "history": history}, dict)
        operations = [changed_file(verb, path, cwd) for verb, path in said["changes"]]
        output = base64.b64decode(said["output_b64"])
        return Behavior(said["exit_code"], output, ContextPatch(tuple(operations)))

    def make_ready(self) -> None:
        """Restart the program if it has ended. Errors: PredictorError."""
        self._process.make_ready()

    def close(self) -> None:
        """End the program."""
        self._process.close()


def _install(directory: Path) -> None:
    words = ("npm", "install", "--prefix", directory, "--ignore-scripts", "--no-audit", "--no-fund")
    run_installer((*words, f"just-bash@{VERSION}"), "just-bash", cwd=directory)


def _described(system: System) -> dict[str, object]:
    """Return the system's files and environment in the format of `just_bash.mjs`.

    A file is path, kind, permission bits, time in seconds since 1970, and content in base64 or
    target. Programs are left out, as for bashkit.
    """
    found: list[list[object]] = []
    for entry, content in loaded(system):
        if is_program(entry, content):
            continue
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
