"""Generated files of the home tree: logs, tables, archives, images and programs."""

from __future__ import annotations

import bz2
import io
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources.abc import Traversable
from typing import Any, Literal

from shioenv.domain.context import MONTHS
from shioenv.files import documents
from shioenv.system.declare import systems_directory

Kind = Literal["file", "directory", "symlink", "fifo"]


@dataclass(frozen=True, slots=True)
class HomeEntry:
    """One entry of the home tree. Owner and group are names; `path` is relative, "." is the top."""

    path: str
    kind: Kind
    mode: int
    owner: str
    group: str
    mtime: int
    """Seconds since 1970."""
    data: bytes = b""
    target: str = ""
    """Target of a symbolic link."""
    holes: bool = False
    """Whether blocks of 4096 zero bytes are holes of a sparse file."""


@dataclass(frozen=True, slots=True)
class HomeRequest:
    """The parameters of a generator."""

    lines: int
    held: Sequence[HomeEntry]
    seed: int
    time: int


class _Draws:
    """A linear congruential generator, with the same numbers in every version of Python."""

    def __init__(self, seed: int) -> None:
        self.state = seed * 2654435761 & 0xFFFFFFFFFFFFFFFF

    def below(self, bound: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.state >> 33) % bound

    def pick(self, words: Sequence[str]) -> str:
        return words[self.below(len(words))]


def _stamp(seconds: int, form: str) -> str:
    time = datetime.fromtimestamp(seconds, UTC)
    return form.format(t=time, month=MONTHS[time.month - 1])


@cache
def _words(generator: str) -> Any:
    """Return the word lists of a generator."""
    return documents.parse_toml(words_file().read_bytes())[generator]


def words_file() -> Traversable:
    """Return the file with the word lists of generated texts."""
    return systems_directory().joinpath("home", "words.toml")


def text_of(lines: Iterable[str], newline: str = "\n") -> bytes:
    """Encode lines as the content of a file, each followed by `newline`."""
    return "".join(f"{line}{newline}" for line in lines).encode()


def _app_log(request: HomeRequest) -> bytes:
    draws, words = _Draws(request.seed), _words("app_log")
    moment = request.time - request.lines * 97
    lines = []
    for _ in range(request.lines):
        moment += 40 + draws.below(110)
        moment = min(moment, request.time)
        level = draws.pick(words["levels"])
        stamp = _stamp(moment, "{t:%Y-%m-%d %H:%M:%S}")
        line = f"{stamp} {level} [{draws.pick(words['parts'])}] {draws.pick(words['texts'][level])}"
        if level == "DEBUG":
            line += f" {draws.below(900)} ms"
        lines.append(line)
        if draws.below(17) == 0:
            lines.append(line)  # the same message twice in a row
    return text_of(lines[: request.lines])


def _syslog(request: HomeRequest) -> bytes:
    draws, words = _Draws(7 * request.seed), _words("syslog")
    moment = request.time - request.lines * 240
    lines = []
    for _ in range(request.lines):
        moment = min(moment + 120 + draws.below(230), request.time)
        program = draws.pick(list(words))
        stamp = _stamp(moment, "{month} {t.day:2d} {t:%H:%M:%S}")
        lines.append(f"{stamp} ubuntu {program}: {draws.pick(words[program])}")
    return text_of(lines)


def _access_log(request: HomeRequest) -> bytes:
    draws, words = _Draws(11 * request.seed), _words("access_log")
    moment = request.time - request.lines * 60
    lines = []
    for _ in range(request.lines):
        moment = min(moment + draws.below(119), request.time)
        path = draws.pick(words["paths"])
        stamp = _stamp(moment, "{t.day:02d}/{month}/{t:%Y:%H:%M:%S} +0000")
        verb = "POST" if path == "/login" else "GET"
        lines.append(
            f'{draws.pick(words["hosts"])} - - [{stamp}] "{verb} {path} HTTP/1.1" '
            f"{draws.pick(words['codes'].get(path, ['200', '304']))} {draws.below(9000)} "
            f'"-" "{draws.pick(words["agents"])}"'
        )
    return text_of(lines)


def _measurements(request: HomeRequest) -> bytes:
    draws, words = _Draws(13 * request.seed), _words("measurements")
    lines = ["id,date,region,product,units,price"]
    for number in range(1, request.lines + 1):
        day = _stamp(request.time - (request.lines - number) * 86400, "{t:%Y-%m-%d}")
        price = f"{2 + draws.below(90)}.{draws.below(4) * 25:02d}"
        units = "" if draws.below(31) == 0 else str(draws.below(250))
        region, product = draws.pick(words["regions"]), draws.pick(words["products"])
        lines.append(f"{number},{day},{region},{product},{units},{price}")
    return text_of(lines)


