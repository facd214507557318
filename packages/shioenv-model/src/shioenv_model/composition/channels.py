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
    """This run made or emptied the file, so the file's times are the run's."""
    appends: bool
    """The file was opened by `>>`: output goes to the file's end, whoever else writes."""
    offset: int = 0
    """How many bytes were written to the file."""


@dataclass(slots=True, eq=False)
class Nowhere:
    """Output that is lost."""


Sink = Buffer | OpenFile | Nowhere


@dataclass(slots=True, eq=False)
class Stdin:
    """Standard input that is still to be read.

    `shared`: several commands read it, and each may leave something to the next. `endless`: more
    follows than is known. `seekable`: it is a file.
    """

    data: bytes
    piped: bool = True
    shared: bool = False
    seekable: bool = False
    endless: bool = False
    perhaps: bytes = b""
    """The bytes that may be left, where it is unknown how many were read."""
