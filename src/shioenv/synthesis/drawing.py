"""How inputs are drawn: the one set of settings that all callers pass on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shioenv.synthesis.samplers import HORIZON

DEFAULT_POLICY = "default"
"""The default policy of the drawing's sampler: `mixed` with `gcs`, `paper` with the others."""


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
    """The directory of own grammars (`shioenv.grammar.own`); "" for none.

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

    def but(
        self,
        *,
        seed: int | None = None,
        commands: str | Sequence[str] | None = None,
        policy: str | None = None,
    ) -> Drawing:
        """The drawing with other settings where they are given. `commands` may be one name."""
        names = (commands,) if isinstance(commands, str) else commands
        return replace(
            self,
            seed=self.seed if seed is None else seed,
            commands=self.commands if names is None else tuple(names),
            policy=self.policy if policy is None else policy,
        )