def _users(request: HomeRequest) -> bytes:
    draws, words = _Draws(17 * request.seed), _words("users")
    lines = ["username,name,email,department,age,active"]
    for number in range(request.lines):
        given, family = draws.pick(words["first"]), draws.pick(words["last"])
        user = f"{given[0]}{family}".lower() + (str(number) if draws.below(3) == 0 else "")
        lines.append(
            f"{user},{given} {family},{user}@example.com,{draws.pick(words['departments'])},"
            f"{19 + draws.below(47)},{draws.pick(['true', 'true', 'false'])}"
        )
    return text_of(lines)


def _budget(request: HomeRequest) -> bytes:
    draws = _Draws(19 * request.seed)
    rows = [
        f"2025-{month:02d};{1000 + draws.below(40) * 25};{draws.below(1900)},{month:02d}"
        for month in range(1, 13)
    ]
    return text_of(["month;planned;spent", *rows], "\r\n")


def _duplicates(request: HomeRequest) -> bytes:
    draws, words = _Draws(23 * request.seed), _words("duplicates")
    lines: list[str] = []
    while len(lines) < request.lines:
        lines += [draws.pick(words["values"])] * (1 + draws.below(3))
    return text_of(lines[: request.lines])


def _long_lines(request: HomeRequest) -> bytes:
    draws, words = _Draws(29 * request.seed), _words("long_lines")
    counts = (60, 400, 1, 150)
    lines = [" ".join(draws.pick(words["words"]) for _ in range(count)) for count in counts]
    return text_of([*lines, "0123456789" * 300])


def _binary(request: HomeRequest) -> bytes:
    draws = _Draws(31 * request.time)
    head = b"\x7fBIN\x01\x00" + bytes(range(256))
    return head + bytes(draws.below(256) for _ in range(762)) + b"text inside\x00more text\n"


def _sparse(request: HomeRequest) -> bytes:
    hole = bytes(4096)
    block = (b"start of image\n" + hole)[:4096]
    last = (b"end of image\n" + hole)[:4096]
    return block + hole * 14 + last


def _elf(request: HomeRequest) -> bytes:
    """Make a static x86-64 program that prints a line and exits, with two system calls."""
    text = b"hello from a small program\n"
    base, code_at = 0x400000, 120
    code = bytes.fromhex("b801000000bf01000000be") + struct.pack("<I", base + code_at + 34)
    code += b"\xba" + struct.pack("<I", len(text)) + bytes.fromhex("0f05b83c00000031ff0f05")
    code = code.ljust(34, b"\x90") + text
    size = code_at + len(code)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, base + code_at, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    return header + segment + code


def _png(request: HomeRequest) -> bytes:
    width, height = 48, 32
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            inside = (x - 24) ** 2 + (y - 16) ** 2 < 120
            rows += bytes((230, 180, 40)) if inside else bytes((x * 5, y * 8, 160))

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    image = b"\x78\x01" + deflate(bytes(rows)) + struct.pack(">I", zlib.adler32(rows))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        + chunk(b"tEXt", b"Comment\x00drawn by hand")
        + chunk(b"IDAT", image)
        + chunk(b"IEND", b"")
    )


def _tar(request: HomeRequest) -> bytes:
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for entry in request.held:
            member = tarfile.TarInfo(entry.path)
            member.size, member.mode, member.mtime = len(entry.data), entry.mode, entry.mtime
            member.uid = member.gid = 1000
            member.uname = member.gname = "ubuntu"
            archive.addfile(member, io.BytesIO(entry.data))
    return buffer.getvalue()


def _gzip(data: bytes, time: int, name: str = "") -> bytes:
    flags, extra = (8, name.encode() + b"\x00") if name else (0, b"")
    head = struct.pack("<BBBBIBB", 31, 139, 8, flags, time, 0, 3) + extra
    return head + deflate(data) + struct.pack("<II", zlib.crc32(data), len(data))


def _tar_gz(request: HomeRequest) -> bytes:
    return _gzip(_tar(request), request.time)


def _gz(request: HomeRequest) -> bytes:
    (entry,) = request.held
    return _gzip(entry.data, entry.mtime, entry.path.rpartition("/")[2])


