"""What a system's own C library answers in place of the host's kernel: the declared clock and the
declared kernel's names, by the code of `native/library/answers.c`.

Every program asks the C library. That library's text ends within a page of memory, and what is left
of the page is where the code is written to; then the names of the functions that tell the time,
show the times of files or name the kernel lead there. The file's size, the order of everything in
it and what its other functions do stay as they were, nothing is loaded in addition, and no file,
variable or mount tells programs about it. The code is shipped compiled; filled in are the declared
moments and names and where the library's own functions lie, so the same library gives the same
bytes.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, NamedTuple

from shioenv import native
from shioenv.system.declare import SystemDeclaration
from shioenv.system.image import ImageEntry, content

TRIED = ("2.36", "2.41")
"""Versions of glibc with which programs were seen to keep to it: Debian 12's and 13's."""

_LIBRARY = re.compile(r"(usr/)?lib/x86_64-linux-gnu/libc\.so\.6")
_DIGESTS = "var/lib/dpkg/info/libc6:amd64.md5sums"
_VERSION = re.compile(rb"GNU C Library [^\n]* version (\d+\.\d+)\.")
_PAGE = 4096

_ORIGINALS = ("clock_gettime", "pthread_cond_timedwait", "recvmsg", "__errno_location")
"""Functions of the library that the code calls, in the order of `struct facts`."""
_WITHOUT_CLOCK = frozenset({"uname"})
"""Functions of the code that are used where the clock is declared to be the host's."""
_FACTS = struct.Struct("<2q4q")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_LOADED, _EXECUTABLE, _DYNAMIC_SYMBOLS, _VERSIONS = 1, 1, 11, 0x6FFFFFFF
_FUNCTION, _HIDDEN = 2, 0x8000


@dataclass(frozen=True, slots=True)
class Answers:
    """What the programs of a built system are told, as its record says."""

    clock: str
    """`declared`: the declared instant, going on from it in each run; `host`: the host's time."""
    kernel: str
    """`declared`: the declared kernel's release and version; `host`: those of the host's."""
    why: str = ""
    """Why something is the host's; empty where nothing is."""
    glibc: str = ""
    """Version of the C library that holds the answers; empty where it holds none."""


class _UnfitError(ValueError):
    """The library cannot hold the code; the text says why."""


class _Symbol(NamedTuple):
    """An entry of a dynamic symbol table."""

    name: str
    at: int
    """Where the entry lies in the file."""
    info: int
    value: int
    default: bool
    """Of several versions of a name, the one that programs are linked with today."""


def install(
    declaration: SystemDeclaration, entries: Sequence[ImageEntry], base: IO[bytes]
) -> tuple[list[ImageEntry], Answers, dict[str, bytes]]:
    """The entries with the code in the C library; what programs are told; and by their paths the
    contents of the files that are others now, as they were before.

    These are the library and the digest that the package manager keeps of it. Where the code cannot
    be there the entries are as they were.
    """
    result, changed = list(entries), dict[str, bytes]()
    try:
        found = [at for at, entry in enumerate(result) if _LIBRARY.fullmatch(entry.path)]
        if not found:
            raise _UnfitError("it has no C library for x86-64 where Debian keeps it")
        library = result[found[0]]
        before = content(library, base)
        after, version = _with_answers(before, native.answers_code(), declaration)
    except _UnfitError as unfit:
        return result, Answers("host", "host", str(unfit)), changed
    changed[library.path] = before
    result[found[0]] = replace(library, data=after)
    old, new = (hashlib.md5(data, usedforsecurity=False).hexdigest() for data in (before, after))
    for at, entry in enumerate(result):
        if entry.path == _DIGESTS:
            changed[entry.path] = listed = content(entry, base)
            result[at] = replace(entry, data=listed.replace(old.encode(), new.encode()))
    why = "its declaration says so" if declaration.clock == "host" else ""
    return result, Answers(declaration.clock, "declared", why, version), changed


def source_digest() -> str:
    """sha256 of the code as it is written, whatever a compiler made of it."""
    return hashlib.sha256(native.answers_source()).hexdigest()


