"""A run's changes are read completely, each file once, or reported as cut: scan.c by itself.

The code is compiled alone and gets three trees, in a new mount namespace. The layers are two fresh
file systems, which number their files alike.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shioenv import native

SCANNING = r"""
import ctypes, fcntl, json, os, signal, sys
from shioenv.sandbox.change_records import parse_changes

class Buffer(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_void_p), ("length", ctypes.c_size_t), ("room", ctypes.c_size_t)]

class End(ctypes.Structure):
    _fields_ = [("error", ctypes.c_int), ("truncated", ctypes.c_bool), ("late", ctypes.c_bool),
                ("linked", ctypes.c_bool)]

library = ctypes.CDLL(sys.argv[1])
library.scan_changes.restype = End

def bytes_read():
    return int(open("/proc/self/io").read().split()[1])

def scan(milliseconds=5000):
    os.sync()
    trees = [os.open(name, os.O_RDONLY) for name in ("lower/root", "upper/root", "upper/merged")]
    out = Buffer()
    before = bytes_read()
    most = ctypes.c_uint32(milliseconds)
    end = library.scan_changes(*trees, most, ctypes.byref(out))
    read = bytes_read() - before
    data = ctypes.string_at(out.bytes, out.length) if out.length else b""
    found = {}
    for change in parse_changes(memoryview(data)):
        sides = [side and [side.inode, side.digest] for side in (change.before, change.after)]
        found[change.path.decode()] = sides
    return {"error": end.error, "truncated": end.truncated, "late": end.late, "read": read,
            "found": found}

def write(path, content, *names):
    with open(path, "wb") as file:
        file.write(content)
    for name in names:
        os.link(path, name)

for layer in ("lower", "upper"):
    os.mkdir(layer)
    if os.system(f"mount -t tmpfs none {layer}"):
        sys.exit("no tmpfs")
os.mkdir("lower/root")
os.mkdir("upper/root")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scanner as a library."""
    code = Path(native.__file__).with_name("around")
    path = tmp_path_factory.mktemp("scan") / "scan.so"
    compiler = shutil.which("cc") or "gcc"
    sources = [code / "scan.c", code / "sha256.c"]
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", path, *sources], check=True)
    return path


def scanned(library: Path, directory: Path, trees: str, milliseconds: int = 5000) -> Any:
    """Return the scan's output for the trees that a text of Python makes."""
    text = f"{SCANNING}\n{trees}\nprint(json.dumps(scan({milliseconds})))\n"
    ended = subprocess.run(
        ["unshare", "--map-root-user", "--mount", sys.executable, "-c", text, str(library)],
        cwd=directory,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


REPLACED = """
write("lower/root/a", b"old!", "lower/root/b")
write("upper/root/x", b"new!", "upper/root/y")
os.mkdir("upper/merged")
for name in "ab":
    os.mknod(f"upper/root/{name}")
for name in "xy":
    os.link(f"upper/root/{name}", f"upper/merged/{name}")
"""


def test_a_digest_is_of_its_own_file_where_layers_number_files_alike(
    library: Path, tmp_path: Path
) -> None:
    found = scanned(library, tmp_path, REPLACED)["found"]
    gone, new = found["/a"][0], found["/x"][1]
    assert gone[0] == new[0], "both files have the same number"
    digests = {name: [side and side[1] for side in sides] for name, sides in found.items()}
    old = hashlib.sha256(b"old!").hexdigest()
    assert digests["/a"] == digests["/b"] == [old, None]
    assert digests["/x"] == digests["/y"] == [None, hashlib.sha256(b"new!").hexdigest()]


LINKED = """
os.mkdir("upper/root/d")
for number in range(700):
    write(f"upper/root/d/{number}", b"%d " % number * 9999)
    for name in range(8):
        os.link(f"upper/root/d/{number}", f"upper/root/d/{name}.{number}")
os.symlink("root", "upper/merged")
"""
"""Files with many hard links, more of them than a small table can hold."""


def test_a_file_is_read_once_however_many_names_it_has(library: Path, tmp_path: Path) -> None:
    answer = scanned(library, tmp_path, LINKED)
    sizes = [len(b"%d " % number * 9999) for number in range(700)]
    assert sum(sizes) < answer["read"] < 1.1 * sum(sizes)
    for number in (0, 255, 256, 699):
        digest = hashlib.sha256(b"%d " % number * 9999).hexdigest()
        for name in (f"{number}", f"0.{number}", f"7.{number}"):
            assert answer["found"][f"/d/{name}"][1][1] == digest
    assert (answer["error"], answer["truncated"]) == (0, False)


def test_a_scan_ends_when_its_time_is_over_and_says_so(library: Path, tmp_path: Path) -> None:
    answer = scanned(library, tmp_path, LINKED, 1)
    assert (answer["error"], answer["truncated"], answer["late"]) == (0, True, True)
    assert answer["read"] < 30_000_000


TURNED = """
os.mkdir("lower/root/d")
write("lower/root/d/old", b"x")
os.mkdir("upper/root/d")
os.setxattr("upper/root/d", "user.overlay.opaque", b"y")
write("upper/root/d/new", b"y" * 50_000_000)
os.symlink("root", "upper/merged")
"""
"""A directory that is replaced by another one."""


@pytest.mark.parametrize(("milliseconds", "expected"), [(5000, ["/d/old"]), (2, [])])
def test_what_is_not_told_to_its_end_is_not_told_as_gone(
    library: Path, tmp_path: Path, milliseconds: int, expected: list[str]
) -> None:
    answer = scanned(library, tmp_path, TURNED, milliseconds)
    assert answer["truncated"] is (milliseconds == 2)
    assert [path for path, (_, after) in answer["found"].items() if after is None] == expected


LEASED = """
write("lower/root/f", b"old!")
write("upper/root/f", b"new!")
os.symlink("root", "upper/merged")
signal.signal(signal.SIGIO, signal.SIG_IGN)  # which asks to give the lease back
leased = os.open("upper/root/f", os.O_RDWR)
fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_WRLCK)
"""


def test_a_file_that_cannot_be_read_is_an_error(library: Path, tmp_path: Path) -> None:
    assert scanned(library, tmp_path, LEASED)["error"] == errno.EWOULDBLOCK
