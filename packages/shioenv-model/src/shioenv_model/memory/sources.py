"""The sources of a model's answers. Each can be disabled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from shioenv.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources that a model uses in addition to Bash's own rules (`composition`)."""

    rules: bool = True
    """Hand-written rules of single commands (`rules`)."""
    functions: bool = True
    """Functions induced from records (`memory.functions`)."""
    records: bool = True
    """Recorded behaviors of the same input and of similar inputs."""

    def __str__(self) -> str:
        """Return the disabled sources as a suffix of a model's version; "" if all are enabled."""
        out = [name for name, asked in asdict(self).items() if not asked]
        return f", without {' and '.join(out)}" if out else ""


ALL = Sources()
NAMES = tuple(field.name for field in fields(Sources))
"""The names of the sources."""


def without(names: Iterable[str]) -> Sources:
    """Return all sources except those with these names. Errors: UsageError for another name."""
    left_out = frozenset(names)
    for name in sorted(left_out.difference(NAMES)):
        raise UsageError(f"unknown source of answers {name!r}", hint=did_you_mean(name, NAMES))
    return Sources(**{name: name not in left_out for name in NAMES})
