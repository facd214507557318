"""Traits of commands, from the headers of their grammars.

Traits describe what the operands name, and what the command does with these things. So other
modules need no rules for single commands.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

PATHS: Mapping[str, str] = MappingProxyType(
    {
        "file": "a file, not a directory",
        "path": "a file or a directory",
        "tree": "a file or a directory; a directory if its name does not indicate which",
        "directory": "a directory",
        "new": "a new path, which must not exist",
        "output": "a file that is written, and created if missing",
        "target": "a file or a directory that is written, and created if missing",
        "made": "a path that is created, with all parent directories",
        "any": "a path that need not exist",
    }
)
"""The roles of operands that are paths, and their meanings."""

VALUE = "value"
"""The `what` of a `RoleChange` that concerns the values of options, not operands."""

MAKES: Mapping[str, str] = MappingProxyType(
    {
        "archive": "an archive, or files of one",
        "copy": "a copy of a file",
        "directory": "a directory",
        "download": "a file from a server",
        "fifo": "a named pipe",
        "file": "a file with given contents",
        "link": "a link to a file",
        "pieces": "several files with parts of one",
    }
)
"""The things that commands create, with descriptions."""

CHANGES: Mapping[str, str] = MappingProxyType(
    {
        "content": "the contents of a file",
        "mode": "the permissions of a file",
        "name": "the name or directory of a file",
        "owner": "the owner or group of a file",
        "size": "the size of a file",
        "time": "the times of a file",
        "cwd": "the working directory of the shell",
        "env": "the environment of the shell's programs",
        "limits": "the limits of the shell's programs",
        "network": "interfaces, addresses, routes",
    }
)
"""The things that commands change, with descriptions. The last four are not properties of files."""

PROCESSES, MACHINE, NOTHING = "processes", "machine", "nothing"
"""Keys of `SHOWS`."""

SHOWS: Mapping[str, str] = MappingProxyType(
    {
        PROCESSES: "running processes, with their ids, times and memory",
        MACHINE: "the kernel, the file system, limits or the network",
        NOTHING: "nothing, unless options or an error demand it",
    }
)
"""The things that commands print without reading them from a file, with descriptions."""

OF_FILES = frozenset({"content", "mode", "name", "owner", "size", "time"})
"""The keys of `CHANGES` that are properties of files."""

_OPERAND = re.compile(r"(?:([a-z]+)=)?([a-z]+)([*+?]?)")
_EFFECT = re.compile(rf"no ([a-z]+)|{VALUE} ([a-z]+)|([a-z]+) as ([a-z]+)")


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """The meaning of one operand: its `role` is a key of `PATHS`, or a kind of value.

    `least` is the minimum number of such operands, 0 or 1. `many`: any number of them is permitted.
    `name` is `if` for an operand written `if=FILE`, usually "".
    """

    role: str
    least: int = 1
    many: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class RoleChange:
    """The effect of options on the roles of operands.

    Operands of the role `what` get the role `role`, or are dropped if `role` is "". If `what` is
    "value", the value of the options has the role `role`.
    """

    options: tuple[str, ...]
    what: str
    role: str


@dataclass(frozen=True, slots=True)
class Traits:
    """The traits of a command. By default a command takes no operands.

    `effects` are the effects of options on operands. `implied` is what the command uses without
    operands. `makes`, `changes` and `shows` are keys of `MAKES`, `CHANGES` and `SHOWS`, or "".
    `removes`: the things named by the operands no longer exist afterwards. `opens`: the command
    opens the files named by its operands, and blocks on a named pipe. `ordered`: the order of its
    options and operands has a meaning. `help` is the input that prints its help, "" for the usual
    one. `lines` is the line of each keyword in the file, from 1.
    """

    operands: tuple[OperandSpec, ...] = ()
    effects: tuple[RoleChange, ...] = ()
    implied: str = ""
    makes: str = ""
    changes: str = ""
    removes: bool = False
    opens: bool = False
    ordered: bool = False
    shows: str = ""
    help: str = ""
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    @property
    def paths(self) -> tuple[OperandSpec, ...]:
        """The operands that are paths."""
        return tuple(operand for operand in self.operands if operand.role in PATHS)

    @property
    def roles(self) -> frozenset[str]:
        """The roles of all operands."""
        return frozenset(operand.role for operand in self.operands)

    @property
    def least(self) -> int:
        """The minimum number of operands."""
        return sum(operand.least for operand in self.operands)

    @property
    def takes_several(self) -> bool:
        """Whether the command accepts any number of paths, or takes no paths at all."""
        return not self.paths or any(operand.many for operand in self.paths)

    @property
    def into(self) -> bool:
        """Whether the last operand is the destination of the things named by the other operands."""
        return len(self.paths) > 1 and self.operands[-1].role == "target"

    @property
    def alters(self) -> bool:
        """Whether the command may make, change, write or remove files."""
        written = not self.roles.isdisjoint({"new", "output", "target"})
        return written or self.removes or bool(self.makes) or self.changes in OF_FILES

    def with_options(self, options: Iterable[str]) -> Traits:
        """Return the command's traits with these options, spelt as in the header."""
        given = set(options)
        operands = self.operands
        for effect in self.effects:
            if effect.what != VALUE and not given.isdisjoint(effect.options):
                operands = tuple(
                    replace(one, role=effect.role) if one.role == effect.what else one
                    for one in operands
                    if one.role != effect.what or effect.role
                )
        return replace(self, operands=operands)

    def role_of_value(self, option: str) -> str | None:
        """Return the role of an option's value, or None if the header names none."""
        for effect in self.effects:
            if effect.what == VALUE and option in effect.options:
                return effect.role
        return None

    def roles_of(self, count: int) -> Sequence[str]:
        """Return the roles of `count` successive operands; operands with a name are omitted.

        The role whose number of operands is unlimited is repeated; without such a role, the last
        one is repeated. For a command without declared operands each role is "text".
        """
        plain = [operand for operand in self.operands if not operand.name]
        if not plain or not count:
            return ["text"] * count
        place = next((i for i, operand in enumerate(plain) if operand.many), len(plain) - 1)
        before, several, after = plain[:place], plain[place], plain[place + 1 :]
        behind = min(len(after), max(0, count - len(before) - 1))
        middle = max(0, count - len(before) - behind)
        roles = [operand.role for operand in before]
        return [*roles, *([several.role] * middle), *(one.role for one in after[:behind])][:count]


