"""Compile the code that becomes part of a system's files, into `native/committed` of the core.

    make committed

Inputs can see these bytes, so they must not depend on the installing user's compiler. They are
built with gcc 12.2.0 and GNU ld 2.40, those of Debian 12, and are committed. Next to `NAME.so` is
`NAME.made`: compiler, command, and the SHA-256 of the result and of each source. A host with other
versions compiles in a Debian 12 that mmdebstrap makes for it (half a minute, 100 MB).
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from shioenv.system.bootstrap import apt_sources, mmdebstrap_command
from shioenv.system.declare import load_declaration

NATIVE = Path(__file__).parents[1] / "packages/shioenv/src/shioenv/native"
COMPILER = {"gcc": "12.2.0", "ld": "2.40"}
CODE = {"answers": "library", "processor": "loader"}
"""By name, the directory below `native` with all sources and the linker's script, `layout.ld`."""

FLAGS = ["-std=gnu11", "-Os", "-Wall", "-Wextra", "-Wshadow", "-Wno-missing-attributes", "-Werror"]
FLAGS += ["-ffreestanding", "-fvisibility=hidden", "-fno-stack-protector", "-fcf-protection=none"]
FLAGS += ["-fno-asynchronous-unwind-tables", "-shared", "-fPIC", "-nostdlib"]
FLAGS += ["-Wl,-s,-z,defs,-z,norelro,-Bsymbolic,--build-id=none,--hash-style=sysv"]
"""Flags for code that is copied into a library of another system: no exports and no imports."""


def sources(name: str) -> list[str]:
    """Return all files of its directory, below `native`."""
    found = (NATIVE / CODE[name]).iterdir()
    return sorted(str(path.relative_to(NATIVE)) for path in found)


def command(name: str) -> list[str]:
    """Return the command that compiles it in `native`."""
    inputs = [path for path in sources(name) if path.endswith((".c", ".S"))]
    return ["gcc", *FLAGS, f"-Wl,-T,{CODE[name]}/layout.ld", "-o", f"committed/{name}.so", *inputs]


def account(name: str) -> str:
    """Return the contents of `NAME.made` for the current files."""
    lines = [", ".join(map(" ".join, COMPILER.items())), shlex.join(command(name))]
    for path in (f"committed/{name}.so", *sources(name)):
        lines.append(f"{hashlib.sha256((NATIVE / path).read_bytes()).hexdigest()}  {path}")
    return "\n".join(lines) + "\n"


def has_compiler() -> bool:
    """Whether this host has that compiler and linker."""
    for program, version in COMPILER.items():
        if shutil.which(program) is None:
            return False
        said = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
        if said.stdout.splitlines()[0].split()[-1] != version:
            return False
    return True


def compile_here(native: Path) -> None:
    """Compile all of it in a copy of `native`, by this host's compiler."""
    for name in CODE:
        subprocess.run(command(name), cwd=native, check=True)


def compile_in_debian(native: Path) -> None:
    """Compile all of it in a copy of `native`, by the compiler of a Debian 12 made for that."""
    debian = load_declaration("debian-12").distribution
    debian = replace(debian, packages=("gcc", "libc6-dev"), leave_out=(), keep=())
    made = " && ".join(["cd /native", *(shlex.join(command(name)) for name in CODE)])
    hooks = [
        f"copy-in {shlex.quote(str(native))} /",
        f'chroot "$1" sh -c {shlex.quote(made)}',
        f"sync-out /native/committed {shlex.quote(str(native / 'committed'))}",
    ]
    program, *rest = mmdebstrap_command(debian, Path("/dev/null"), apt_sources(debian))
    subprocess.run([program, *(f"--customize-hook={hook}" for hook in hooks), *rest], check=True)


def main() -> None:
    """Compile, and record the sources."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "native"
        shutil.copytree(NATIVE, copy, ignore=shutil.ignore_patterns("bin", "__pycache__"))
        (compile_here if has_compiler() else compile_in_debian)(copy)
        for name in CODE:
            shutil.copyfile(copy / f"committed/{name}.so", NATIVE / f"committed/{name}.so")
            (NATIVE / f"committed/{name}.made").write_text(account(name), encoding="utf-8")
            print(NATIVE / f"committed/{name}.so")


if __name__ == "__main__":
    main()
