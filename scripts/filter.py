"""Compile the system-call filters: `filter.txt` of every sandbox and `filter.txt` of previews.

    make filter

The lists of `shioenv.sandbox.namespaces.seccomp` and `shioenv_agents.preview.inside` define the
result of each call, and libseccomp compiles them to instructions. The results are committed, so
that no host needs libseccomp. A line is one instruction: code, jump if true, jump if false,
constant (`struct sock_filter`). A constant that is known later is a word. In the sandbox's filter
`parent` is the PID of the shells' parent, which a system declares. In that of previews `family` is
the refused socket family.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
import tempfile
from collections.abc import Iterable, Iterator
from itertools import zip_longest

import pyseccomp
from pyseccomp import ALLOW, EQ, ERRNO, GT, LE, LT, MASKED_EQ, NE, Arch, Arg, Attr

from shioenv.sandbox.namespaces import seccomp

Rule = tuple[int, str, list[Arg]]
"""Action, call and conditions. A condition compares the whole register."""

ABSENT, FORBIDDEN, HOLLOW = ERRNO(errno.ENOSYS), ERRNO(errno.EPERM), ERRNO(0)

HEADER = """\
# Compiled by libseccomp from the lists in {}: `make filter` writes it.
# code, jump if true, jump if false, constant
"""


def group_rules() -> Iterator[Rule]:
    """Generate the rules for calls with one result for all arguments."""
    for action, groups in (
        (ALLOW, seccomp.ALLOWED),
        (FORBIDDEN, seccomp.FORBIDDEN),
        (HOLLOW, seccomp.HOLLOW),
    ):
        for group in groups:
            for name in group.names:
                yield action, name, []


def socket_rules() -> Iterator[Rule]:
    """Yield the rules for making sockets."""
    no_family, no_protocol = ERRNO(errno.EAFNOSUPPORT), ERRNO(errno.EPROTONOSUPPORT)
    families, protocols = seccomp.FAMILIES, seccomp.NETLINK
    netlink = Arg(0, EQ, socket.AF_NETLINK)
    for call in ("socket", "socketpair"):
        for family in range(max(families) + 1):
            if call == "socketpair" or family != socket.AF_NETLINK:
                yield ALLOW if family in families else no_family, call, [Arg(0, EQ, family)]
        yield no_family, call, [Arg(0, GT, max(families))]
    for protocol in range(max(protocols) + 1):
        action = ALLOW if protocol in protocols else no_protocol
        yield action, "socket", [netlink, Arg(2, EQ, protocol)]
    yield no_protocol, "socket", [netlink, Arg(2, GT, max(protocols))]


def pipe_rules() -> Iterator[Rule]:
    """Yield the rules for `fcntl`, which sets the size of pipes among other things."""
    sets_size = Arg(1, EQ, fcntl.F_SETPIPE_SZ)
    yield ALLOW, "fcntl", [sets_size, Arg(2, LE, seccomp.LARGEST_PIPE)]
    yield FORBIDDEN, "fcntl", [sets_size, Arg(2, GT, seccomp.LARGEST_PIPE)]
    # All other commands. Whole registers are compared: the kernel reads 32 bits of the command, and
    # the bits above these could hide a forbidden one. 0x41f lies past all commands of Linux today.
    whole = 0xFFFF_FFFF_FFFF_FFFF
    yield ALLOW, "fcntl", [Arg(1, LT, fcntl.F_SETPIPE_SZ)]
    yield ALLOW, "fcntl", [Arg(1, MASKED_EQ, whole - 0x7, 0x408)]
    yield ALLOW, "fcntl", [Arg(1, MASKED_EQ, whole - 0xF, 0x410)]


def kill_rules(parent: int) -> Iterator[Rule]:
    """Yield the rules for `kill`, which succeeds on the shells' parent without effect.

    That process cannot be killed: without the filter the error would be that of another user's
    process.
    """
    yield ALLOW, "kill", [Arg(0, NE, parent)]
    yield HOLLOW, "kill", [Arg(0, EQ, parent)]


def compile_filter(parent: int) -> bytes:
    """Compile the filter to BPF instructions. Exit where libseccomp is older than the lists."""
    rules = pyseccomp.SyscallFilter(ABSENT)
    rules.set_attr(Attr.ACT_BADARCH, ABSENT)
    rules.set_attr(Attr.CTL_OPTIMIZE, 2)  # a tree by number, not one comparison per call
    groups = (*group_rules(), *socket_rules(), *pipe_rules(), *kill_rules(parent))
    return exported(rules, groups)


def compile_preview_filter(family: int) -> bytes:
    """Compile the filter of previews; x32 programs are refused the same calls."""
    from shioenv_agents.preview import inside  # the core's tests do without that package

    rules = pyseccomp.SyscallFilter(ALLOW)
    rules.set_attr(Attr.ACT_BADARCH, ALLOW)
    rules.add_arch(Arch.X32)
    asked = Arg(0, MASKED_EQ, 0xFFFF_FFFF, family)  # the kernel reads 32 bits
    return exported(
        rules,
        [
            *((FORBIDDEN, name, []) for name in inside.FORBIDDEN),
            *((ABSENT, name, []) for name in inside.ABSENT),
            (ERRNO(errno.EAFNOSUPPORT), "socket", [asked]),
        ],
    )


def exported(rules: pyseccomp.SyscallFilter, groups: Iterable[Rule]) -> bytes:
    """Return the instructions of a filter with these rules."""
    for action, name, conditions in groups:
        number = pyseccomp.resolve_syscall(Arch.X86_64, name)
        if number == -1:
            raise SystemExit(f"this libseccomp does not know {name}: 2.5.4 or newer is needed")
        rules.add_rule(action, number, *conditions)
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def written(one: bytes, other: bytes, word: str, source: str) -> str:
    """Return the text of a `filter.txt`, from the same filter with constants 1 and 2."""
    lines = []
    for first, second in zip_longest(
        struct.iter_unpack("=HBBI", one), struct.iter_unpack("=HBBI", other)
    ):
        *numbers, constant = first
        if first != second:
            if (first, second) != ((*numbers, 1), (*numbers, 2)):
                raise SystemExit(f"{word} decides more than a constant: {first}")
            constant = word
        lines.append(" ".join(map(str, [*numbers, constant])))
    return HEADER.format(source) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    from shioenv_agents.preview import inside

    for path, compiled, word, source in (
        (seccomp.FILTER, compile_filter, seccomp.PARENT, "seccomp.py"),
        (inside.FILTER, compile_preview_filter, inside.FAMILY, "inside.py"),
    ):
        path.write_text(written(compiled(1), compiled(2), word, source), encoding="ascii")
        print(path)