def read_operands(text: str, kinds: Collection[str]) -> tuple[OperandSpec, ...] | str:
    """Parse the operands in a header line; return an error message if the line is invalid.

    `kinds` are the names of the kinds of value.
    """
    operands = []
    for word in text.split():
        match = _OPERAND.fullmatch(word)
        if match is None or not _is_role(match[2], kinds):
            return f"unknown operand `{word}`; expected {_ROLES}, optionally with `*`, `+` or `?`"
        name, role, sign = match.groups()
        operands.append(OperandSpec(role, int(sign in {"", "+"}), sign in {"*", "+"}, name or ""))
    if sum(operand.many for operand in operands) > 1:
        return "only one operand may be repeated"
    return tuple(operands) or "operands needs roles: operands path*"


def read_effect(options: tuple[str, ...], text: str, kinds: Collection[str]) -> RoleChange | str:
    """Parse the effect in a `with` line; return an error message if the line is invalid.

    `kinds` are the names of the kinds of value.
    """
    match = _EFFECT.fullmatch(text)
    roles = [role for role in match.groups() if role] if match else []
    if match and all(_is_role(role, kinds) for role in roles):
        no, value, what, role = match.groups()
        return RoleChange(options, no or what or VALUE, value or role or "")
    return f"unknown effect `{text}`; write `value ROLE`, `no ROLE` or `ROLE as ROLE`"


def _is_role(word: str, kinds: Collection[str]) -> bool:
    return word in PATHS or word in kinds


_ROLES = f"one of {', '.join(PATHS)} or a kind of value"
