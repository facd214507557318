"""The library inside a system's bash runs on that system's C library, whatever the host's is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from shioenv import native
from shioenv.system.store import System

ROOT = Path(__file__).parents[2]
OLDEST = (2, 31)
"""The oldest glibc whose bash is served: Ubuntu 20.04's and Debian 11's."""


def allowed() -> set[str]:
    lines = (ROOT / "src/shioenv/native/inside/imports.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def test_it_asks_for_what_is_listed_and_for_no_version_of_it(hatch_build: ModuleType) -> None:
    asked = hatch_build.imports_of(native.preload_library())
    assert "dlsym" in asked
    assert asked <= allowed()


def test_it_needs_no_library_of_the_host() -> None:
    shown = subprocess.run(
        ["readelf", "--dynamic", "--version-info", native.preload_library()],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "Dynamic section at offset" in shown
    assert "(NEEDED)" not in shown
    assert "GLIBC" not in shown


def test_a_shell_is_as_large_whoever_compiled_it() -> None:
    """`ps` and /proc/PID/status show a shell's size to inputs, this library's pages among it."""
    shown = subprocess.run(
        ["readelf", "--segments", "--wide", native.preload_library()],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    rows = re.findall(r"^ +LOAD +0x\w+ 0x(\w+) 0x\w+ 0x\w+ 0x(\w+) (.{3})", shown, re.MULTILINE)
    spans = [(int(start, 16), int(start, 16) + int(size, 16), flags) for start, size, flags in rows]
    pages = [(flags.strip(), (end + 4095) // 4096 - start // 4096) for start, end, flags in spans]
    assert pages == [("R", 2), ("R E", 4), ("R", 1), ("RW", 19)]


def test_what_is_listed_is_in_every_c_library_since_the_oldest(system: System) -> None:
    (library,) = system.rootfs.glob("lib/x86_64-linux-gnu/libc.so.6")
    shown = subprocess.run(
        ["nm", "--dynamic", "--with-symbol-versions", "--defined-only", library],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    versions: dict[str, list[tuple[int, ...]]] = {}
    for name, version in re.findall(r" (\w+)@@?GLIBC_([\d.]+)$", shown, re.MULTILINE):
        versions.setdefault(name, []).append(tuple(map(int, version.split("."))))
    assert {name for name in allowed() if min(versions[name]) > OLDEST} == set()


@pytest.mark.parametrize("name", ["__isoc23_strtol", "atexit", "strlcpy"])
def test_a_build_that_asks_for_more_ends_with_its_name(
    name: str, hatch_build: ModuleType, tmp_path: Path
) -> None:
    """Two that glibc 2.38 brought, and one that stands in the part linked in from the host."""
    sources = tmp_path / "src/shioenv/native"
    shutil.copytree(ROOT / "src/shioenv/native", sources, ignore=shutil.ignore_patterns("bin"))
    text = f"long {name}(void), newer(void);\nlong newer(void) {{ return {name}(); }}\n"
    (sources / "inside/newer.c").write_text(text)
    with pytest.raises(SystemExit, match=rf"preload\.so asks .* for {name}, which an older one"):
        hatch_build.compile_native(tmp_path)
    assert not (sources / "bin/preload.so").exists()
