"""Compiles the small C programs of `shioenv.native` into the wheel (or, editable, in place)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("src/shioenv/native")
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-fstack-protector-strong"]
PROGRAMS = {
    "shioenv-sandbox": (
        ("around/*.c", "inside/server.c"),
        ["-pie", "-fPIE", "-Wl,-z,relro,-z,now", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"],
    ),
    # Runs on the C library of a system: linked against none, and what is called is what is written.
    "preload.so": (
        ("inside/*.c",),
        ["-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-U_FORTIFY_SOURCE"],
    ),
}
"""By name: where its sources are below `native`, and how they are compiled and linked."""

STATIC = {
    "shioenv-guest": (
        ("guest/*.c", "around/configuration.c", "around/scan.c", "around/sha256.c"),
        ["-static", "-Wl,--build-id=none"],
    ),
    "shioenv-guest-sandbox": (
        ("around/*.c", "inside/server.c"),
        ["-static", "-Wl,--build-id=none", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"],
    ),
}
"""For microVMs, where no library is: left out where the C library cannot be linked statically."""

IMPORTS = NATIVE / "inside/imports.txt"
"""What `preload.so` may ask a system's C library for."""


def compile_native(root: Path) -> list[Path]:
    """Compiles every program into `native/bin` and returns their paths; needs a C compiler."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise SystemExit("shioenv needs a C compiler to build: apt-get install gcc libc6-dev")
    target = root / NATIVE / "bin"
    target.mkdir(exist_ok=True)
    built = []
    for name, (patterns, flags) in (PROGRAMS | STATIC).items():
        output = target / name
        # Written aside and renamed: a sandbox may be running the old one.
        partial = output.with_suffix(".partial")
        command = [*compiler.split(), *FLAGS, "-o", str(partial)]
        for pattern in patterns:
            command += map(str, sorted((root / NATIVE).glob(pattern)))
        done = subprocess.run([*command, *flags], check=name not in STATIC, cwd=root)
        if done.returncode:
            print(f"{name} is left out: no microVM can be built with this installation")
            output.unlink(missing_ok=True)
            continue
        if name == "preload.so":
            refuse_other_imports(partial, root / IMPORTS)
        partial.replace(output)
        built.append(output)
    return built


def imports_of(library: Path) -> set[str]:
    """The symbols a library takes from others, each with `@VERSION` where it asks for one."""
    listed = subprocess.run(
        ["nm", "--dynamic", "--undefined-only", str(library)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return {line.split()[-1] for line in listed.stdout.splitlines()}


def refuse_other_imports(library: Path, allowed: Path) -> None:
    """Ends the build where the library asks for a symbol that is not listed."""
    lines = allowed.read_text(encoding="utf-8").splitlines()
    others = imports_of(library) - {line for line in lines if not line.startswith("#")}
    if others:
        raise SystemExit(
            f"{library.stem}.so asks the C library of a system for {', '.join(sorted(others))}, "
            "which an older one need not have: no shell state could be read there. Call something "
            f"else, or add it to {IMPORTS} where glibc 2.31 has it"
        )


class NativeBuildHook(BuildHookInterface[Any]):
    """Runs the compiler for wheels and editable installs; a source distribution stays source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles and names the platform in the wheel's tag."""
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        build_data["artifacts"] += [str(path.relative_to(root)) for path in compile_native(root)]
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False


if __name__ == "__main__":
    for path in compile_native(Path(__file__).parent):
        print(path)
