"""How inputs are drawn: the one set of settings that all callers pass on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack, cast

from shioenv.synthesis.samplers import HORIZON

DEFAULT_POLICY = "default"
"""The default policy of the drawing's sampler: `mixed` with `gcs`, `paper` with the others."""


class DrawingSettings(TypedDict, total=False):
    """Settings of a `Drawing` as keyword arguments of the functions that draw."""

    sampler: str
    policy: str
    seed: int
    commands: str | Sequence[str]
    own_grammars: str
    start_directories: str | Sequence[str]
    horizon: int
    composite_share: float
    max_segments: int
    mistakes: float
    session_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """What decides a stream of samples, beside the grammars and the system.

    The names are those of the command line and of manifests; `sample` checks them.
    """

    sampler: str = "gcs"
    """`gcs`, `ucs` or `ucs-universal`."""
    policy: str = DEFAULT_POLICY
    """How the sampler chooses: a name that `settings_named` takes.

    In a manifest it may be `file:` and the SHA-256 of a file's settings. `default` is resolved by
    `chosen_policy`, once the sampler is known."""
    seed: int = 0
    """Seed of everything drawn: inputs, and the sub-inputs that are scored."""
    commands: tuple[str, ...] = ()
    """Names of grammars, and of sets of them (`shioenv.grammar.library.SETS`).

    None named: the paper's 86, and all own ones. In a manifest it is the names of all grammars."""
    own_grammars: str = ""
    """The directory of own grammars (`shioenv.grammar.library`); "" for none.

    In a manifest it is `sha256:` and the digest of the directory's grammars."""
    start_directories: tuple[str, ...] = ()
    """Where inputs start; each input draws one of them. None named: the system's own."""
    horizon: int = HORIZON
    """Arguments of one command at most, at least 1."""
    composite_share: float = 0.25
    """Share of draws that are composed of several commands, 0 to 1."""
    max_segments: int = 3
    """Commands of one input at most, at least 1, where operators' weights compose it.

    A shape that people write may have six commands. Where `max_segments` is less than 3, it has no
    more than that either."""
    mistakes: float = 0.0
    """Share of inputs that get a mistake, 0 to 1 (`shioenv.synthesis.mistakes`)."""
    session_length: int = 1
    """Inputs of one session, 1 to 32, typed one after the other in the same shell.

    The inputs typed before another are its history. The paper's horizon G
    (`shioenv.synthesis.rows`)."""

    @property
    def chosen_policy(self) -> str:
        """The policy, or the sampler's own where `policy` is the default."""
        if self.policy != DEFAULT_POLICY:
            return self.policy
        return "mixed" if self.sampler == "gcs" else "paper"

    def but(self, **settings: Unpack[DrawingSettings]) -> Drawing:
        """The drawing with other settings. `commands` may be one name as a text.

        Errors: TypeError for a setting that does not exist.
        """
        several = {
            name: (given,) if isinstance(given, str) else tuple(given)
            for name in ("commands", "start_directories")
            if (given := cast("str | Sequence[str] | None", settings.get(name))) is not None
        }
        return replace(self, **{**settings, **several})  # type: ignore[arg-type]
