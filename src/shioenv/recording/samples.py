"""A sample turned into a record of a dataset."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from random import Random
from typing import Protocol

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input, Session
from shioenv.domain.record import Record
from shioenv.irreducibility.score import Cache
from shioenv.irreducibility.scoring import Scoring
from shioenv.recording.session import Runner, record_session
from shioenv.synthesis.sample import Sample

_START = re.compile(r"cd[ \t]+((?:'[^']*'|\"'\"|[^\s;'\"\\])+)[ \t]*;\s*(?=\S)")
"""A `cd` with one word as `shlex.quote` writes it, and something after it."""


class Built(Protocol):
    """What a dataset needs to know of a system."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def digest(self) -> str:
        """Equal digests: the same inputs do the same things."""
        ...


class Scene(Runner, Protocol):
    """A runner that says of which system."""

    @property
    def system(self) -> Built:
        """Where inputs run."""
        ...


class Observer(Scene, Protocol):
    """One that tells what its runs took, and can be closed."""

    @property
    def seconds(self) -> float:
        """How long everything executed so far took by itself."""
        ...

    @property
    def waited(self) -> bool:
        """Whether the newest run ran out of time in its sleep."""
        ...

    def close(self) -> None:
        """Ends it."""
        ...


def session_text(cwd: str, shell_input: Input) -> str:
    """What a record calls its input; without the `cd` where it is unknown where the input ran."""
    return Session(cwd, (shell_input,)).text if cwd else shell_input.text


def without_start(text: str) -> tuple[str, str]:
    """The start directory that an input's leading `cd` names, and the input without it.

    The directory is "" and the input whole where the `cd` could not be put before it again by the
    directory's name alone: `cd ~; ls` goes elsewhere than `cd '~'; ls`.
    """
    found = _START.match(text)
    if found is not None:
        directory = "".join(shlex.split(found[1]))
        if directory and shlex.quote(directory) == found[1]:
            return directory, text[found.end() :]
    return "", text


def record(
    sample: Sample,
    session_id: int,
    observer: Scene,
    scoring: Scoring,
    rng: Random,
    *,
    sampler: str,
    alone: Callable[[Callable[[], Behavior]], Behavior] = lambda run: run(),
    cache: Cache | None = None,
) -> Record:
    """The sample as a session of one row, executed and scored: see `record_session`."""
    made, _ = record_session(
        Session(sample.cwd, (sample.input,)),
        observer,
        session_id=session_id,
        system=observer.system.name,
        sampler=sampler,
        scoring=scoring,
        rng=rng,
        volatile=sample.volatile,
        alone=alone,
        cache=cache,
    )
    return made
