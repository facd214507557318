"""A program in any language as a predictor, asked over its standard input and output."""

from __future__ import annotations

import hashlib
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

from shioenv.domain.answers import answer_from
from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel, Setting
from shioenv.domain.runner import Answer, State
from shioenv.errors import PredictorError, ShioenvError
from shioenv.system.store import find_system
from shioenv_eval.predictors.lines import LineProcess
from shioenv_eval.predictors.tree import laid_out


class CommandPredictor:
    """The predictor `command:PROG ARGS`: a line of JSON in for each input, a line of JSON out.

    A question has `input`, `cwd` and `history`. The program is started once and asked about one
    input at a time. What it writes on standard error is shown to the user.

    The first line asks the program who it is: `{"hello": true, "root": DIR}`. Below DIR lie the
    files of the pristine system (`laid_out`). There is no `root` where the system is not built
    here. The answer is a JSON object. It may have `version`, `patch_level`, `install` and
    `shell`, as `Ready` has them. It may have `training`: a dataset, or a file of the inputs that
    the program was trained on. Errors: PredictorError for a text that is no command, or another
    answer to the first line. Those of `LineProcess`.
    """

    def __init__(self, setting: Setting) -> None:
        try:
            self._words = shlex.split(setting.text)
        except ValueError as error:
            raise PredictorError(f"{setting.text!r} is no command: {error}") from None
        if not self._words:
            raise PredictorError("no program is named", hint="command:./predict.py")
        self._start = setting.start
        self.version, self.patch_level = _version(self._words), PatchLevel.FULL.value
        self.training = self.install = self.shell = ""
        first = {"hello": True, **_root(setting.system)}
        self._process = LineProcess(self._words, first, setting)
        try:
            self.version = self._said("version", self.version)
            self.patch_level = self._said("patch_level", self.patch_level)
            self.training = self._said("training", "")
            self.install = self._said("install", "")
            self.shell = self._said("shell", "")
        except PredictorError:
            self.close()
            raise

    def _said(self, name: str, default: str) -> str:
        """What the program says of itself by this name; `default` where it says nothing.

        Errors: PredictorError where that is no printable text.
        """
        said = self._process.hello.get(name)
        if said is None:
            return default
        if not isinstance(said, str) or not said.isprintable():
            raise PredictorError(
                f"{self._words[0]} answered its first line with a {name} that is no text: "
                f"{said!r:.60}"
            )
        return said

    def answer(self, shell_input: str, state: State | None = None) -> Answer:
        """The program's answer. Errors: Abstained, AnswerError; those of `LineProcess.ask`."""
        question: dict[str, object] = {
            "input": shell_input,
            "cwd": state.cwd if state else self._start,
            "history": list(state.history) if state else [],
        }
        return self._process.ask(question, answer_from)

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """The behavior alone."""
        return self.answer(shell_input, state).behavior

    def make_ready(self) -> None:
        """Starts the program again where it has ended. Errors: PredictorError."""
        self._process.make_ready()

    def close(self) -> None:
        """Ends the program."""
        self._process.close()


def _root(system: str) -> dict[str, str]:
    """The directory with the pristine files, for the first line; none where it is unknown.

    A suite may be of a system that is built elsewhere.
    """
    try:
        built = find_system(system)
    except ShioenvError:
        return {}
    return {"root": str(laid_out(built))}


def _version(words: list[str]) -> str:
    """The program's name, and a digest of the program and of the script that is its first argument.

    Once one of the two is changed, it is another predictor.
    """
    digest = hashlib.sha256()
    for word in words[:2]:
        path = Path(shutil.which(word) or word)
        with suppress(OSError):
            if path.is_file():  # no device, which has no end
                with path.open("rb") as file:
                    while piece := file.read(1 << 20):
                        digest.update(piece)
    return f"{Path(words[0]).name} {digest.hexdigest()[:12]}"
