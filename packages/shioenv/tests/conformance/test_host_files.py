"""The host's storage and use of a system's files have no effect inside."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shioenv.errors import SystemNotBuiltError
from shioenv.files.durable import cache_directory
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.sandbox.namespaces.lower import LowerForm
from shioenv.system.idmap import find_idmap, run_mapped
from shioenv.system.store import System
from support.needs import needs
from support.nightly import NIGHTLY, by_day
from support.sandbox_conformance import CHECKS, LIMITS, Check

LOOKING = Path(__file__).parent / "looking.py"
ROOM = 700 << 20
"""Bytes of an image that a system fits into twice."""

FILE_SYSTEMS = {
    "tmpfs": "mount -t tmpfs none $0",
    "ext4": "mkfs.ext4 -q -F -E hash_seed=$(cat /proc/sys/kernel/random/uuid) $1 && mount $1 $0",
    "xfs": "mkfs.xfs -q -f $1 && mount $1 $0",
    "btrfs": "mkfs.btrfs -q -f $1 && mount $1 $0",
    "ext4 with data in inodes": "mkfs.ext4 -q -F -O inline_data -I 1024 $1 && mount $1 $0",
}
"""Commands that make each from the image $1, and mount it on the directory $0."""

KINDS = [
    pytest.param(
        kind,
        marks=[
            *([needs(f"mkfs.{made}", f"{made} in the kernel")] if made else []),
            *([NIGHTLY] if number % 3 else []),
        ],
    )
    for number, kind in enumerate(FILE_SYSTEMS)
    for made in [kind.split()[0].replace("tmpfs", "")]
]


def looked(script: str = "true", arguments: tuple[str, ...] = ("",), **environment: str) -> Any:
    """Return the output of `looking.py`, run after a script in a new mount namespace."""
    command = ["unshare", "--mount", "--propagation", "private"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*command, "sh", "-ec", f'{{ {script}; }} >&2; exec "$PYTHON" "$LOOKING"', *arguments],
        env={**os.environ, "PYTHON": sys.executable, "LOOKING": str(LOOKING), **environment},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def here(system: System) -> Any:
    """Return the output with the cache directory in its usual place."""
    return looked()


@pytest.fixture(scope="module")
def all_names(system: System) -> None:
    with NamespaceSandbox(system) as sandbox:
        assert sandbox.lower is LowerForm.NAMES


@needs("root", "Linux 6.16")
@pytest.mark.usefixtures("all_names")
@pytest.mark.parametrize("kind", KINDS)
def test_the_cache_may_lie_on_any_file_system(
    kind: str, here: Any, system: System, tmp_path: Path
) -> None:
    """The same inputs give the same bytes, whichever file system holds the system's files."""
    with (tmp_path / "image").open("wb") as image:
        image.truncate(ROOM)
    (there := tmp_path / "cache").mkdir()
    copy = (  # a system's files for runs, without those for microVMs
        'there="$0/systems/${3##*/}"; mkdir -p "$there"; cp -a "$2/names" "$0"; '
        'find "$3" -mindepth 1 -maxdepth 1 ! -name microvm -exec cp -a {} "$there" \\;'
    )
    arguments = (str(there), str(tmp_path / "image"), str(cache_directory()), str(system.path))
    found = looked(f"{FILE_SYSTEMS[kind]}; {copy}", arguments, SHIOENV_CACHE=str(there))
    for ours, theirs in zip(here, found, strict=True):
        assert ours == theirs, "\n".join(_changed(ours[2], theirs[2])[:20])


def _changed(ours: str, theirs: str) -> list[str]:
    lines = difflib.unified_diff(ours.splitlines(), theirs.splitlines(), n=0, lineterm="")
    return list(lines)


TIMES = "stat -c '%n %x' README.md data; find . -newerat '@1800000000'; ls -lu --time-style=+%s"


