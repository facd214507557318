"""Python and the supervisor agree on every number: protocol.h is parsed and compared."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from pathlib import Path
from struct import Struct

import pytest

from shioenv import native
from shioenv.behavior.typed_rows import RowKind
from shioenv.sandbox.base import LONGEST_INPUT, LONGEST_STDIN
from shioenv.sandbox.change_records import CHANGE
from shioenv.sandbox.namespaces import wire
from shioenv.system.declare import MOST_SOCKETS

NATIVE = Path(native.__file__).parent
TYPES: dict[str, type[ctypes._SimpleCData[int]]] = {
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
}
LETTERS = {"uint32_t": "I", "int32_t": "i", "uint64_t": "Q", "int64_t": "q"}


def header(name: str) -> str:
    """Return a header without its comments."""
    return re.sub(r"/\*.*?\*/", "", (NATIVE / name).read_text(), flags=re.DOTALL)


PROTOCOL, SERVER = header("around/protocol.h"), header("inside/server.h")
ROWS = header("inside/rows.h")


def constants(text: str) -> dict[str, int]:
    """Return every `#define` of a number and every enumerator."""
    found: dict[str, int] = {}

    def value(expression: str) -> int:
        plain = re.sub(r"(?<=\d)u\b", "", expression)
        return int(eval(plain, {"__builtins__": {}}, found))

    for name, expression in re.findall(r"#define (\w+) (.+)", text):
        found[name] = value(expression)
    for body in re.findall(r"enum \{(.*?)\}", text, flags=re.DOTALL):
        following = 0
        for item in filter(None, map(str.strip, body.split(","))):
            name, _, expression = (part.strip() for part in item.partition("="))
            found[name] = value(expression) if expression else following
            following = found[name] + 1
    return found


def fields(name: str) -> Iterator[tuple[str, str]]:
    """Return the members of a structure, each with its type."""
    found = re.search(rf"struct (?:__attribute__\S+ )?{name} \{{(.*?)\}}", PROTOCOL, re.DOTALL)
    assert found, name
    for kind, names in re.findall(r"(\w+_t) ([\w, ]+);", found[1]):
        yield from ((member.strip(), kind) for member in names.split(","))


def test_every_enumerator_has_its_number() -> None:
    groups: dict[str, type[IntEnum | IntFlag]] = {
        "CONFIG_": wire.Config, "REQUEST_": wire.Ask,
        "REPLY_": wire.ReplyFlags, "STAGE_": wire.Stage,
    }  # fmt: skip
    both = constants(PROTOCOL) | constants(SERVER)
    assert len(both) > 60
    for prefix, group in groups.items():
        theirs = {
            name.removeprefix(prefix): number
            for name, number in both.items()
            if name.startswith(prefix)
        }
        assert theirs == {member.name: member.value for member in group}


def test_every_reason_against_a_copy_has_its_number() -> None:
    names = [name for name in constants(PROTOCOL) if name.startswith("NODE_")]
    assert names == [f"NODE_{name}" for name in wire.UNMARKED]
    assert [constants(PROTOCOL)[name] for name in names] == [*range(1, len(names) + 1)]


def test_every_other_constant_of_the_protocol_is_known() -> None:
    others = {
        name: number
        for name, number in constants(PROTOCOL).items()
        if not name.startswith(("CONFIG_", "REQUEST_", "REPLY_", "STAGE_", "NODE_"))
    }
    assert others == {
        "FD_GATEWAY": wire.FD_GATEWAY,
        "STDIN_MAX": LONGEST_STDIN,
        "MOST_SOCKETS": MOST_SOCKETS,
        "NEEDS_NEW_SANDBOX": wire.NEEDS_NEW_SANDBOX,
    }
    bounds = constants(SERVER)
    assert bounds["INPUT_MAX"] == LONGEST_INPUT + 1
    assert bounds["CWD_MAX"] == wire.LONGEST_PATH
    assert bounds["STATE_MAX"] == wire.LONGEST_STATE


def test_rows_are_told_alike() -> None:
    theirs = dict(re.findall(r"ROW_(\w+) = '(.)'", ROWS))
    assert theirs == {member.name: member.value for member in RowKind}
    assert constants(SERVER)["ROWS_MAX"] == LONGEST_STDIN


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("record", wire.RECORD),
        ("request", wire.REQUEST),
        ("reply", wire.REPLY),
        ("change", CHANGE),
        ("resource_limit", wire.RLIMIT),
    ],
)
def test_every_structure_is_laid_out_alike(name: str, ours: Struct) -> None:
    members = list(fields(name))
    packed = f"struct __attribute__((packed)) {name} " in PROTOCOL

    class Theirs(ctypes.Structure):
        _pack_ = 1 if packed else 8
        _fields_ = [(member, TYPES[kind]) for member, kind in members]

    letters = re.sub(r"(\d+)([A-Za-z])", lambda part: int(part[1]) * part[2], ours.format[1:])
    assert letters.rstrip("x") == "".join(LETTERS[kind] for _, kind in members)
    assert ours.size == ctypes.sizeof(Theirs)


def test_a_reply_has_the_members_that_the_supervisor_fills() -> None:
    assert [*wire.Reply._fields] == [member for member, _ in fields("reply")]
