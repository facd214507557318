"""A program in any language as a predictor, over its standard input and output."""

from __future__ import annotations

import hashlib
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import Answer, State
from shioenv.errors import PredictorError, ShioenvError
from shioenv.system.store import find_system
from shioenv_eval.predictors.line_program import LineProcess
from shioenv_eval.predictors.recording import answer_from
from shioenv_eval.predictors.tree import pristine_directory


class CommandPredictor:
    """The predictor `command:PROG ARGS`: one JSON line in and one JSON line out for each input.

    A question has `input`, `cwd` and `history`. The program is started once and asked about one
    input at a time. Its standard error is shown to the user.

    The first line asks the program to identify itself: `{"hello": true, "root": DIR}`. DIR contains
    the files of the pristine system (`pristine_directory`). `root` is absent if the system is not
    built here. The answer is a JSON object with optional `version`, `patch_level`, `install` and
    `shell`, as in `Ready`. It may have `training`: a dataset, or a file of the inputs that the
    program was trained on. Errors: PredictorError for a text that is not a command, or an invalid
    answer to the first line. The errors of `LineProcess` are raised too.
    """

    def __init__(self, setting: Setting) -> None:
        try:
            self._words = shlex.split(setting.text)
        except ValueError as error:
            raise PredictorError(f"cannot parse the command {setting.text!r}: {error}") from None
        if not self._words:
            raise PredictorError(
                "command: lacks a program", hint="for example command:./predict.py"
            )
        self._start = setting.start
        self.version, self.patch_level = _version(self._words), PatchLevel.FULL.value
        self.training = self.install = self.shell = ""
        first = {"hello": True, **_root(setting.system)}
        self._process = LineProcess(self._words, first, setting)
        try:
            self.version = self._hello_field("version", self.version)
            self.patch_level = self._hello_field("patch_level", self.patch_level)
            self.training = self._hello_field("training", "")
            self.install = self._hello_field("install", "")
            self.shell = self._hello_field("shell", "")
        except PredictorError:
            self.close()
            raise

    def _hello_field(self, name: str, default: str) -> str:
        """Return a field of the program's answer to the first line; `default` if it is missing.

        Errors: PredictorError if it is not printable text.
        """
        said = self._process.hello.get(name)
        if said is None:
            return default
        if not isinstance(said, str) or not said.isprintable():
            raise PredictorError(
                f"{self._words[0]}: `{name}` in the answer to the first line is not printable "
                f"text: {said!r:.60}"
            )
        return said

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """Return the program's answer.

        Errors: Abstained, AnswerError; those of `LineProcess.ask`.
        """
        question: dict[str, object] = {
            "input": shell_input,
            "cwd": state.cwd if state else self._start,
            "history": list(state.history) if state else [],
        }
        return self._process.ask(question, answer_from)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return only the behavior of the answer."""
        return self.answer(shell_input, state).behavior

    def make_ready(self) -> None:
        """Restart the program if it has ended. Errors: PredictorError."""
        self._process.make_ready()

    def close(self) -> None:
        """End the program."""
        self._process.close()


def _root(system: str) -> dict[str, str]:
    """Return the directory of the pristine files, for the first line; empty if it is unknown.

    A suite may be of a system that is built elsewhere.
    """
    try:
        built = find_system(system)
    except ShioenvError:
        return {}
    return {"root": str(pristine_directory(built))}


def _version(words: list[str]) -> str:
    """Return the program's name, and a digest of its file and of a script in its first argument.

    If either file changes, it is a different predictor.
    """
    digest = hashlib.sha256()
    for word in words[:2]:
        path = Path(shutil.which(word) or word)
        with suppress(OSError):
            if path.is_file():  # not a device, which may be endless
                with path.open("rb") as file:
                    while piece := file.read(1 << 20):
                        digest.update(piece)
    return f"{Path(words[0]).name} {digest.hexdigest()[:12]}"
