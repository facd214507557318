"""The library inside a system's bash runs on that system's C library, on every host."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

import native_build
from shioenv import native
from shioenv.system.store import System

ROOT = Path(__file__).parents[2]
OLDEST = (2, 31)
"""The oldest glibc whose bash is served: Ubuntu 20.04's and Debian 11's."""


def allowed() -> set[str]:
    lines = (
        (ROOT / "packages/shioenv/src/shioenv/native/inside/imports.txt").read_text().splitlines()
    )
    return {line for line in lines if line and not line.startswith("#")}


def test_it_asks_for_what_is_listed_and_for_no_version_of_it() -> None:
    asked = native_build.imports_of(native.preload_library())
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
    name: str, hooks: dict[str, ModuleType], tmp_path: Path
) -> None:
    """Two symbols are new in glibc 2.38, and one is in the part linked in from the host."""
    sources = tmp_path / "src/shioenv/native"
    shutil.copytree(
        ROOT / "packages/shioenv/src/shioenv/native", sources, ignore=shutil.ignore_patterns("bin")
    )
    text = f"long {name}(void), newer(void);\nlong newer(void) {{ return {name}(); }}\n"
    (sources / "inside/newer.c").write_text(text)
    with pytest.raises(SystemExit, match=rf"preload\.so asks .* for {name}, which an older one"):
        native_build.compile_package(tmp_path, hooks["shioenv"].NativeBuildHook)
    assert not (sources / "bin/preload.so").exists()


def test_each_package_has_the_programs_of_its_hook(hooks: dict[str, ModuleType]) -> None:
    listed = [name for hook in hooks.values() for name in hook.PROGRAMS]
    assert len(listed) == len(set(listed))
    for package, hook in hooks.items():
        programs = ROOT / "packages" / package / hook.NativeBuildHook.native / "bin"
        assert set(hook.PROGRAMS) == {path.name for path in programs.iterdir()}
        assert not [name for name in hook.PROGRAMS if not (programs / name).stat().st_size]


def test_sources_may_lie_in_several_directories(tmp_path: Path) -> None:
    """The programs of a package may be compiled from sources of another package too."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    (own / "guest").mkdir(parents=True)
    (shared / "around").mkdir(parents=True)
    (own / "guest/main.c").write_text('#include "around/one.h"\nint main(void) { return one(); }\n')
    (shared / "around/one.h").write_text("int one(void);\n")
    (shared / "around/one.c").write_text('#include "one.h"\nint one(void) { return 7; }\n')
    table = {"some": (("guest/*.c", "around/one.c"), ["-static"])}
    (program,) = native_build.compile_programs(table, [own, shared], tmp_path / "bin")
    assert subprocess.run([program], check=False).returncode == 7
