"""The settings for drawing inputs, shared by all callers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack, cast

from shioenv.errors import UsageError
from shioenv.synthesis.samplers import HORIZON
from shioenv.text import short_repr

DEFAULT_POLICY = "default"
"""The sampler's default policy: `mixed` for `gcs`, `paper` for the others."""


class DrawingSettings(TypedDict, total=False):
    """Settings of a `Drawing` as keyword arguments of functions that draw."""

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
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """The settings of a stream of samples. Settings, grammars and system determine the stream.

    The names are those of the command line and of manifests; `sample` validates them.
    """

    sampler: str = "gcs"
    """`gcs`, `ucs` or `ucs-universal`."""
    policy: str = DEFAULT_POLICY
    """The sampler's policy, a name for `settings_named`.

    In a manifest it may be `file:` and the SHA-256 of a file's settings. `default` is resolved by
    `chosen_policy`, once the sampler is known."""
    seed: int = 0
    """Seed for inputs and for the sub-inputs that are scored."""
    commands: tuple[str, ...] = ()
    """Names of grammars, and of sets of them (`shioenv.grammar.library.SETS`).

    The default is the paper's 86 and all user-supplied ones. In a manifest it lists the names of
    all grammars used."""
    own_grammars: str = ""
    """The directory of user-supplied grammars (`shioenv.grammar.library`); "" for none.

    In a manifest it is `sha256:` and the digest of the directory's grammars."""
    start_directories: tuple[str, ...] = ()
    """Start directories; each input draws one. Default: the system's own."""
    horizon: int = HORIZON
    """Maximum number of arguments of one command, at least 1."""
    composite_share: float = 0.25
    """Share of drawn inputs that are composed of several commands, 0 to 1."""
    max_segments: int = 3
    """Maximum number of commands of an input composed by operator weights, at least 1.

    Inputs whose shape (commands and operators) comes from the usage table may have six commands. A
    `max_segments` below 3 limits them too."""
    mistakes: float = 0.0
    """Share of inputs with a mistake, 0 to 1 (`shioenv.synthesis.mistakes`)."""
    session_length: int = 1
    """Number of inputs of one session, 1 to 32, typed in sequence in the same shell.

    The earlier inputs are the history of a later one. This is the paper's horizon G
    (`shioenv.synthesis.row_sessions`)."""
    part: str = ""
    """The part `I/N` of the stream that is drawn, with I from 1 to N; "" for all of it."""

    @property
    def chosen_policy(self) -> str:
        """The policy, with the default resolved for the sampler."""
        if self.policy != DEFAULT_POLICY:
            return self.policy
        return "mixed" if self.sampler == "gcs" else "paper"

    @property
    def plain(self) -> bool:
        """Whether the inputs have neither mistakes nor a history."""
        return not self.mistakes and self.session_length == 1

    @property
    def numbered_part(self) -> tuple[int, int]:
        """The number of the part, from 1, and of all parts. UsageError for an invalid part."""
        number, _, parts = (self.part or "1/1").partition("/")
        if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
            raise UsageError(f"invalid part {self.part!r}", hint="give I/N: 1/8, 2/8 to 8/8")
        return int(number), int(parts)

    def __repr__(self) -> str:
        return short_repr(self)

    def but(self, **settings: Unpack[DrawingSettings]) -> Drawing:
        """Return the drawing with changed settings. `commands` may be a single name.

        Errors: TypeError for a setting that does not exist.
        """
        several = {
            name: (given,) if isinstance(given, str) else tuple(given)
            for name in ("commands", "start_directories")
            if (given := cast("str | Sequence[str] | None", settings.get(name))) is not None
        }
        return replace(self, **{**settings, **several})  # type: ignore[arg-type]
