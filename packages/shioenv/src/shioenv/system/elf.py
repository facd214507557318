"""Read 64-bit ELF files: program headers, sections and dynamic symbols.

Sources: the System V ABI, and elf(5).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

LOADED, NOTE, PROPERTY, EXECUTABLE = 1, 4, 0x6474E553, 5
FUNCTION = 2
SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_VERSION_DEFINITION = struct.Struct("<4H3I")
_DYNAMIC_SYMBOLS, _VERSION_DEFINITIONS, _VERSIONS = 11, 0x6FFFFFFD, 0x6FFFFFFF
_HIDDEN = 0x8000


class Symbol(NamedTuple):
    """An entry of a dynamic symbol table."""

    name: str
    at: int
    """Offset of the entry in the file."""
    info: int
    value: int
    default: bool
    """Whether this is the default version of the symbol, which new programs link to."""
    version: str
    """Name of the symbol's version, such as `GLIBC_2.33`; empty without one."""


class Section(NamedTuple):
    """A section header."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def segments(elf: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the offset and the fields, in file order, of each program header.

    Errors: struct.error if the file is truncated.
    """
    start, size, number = (
        struct.unpack_from(layout, elf, at)[0]
        for layout, at in (("<Q", 32), ("<H", 54), ("<H", 56))
    )
    for at in range(start, start + size * number, size):
        yield at, SEGMENT.unpack_from(elf, at)


def first_segment(elf: bytes) -> bytes:
    """Return the bytes of the first load segment. Errors: struct.error, StopIteration."""
    start, size = next((row[2], row[5]) for _, row in segments(elf) if row[0] == LOADED)
    return elf[start : start + size]


def sections(elf: bytes) -> dict[str, Section]:
    """Return the sections by name. Errors for a damaged file: struct.error, ValueError."""
    found = _headers(elf)
    names = found[struct.unpack_from("<H", elf, 62)[0]].offset
    return {_text(elf, names + one.name): one for one in found}


def symbols(elf: bytes) -> Iterator[Symbol]:
    """Yield the defined dynamic symbols; none if the file has no dynamic symbol table."""
    found = _headers(elf)
    table = next((one for one in found if one.kind == _DYNAMIC_SYMBOLS), None)
    if table is None:
        return
    names = found[table.link].offset
    versions = next((one.offset for one in found if one.kind == _VERSIONS), None)
    defined = dict(_version_names(elf, found))
    for number, at in enumerate(range(table.offset, table.offset + table.size, _SYMBOL.size)):
        name, info, _, section, value, _ = _SYMBOL.unpack_from(elf, at)
        if not section:
            continue
        version = struct.unpack_from("<H", elf, versions + 2 * number)[0] if versions else 0
        named = defined.get(version & ~_HIDDEN, "")
        yield Symbol(_text(elf, names + name), at, info, value, not version & _HIDDEN, named)


def _version_names(elf: bytes, found: Sequence[Section]) -> Iterator[tuple[int, str]]:
    """Yield the index and the name of each symbol version that the file defines."""
    for section in found:
        at = section.offset
        for _ in range(section.info if section.kind == _VERSION_DEFINITIONS else 0):
            _, _, index, _, _, names, following = _VERSION_DEFINITION.unpack_from(elf, at)
            (name,) = struct.unpack_from("<I", elf, at + names)
            yield index, _text(elf, found[section.link].offset + name)
            at += following


def _headers(elf: bytes) -> list[Section]:
    start, size, number = (
        struct.unpack_from(layout, elf, at)[0]
        for layout, at in (("<Q", 40), ("<H", 58), ("<H", 60))
    )
    return [Section(*_SECTION.unpack_from(elf, start + size * n)) for n in range(number)]


def _text(elf: bytes, at: int) -> str:
    return elf[at : elf.index(0, at)].decode()
