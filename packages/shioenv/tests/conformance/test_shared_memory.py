"""Shells' shared memory is empty for the next input, whatever the last one wrote."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shioenv.sandbox.base import Request, ShellMode
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System

_MAPPED = (
    "$p = getppid; open F, qq(/proc/$p/maps); open M, q(+<:raw), qq(/proc/$p/mem) or die; "
    "($a, $e) = map hex, (grep /memfd:shioenv/, <F>)[0] =~ /^(\\w+)-(\\w+)/; "
)
"""Perl that finds the memory of the shell that it is started by: from `$a` to `$e` of M."""

_FOUND = Request(
    f"perl -e '{_MAPPED}"
    "sysseek M, $a, 0; sysread(M, $b, $e - $a) == $e - $a or die; "
    'print pos($b) - length $&, " $&\\n" while $b =~ /[^\\0]+/g\'; :'
)
"""Prints the contents with their place. The last command keeps bash from replacing itself by
perl."""

_PAGES = Request(
    "while read -r name size unit; do case $name in RssShmem:) echo $size;; esac; done"
    " < /proc/$$/status"
)
"""Print how much of it a shell finds in memory, and maps, when it touches as little as possible."""


def _writes(*places: str) -> Request:
    """Write a mark to each place, an expression of perl: bytes from the beginning, or the end."""
    marks = "".join(f"sysseek M, {place}, 0; syswrite M, q(left); " for place in places)
    return Request(f"perl -e '{_MAPPED}{marks}'; :")


_EVERY_PAGE = "for ($i = $a; $i < $e; $i += 4096) { sysseek M, $i + 2000, 0; syswrite M, q(left) }"

LEAVING = {
    "an ordinary input": Request("true"),
    "a long input": Request(": " + "long " * 20_000),
    "an input a little longer than a page": Request(": " + "x" * 4_000),
    "rows": Request(". /dev/stdin", stdin=b"echo one\0echo two\0\0", rows=True),
    "many rows": Request(". /dev/stdin", stdin=b": row\0" * 5_000 + b"\0", rows=True),
    "a large variable": Request("large=$(printf %0300000d 0); export large"),
    "a state of some pages more": Request("large=$(printf %020000d 0)"),
    "a process that was held": Request("echo x | cat | cat", order="eager"),
    "bytes in the head": _writes("$a + 8", "$a + 40", "$a + 290"),
    "bytes in the input": _writes("$a + 4392", "$a + 8190", "$a + 8192"),
    "bytes in the rows": _writes("$a + 140000", "$a + 1000000"),
    "bytes around the state": _writes("$a + 1183744", "$a + 1187800", "$a + 1190000"),
    "bytes behind the state": _writes("$a + 1187800 + 65536", "$a + 1300000", "$e - 4"),
    "bytes in every page": Request(f"perl -e '{_MAPPED}{_EVERY_PAGE}'; :"),
    "bytes and an end by force": Request(f"perl -e '{_MAPPED}{_EVERY_PAGE}; kill 9, $p'; :"),
    "bytes by a process that stays": Request(
        f"perl -e 'exit if fork; {_MAPPED}' & perl -e '{_MAPPED}{_EVERY_PAGE}'; sleep 60 & :"
    ),
}


@pytest.fixture(scope="module", params=[ShellMode.LATE, ShellMode.MAIN])
def mode(request: pytest.FixtureRequest) -> ShellMode:
    return ShellMode(request.param)


@pytest.fixture(scope="module")
def sandbox(mode: ShellMode, system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system, mode=mode) as opened:
        yield opened


@pytest.fixture(scope="module")
def pristine(mode: ShellMode, system: System) -> tuple[bytes, bytes]:
    """Return what both show in sandboxes that ran nothing before."""
    shown = []
    for request in (_FOUND, _PAGES):
        with NamespaceSandbox(system, mode=mode) as opened:
            shown.append(opened.run(request).output)
    return shown[0], shown[1]


def test_it_shows_its_own_input_alone(pristine: tuple[bytes, bytes]) -> None:
    found, pages = pristine
    assert b" /home/ubuntu\n" in found, "the start directory"
    assert _FOUND.argument() in found, "its input"
    assert len(found) < 2 * len(_FOUND.argument()), "and little more"
    assert 0 < int(pages) < 100


@pytest.mark.parametrize("left", LEAVING)
def test_nothing_of_it_is_left(
    left: str, sandbox: NamespaceSandbox, pristine: tuple[bytes, bytes]
) -> None:
    for request, expected in zip((_FOUND, _PAGES), pristine, strict=True):
        sandbox.run(LEAVING[left])
        assert sandbox.run(request).output == expected
