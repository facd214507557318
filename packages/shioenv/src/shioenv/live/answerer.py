"""Models that answer inputs without executing them; a separate package provides them."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from shioenv.domain.runner import Guesser, Runner, State
from shioenv.errors import MissingExtraError
from shioenv.guests import find_guest, installed_points

if TYPE_CHECKING:
    from shioenv.live.model_shell import ModelShell

GROUP = "shioenv.answerers"
"""The entry-point group of packages that provide models: `default`, a function like `load_model`,
and `names`, a function that returns the models' names."""


class DescribedMachine(Protocol):
    """The machine that a model predicts."""

    def has_directory(self, path: str) -> bool:
        """Whether an input can start at this path, because it is a directory of the machine."""
        ...

    def state(self, cwd: str | None = None) -> State:
        """Return the initial state in a directory, by default the machine's start directory."""
        ...


class Answerer(Runner, Guesser, Protocol):
    """A model that answers any input, with a confidence."""

    @property
    def version(self) -> str:
        """The model's exact version, which every result shows."""
        ...

    @property
    def system(self) -> str | None:
        """The name of the system on which the model was trained; None if unknown."""
        ...

    @property
    def world(self) -> DescribedMachine:
        """The machine that the model predicts."""
        ...

    def session(self, cwd: str | None = None) -> ModelShell:
        """Return a shell in which the model answers each line, in the state after earlier lines."""
        ...


def load_model(
    name: str | Path | None = None,
    *,
    seq2seq: str | Path | None = None,
    stages: Runner | None = None,
    stages_name: str = "another",
    abstain_below: float = 0.0,
    world: DescribedMachine | None = None,
    without: Collection[str] = (),
) -> Answerer:
    """Return a loaded model: `load_model().run("ls -l").output`.

    Loading starts no process and needs no built system.

    - `name`: a model's name, or the path of a packed model or of its directory. The default is the
      model that comes with the package.
    - `seq2seq`: a sequence model, by name or path. It answers if its confidence exceeds that of the
      memory. A sequence model needs the extra `train`.
    - `stages`: a runner that answers commands that read a pipe (default: the model itself). Answers
      for which it was used name it as `stages_name`.
    - `abstain_below`: the model abstains below this confidence, 0 to 1 (default: never).
    - `world`: the machine to predict (default: the machine on which the model was trained).
      `world_called` returns that of a built system.
    - `without`: sources of answers that are left out: `rules`, `functions`, `records`.

    Errors: ModelError for an unknown name, with the known names, or for a file without a model.
    UsageError for an unknown source. MissingExtraError if no package for models is installed.
    """
    load = _default().load()
    model: Answerer = load(
        name, seq2seq=seq2seq, stages=stages, stages_name=stages_name,
        abstain_below=abstain_below, world=world, without=without,
    )  # fmt: skip
    return model


def model_names() -> list[str]:
    """Return the names that `load_model` takes; none if no package for models is installed."""
    names = find_guest(GROUP, "names")
    return sorted(names()) if names else []


def answerer_package() -> str:
    """Return the name of the package that holds the models' code and the default model.

    Errors: MissingExtraError if none is installed.
    """
    return _default().module.partition(".")[0]


def _default() -> EntryPoint:
    point = installed_points(GROUP).get("default")
    if point is None:
        raise MissingExtraError("a model", "model", "shioenv-model")
    return point