def _truncated(request: HomeRequest) -> bytes:
    whole = _tar_gz(request)
    return whole[: len(whole) * 2 // 3]


def _bz2(request: HomeRequest) -> bytes:
    (entry,) = request.held
    return bz2.compress(entry.data)


def _cpio(request: HomeRequest) -> bytes:
    """Make a cpio archive in the portable "newc" format."""
    out = bytearray()
    members = [
        (entry.path, entry.data, entry.mode | 0o100000, entry.mtime, 1) for entry in request.held
    ]
    for index, (path, data, mode, mtime, links) in enumerate(
        [*members, ("TRAILER!!!", b"", 0, 0, 1)]
    ):
        name = path.encode() + b"\x00"
        owner = 1000 if mode else 0
        number = index + 701 if mode else 0
        fields = (number, mode, owner, owner, links, mtime, len(data), 0, 0, 0, 0, len(name), 0)
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        out += bytes(-len(out) % 4)
        out += data
        out += bytes(-len(out) % 4)
    return bytes(out + bytes(-len(out) % 512))


def _zip(request: HomeRequest) -> bytes:
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for entry in request.held:
            stamp = datetime.fromisoformat(_stamp(entry.mtime, "{t:%Y-%m-%d %H:%M:%S}"))
            member = zipfile.ZipInfo(entry.path, stamp.timetuple()[:6])
            member.external_attr = (entry.mode | 0o100000) << 16
            member.create_system = 3
            archive.writestr(member, entry.data)
    return buffer.getvalue()


GENERATORS: Mapping[str, Callable[[HomeRequest], bytes]] = {
    generator.__name__.removeprefix("_"): generator
    for generator in (
        _access_log, _app_log, _binary, _budget, _bz2, _cpio, _duplicates, _elf, _gz, _long_lines,
        _measurements, _png, _sparse, _syslog, _tar, _tar_gz, _truncated, _users, _zip,
    )
}  # fmt: skip
"""Generators by their names in `tree.toml`."""


def deflate(data: bytes) -> bytes:
    """Compress `data` into one deflate block with fixed Huffman codes (RFC 1951).

    The output is the same on every host. Matching is greedy, against the last position of the same
    three bytes. Text shrinks to about half its size, which suffices for archives in a home tree.
    """
    bits = _Bits()
    bits.put(0b011, 3)  # last block, fixed codes
    seen: dict[bytes, int] = {}
    at = 0
    while at < len(data):
        key = data[at : at + 3]
        before = seen.get(key, -1) if len(key) == 3 else -1
        length = 0
        if before >= 0 and at - before <= 32768:
            while length < 258 and at + length < len(data):
                if data[before + length] != data[at + length]:
                    break
                length += 1
        if length >= 3:
            bits.length(length)
            bits.distance(at - before)
        else:
            length = 1
            bits.literal(data[at])
        for step in range(at, at + length):
            seen[data[step : step + 3]] = step
        at += length
    bits.literal(256)
    return bits.finish()


class _Bits:
    """A bit stream, least significant bit first, with the fixed codes of deflate."""

    def __init__(self) -> None:
        self.value = 0
        self.count = 0
        self.out = bytearray()

    def put(self, value: int, width: int) -> None:
        self.value |= value << self.count
        self.count += width
        while self.count >= 8:
            self.out.append(self.value & 255)
            self.value >>= 8
            self.count -= 8

    def code(self, value: int, width: int) -> None:
        """Append a Huffman code, most significant bit first."""
        self.put(int(f"{value:0{width}b}"[::-1], 2), width)

    def literal(self, symbol: int) -> None:
        if symbol < 144:
            self.code(0x30 + symbol, 8)
        elif symbol < 256:
            self.code(0x190 + symbol - 144, 9)
        elif symbol < 280:
            self.code(symbol - 256, 7)
        else:
            self.code(0xC0 + symbol - 280, 8)

    def length(self, length: int) -> None:
        if length == 258:
            self.literal(285)
            return
        extra = max(0, (length - 3).bit_length() - 3)
        base = (length - 3) >> extra
        self.literal(257 + extra * 4 + base)
        self.put((length - 3) & ((1 << extra) - 1), extra)

    def distance(self, distance: int) -> None:
        extra = max(0, (distance - 1).bit_length() - 2)
        base = (distance - 1) >> extra
        self.code(extra * 2 + base, 5)
        self.put((distance - 1) & ((1 << extra) - 1), extra)

    def finish(self) -> bytes:
        if self.count:
            self.out.append(self.value & 255)
        return bytes(self.out)
