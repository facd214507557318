"""Where output goes and where input comes from."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Buffer:
    """Output that is kept: the whole input's, or a pipe's."""

    data: bytearray = field(default_factory=bytearray)
    endless: bool = False
    """More was written than is known."""


@dataclass(slots=True, eq=False)
class OpenFile:
    """Output that goes to a file; `name` is its key in `fs`, None once it has no name."""

    path: str
    name: str | None
    fresh: bool
    """It was made or emptied by this run, so its times are the run's."""
    appends: bool
    """It was opened by `>>`: it is written to at its end, whoever else writes."""
    offset: int = 0
    """How much was written to it."""


@dataclass(slots=True, eq=False)
class Nowhere:
    """Output that is lost."""


Sink = Buffer | OpenFile | Nowhere


@dataclass(slots=True, eq=False)
class Stdin:
    """What is to be read. `shared` by several commands, who may leave something to the next."""

    data: bytes
    piped: bool = True
    shared: bool = False
    seekable: bool = False
    endless: bool = False
    perhaps: bytes = b""
    """What might be left, where it is unknown how much was read."""