def _with_answers(
    library: bytes, compiled: bytes, declaration: SystemDeclaration
) -> tuple[bytes, str]:
    """A copy of the library that holds the code, and its version.

    Raises _UnfitError where it cannot.
    """
    if library[:5] != b"\x7fELF\x02" or library[18:20] != compiled[18:20]:
        raise _UnfitError("its C library is for another processor than this package")
    found = _VERSION.search(library)
    version = found[1].decode() if found else "unknown"
    if version not in TRIED:
        raise _UnfitError(f"its glibc is {version}, and what was tried is {' and '.join(TRIED)}")
    code, functions = _code(compiled)
    if declaration.clock == "host":
        functions = {name: functions[name] for name in _WITHOUT_CLOCK}
    kernel = declaration.machine.kernel
    code += f"{kernel.release}\0{kernel.version}\0".encode()
    header, file_start, address, room = _padding(library)
    if len(code) > room:
        raise _UnfitError(f"its C library has {room} bytes to spare of the {len(code)} needed")
    if any(library[file_start : file_start + room]):
        raise _UnfitError("the end of its C library's text is in use")
    symbols = list(_symbols(library))
    own = {symbol.name: symbol.value for symbol in symbols if symbol.default}
    if missing := [name for name in _ORIGINALS if name not in own]:
        raise _UnfitError(f"its C library has no {missing[0]}")
    moments = (int(when.timestamp()) for when in (declaration.instant, declaration.boot_time))
    facts = _FACTS.pack(*moments, *(own[name] - address for name in _ORIGINALS))
    result = bytearray(library)
    result[file_start : file_start + len(code)] = facts + code[_FACTS.size :]
    offset = struct.unpack_from("<Q", library, header + 8)[0]
    size = file_start + len(code) - offset
    struct.pack_into("<QQ", result, header + 32, size, size)
    for symbol in symbols:
        # of a name with a default, older versions may be called otherwise: they stay
        if symbol.name in functions and (symbol.default or symbol.name not in own):
            result[symbol.at + 4] = symbol.info & 0xF0 | _FUNCTION
            struct.pack_into("<Q", result, symbol.at + 8, address + functions[symbol.name])
    return bytes(result), version


def _code(compiled: bytes) -> tuple[bytes, dict[str, int]]:
    """The compiled code, its facts first, and where in it the functions are, by name."""
    functions = {symbol.name: symbol.value for symbol in _symbols(compiled)}
    start, size = next((row[2], row[5]) for _, row in _segments(compiled) if row[0] == _LOADED)
    return compiled[start : start + size], functions


def _padding(library: bytes) -> tuple[int, int, int, int]:
    """What is left of the last page of text: where its program header and the free bytes lie in the
    file, the address of these, and how many there are.
    """
    loaded = [(at, row) for at, row in _segments(library) if row[0] == _LOADED]
    text = next((n for n, (_, row) in enumerate(loaded) if row[1] & _EXECUTABLE), None)
    if text is None or text + 1 == len(loaded):
        raise _UnfitError("its C library is laid out in another way")
    at, (_, _, offset, address, _, size, memory, _) = loaded[text]
    following = loaded[text + 1][1]
    start = (address + size + 31) & -32
    end = min((address + size + _PAGE - 1) & -_PAGE, following[3] & -_PAGE)
    room = min(end - start, following[2] - offset - (start - address))
    if size != memory or room <= 0:
        raise _UnfitError("its C library has no bytes to spare")
    return at, start - address + offset, start, room


def _segments(elf: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each program header: where it lies, and its fields."""
    start, size, number = (
        struct.unpack_from(layout, elf, at)[0]
        for layout, at in (("<Q", 32), ("<H", 54), ("<H", 56))
    )
    for at in range(start, start + size * number, size):
        yield at, _SEGMENT.unpack_from(elf, at)


def _symbols(elf: bytes) -> Iterator[_Symbol]:
    """The names that others can be linked with."""
    start, size, number = (
        struct.unpack_from(layout, elf, at)[0]
        for layout, at in (("<Q", 40), ("<H", 58), ("<H", 60))
    )
    sections = [_SECTION.unpack_from(elf, start + size * n) for n in range(number)]
    table = next((section for section in sections if section[1] == _DYNAMIC_SYMBOLS), None)
    if table is None:
        raise _UnfitError("its C library lists no symbols")
    names = sections[table[6]][4]
    versions = next((section[4] for section in sections if section[1] == _VERSIONS), None)
    for number, at in enumerate(range(table[4], table[4] + table[5], _SYMBOL.size)):
        name, info, _, section, value, _ = _SYMBOL.unpack_from(elf, at)
        if not section:
            continue
        text = elf[names + name : elf.index(0, names + name)].decode()
        version = struct.unpack_from("<H", elf, versions + 2 * number)[0] if versions else 0
        yield _Symbol(text, at, info, value, not version & _HIDDEN)