def test_what_the_host_reads_does_not_show(system: System) -> None:
    """Nor do access times: those of the system's files are permanently at its instant."""
    idmap = find_idmap()

    def read_at(moment: int) -> None:
        command = ["touch", "-a", f"--date=@{moment}", "README.md", "data"]
        done = run_mapped(command, idmap=idmap, cwd=system.rootfs / "home/ubuntu")
        assert done.returncode == 0, done.stderr

    instant = int(system.declaration.instant.timestamp())
    with NamespaceSandbox(system) as sandbox:
        before = sandbox.run(Request(TIMES)).output
        try:
            read_at(1_900_000_000)
            assert sandbox.run(Request(TIMES)).output == before
            with NamespaceSandbox(system) as another:
                assert another.run(Request(TIMES)).output == before
        finally:
            read_at(instant)
    assert f"{system.declaration.instant:%Y-%m-%d %H:%M:%S}".encode() in before


def test_what_an_input_reads_does_not_show_in_the_next(system: System) -> None:
    """A file's size on the disk is the host's once it was opened: it must be the same."""
    look = Request("stat -c %x /; du -ax / | cksum; ls -lu data; stat -c %b data/*")
    with NamespaceSandbox(system) as sandbox:
        before = sandbox.run(look).output
        sandbox.run(
            Request("cat data/* /usr/bin/* /var/log/* > /dev/null 2>&1; ls -R / > /dev/null")
        )
        assert sandbox.run(look).output == before


def test_what_is_kept_is_kept_once(system: System) -> None:
    """A reopened sandbox has its old tree, and a closed one has nothing."""
    made = Request("stat -c %W README.md")
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with NamespaceSandbox(system) as sandbox:
        first = sandbox.run(made).output
        assert sandbox.run(Request("hostname other")).hostname
        assert sandbox._process is None, "the name was changed: the next run opens it anew"
        assert sandbox.run(made).output == first
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


REPLACED = """
mount -t tmpfs none /mnt
for node in null zero full random urandom tty; do cp -a /dev/$node /mnt; done
cp -a /mnt/null /mnt/other
mount --bind /mnt /dev
exec setpriv --bounding-set -mknod --inh-caps -mknod "$0" -c "$1" "$2"
"""
"""Without the right to make device nodes, root has those of the host, like an ordinary user."""

LOOKS_AT_NULL = """
import os, sys, time
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import find_system

with NamespaceSandbox(find_system()) as sandbox:
    for look in ("readlink /proc/self/fd/0", "touch x; readlink /proc/self/fd/0"):
        time.sleep(float(sys.argv[1]))
        assert sandbox.run(Request(look)).output == b"/dev/null\\n"
        os.rename("/dev/other", "/dev/null")
        os.link("/dev/zero", "/dev/other")
        time.sleep(float(sys.argv[1]))
        assert sandbox.run(Request(look)).output == b"/dev/null\\n"
"""


@needs("root")  # it replaces device nodes
@pytest.mark.parametrize("seconds", ["0", "0.3"])
def test_a_node_of_the_host_that_is_replaced_is_not_shown_as_deleted(
    seconds: str, system: System
) -> None:
    """An ordinary user's sandboxes continue after a program has replaced /dev/null. The replacement
    may follow another change of /dev, and may be long ago.
    """
    program = (sys.executable, LOOKS_AT_NULL, seconds)
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-ec", REPLACED, *program],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


# ---- where the kernel has no layers of data alone ----


@pytest.fixture(scope="module")
def part(system: System) -> Iterator[NamespaceSandbox]:
    with NamespaceSandbox(system, LIMITS, lower=LowerForm.PART) as opened:
        assert opened.lower is LowerForm.PART
        yield opened


@pytest.mark.parametrize("check", by_day(CHECKS, 3), ids=lambda check: check.__name__)
def test_contract_with_a_part_of_the_tree_in_memory(check: Check, part: NamespaceSandbox) -> None:
    check(part)


def test_a_part_of_the_tree_shows_the_same_but_for_usr(
    part: NamespaceSandbox, system: System
) -> None:
    look = Request("ls -laf; ls -f / /etc; find /etc /home /root /var /srv -printf '%p %s %A@\n'")
    with NamespaceSandbox(system, LIMITS) as whole:
        assert part.run(look).output == whole.run(look).output


def test_a_system_that_is_gone_is_said_to_be(system: System, tmp_path: Path) -> None:
    from dataclasses import replace

    with pytest.raises(SystemNotBuiltError, match="are missing"):
        NamespaceSandbox(replace(system, path=tmp_path))
