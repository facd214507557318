"""Compile the C programs of the packages; shared by the `hatch_build.py` of each package.

A package's source distribution has a copy of this file next to its `hatch_build.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-fstack-protector-strong"]
FORTIFIED = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
ON_SYSTEM = ["-shared", "-fPIC", "-nostdlib", "-U_FORTIFY_SOURCE"]
"""For a library that runs on the C library of a system: it is linked against none."""

SUPERVISOR = ("around/*.c", "inside/server.c", "inside/directory.c")
"""Sources of the supervisor of a sandbox, on a host and in a microVM."""

Programs = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""By name: the sources, as patterns below the directories of sources, and the flags of the
compiler. No program uses the host's C library, so that one wheel runs on every distribution."""

PLATFORM = "manylinux_2_17_x86_64"
"""The platform in the wheel's tag. The programs need no glibc, but an index requires a version."""

IMPORTS = "inside/imports.txt"
"""Symbols that `preload.so` may take from a system's C library; among its sources."""


def find(root: Path, name: str, borrowed: Mapping[str, str]) -> Path:
    """Return the path of a file or directory in a package's source distribution, or in the clone.

    `borrowed` has, by the name in the source distribution, the path in the clone from the package.
    """
    own = root / name
    return own if own.exists() or name not in borrowed else root / borrowed[name]


def compile_programs(programs: Programs, sources: Sequence[Path], target: Path) -> list[Path]:
    """Compile programs into the directory `target`, and return their paths.

    Each pattern of a program is looked for in the directories `sources`, and each `#include` too.
    SystemExit without a C compiler, and where a program cannot be compiled.
    """
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise SystemExit("shioenv needs a C compiler to build: apt-get install gcc libc6-dev")
    target.mkdir(exist_ok=True)
    built = []
    for name, (patterns, flags) in programs.items():
        output = target / name
        # Written under another name and renamed: a sandbox may be running the old one.
        partial = output.with_suffix(".partial")
        command = [*compiler.split(), *FLAGS, *(f"-I{place}" for place in sources)]
        for pattern in patterns:
            command += [str(path) for place in sources for path in sorted(place.glob(pattern))]
        done = subprocess.run([*command, "-o", str(partial), *flags], check=False)
        if done.returncode:
            raise SystemExit(
                f"{name} could not be compiled; where the linker found no -lc, the C library for "
                "static linking is missing: libc6-dev (Debian), glibc-static (Fedora)"
            )
        if name == "preload.so":
            (allowed,) = (path for place in sources for path in place.glob(IMPORTS))
            refuse_other_imports(partial, allowed)
        partial.replace(output)
        built.append(output)
    return built


def imports_of(library: Path) -> set[str]:
    """Return the symbols that a library imports, each with `@VERSION` where it has one."""
    listed = subprocess.run(
        ["nm", "--dynamic", "--undefined-only", str(library)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return {line.split()[-1] for line in listed.stdout.splitlines()}


def refuse_other_imports(library: Path, allowed: Path) -> None:
    """End the build where the library imports a symbol that is not listed."""
    lines = allowed.read_text(encoding="utf-8").splitlines()
    others = imports_of(library) - {line for line in lines if not line.startswith("#")}
    if others:
        raise SystemExit(
            f"{library.stem}.so asks the C library of a system for {', '.join(sorted(others))}, "
            "which an older one need not have: no shell state could be read there. Call something "
            f"else, or add it to {IMPORTS} where glibc 2.31 has it"
        )


class NativeBuildHook(BuildHookInterface[Any]):
    """Compile for wheels and editable installs; copy what is borrowed into source distributions."""

    native: ClassVar[str]
    """The package's own directory of C sources; its `bin` gets the programs."""
    programs: ClassVar[Programs]
    """The programs of the package."""
    borrowed: ClassVar[Mapping[str, str]]
    """Files and directories of the clone that a source distribution needs: see `find`."""
    core: ClassVar[str | None] = None
    """The directory with the core's C sources in a source distribution, if they are needed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and name the platform in the wheel's tag, or add what is borrowed."""
        root = Path(self.root)
        if self.target_name == "sdist":
            for name in self.borrowed:
                path = find(root, name, self.borrowed)
                build_data["force_include"][str(path.resolve())] = name
            return
        if self.target_name != "wheel":
            return
        built = compile_package(root, type(self))
        build_data["artifacts"] += [str(path.relative_to(root)) for path in built]
        build_data["tag"] = f"py3-none-{PLATFORM}"
        build_data["pure_python"] = False


def compile_package(root: Path, hook: type[NativeBuildHook]) -> list[Path]:
    """Compile the programs of the package at `root` into its `bin`, and return their paths."""
    sources = [root / hook.native]
    if hook.core is not None:
        # each subdirectory is borrowed by itself, and all lie beside each other in the clone too
        first = next(name for name in hook.borrowed if name.startswith(f"{hook.core}/"))
        sources.append(find(root, first, hook.borrowed).resolve().parent)
    return compile_programs(hook.programs, sources, root / hook.native / "bin")


def long_description(readme: str, repository: str | None, version: str) -> str:
    """Return README.md for a package index: links lead to the files of this version in the
    repository.

    Without a repository links become plain text. Pictures are left out.
    """
    if repository is None:
        readme = re.sub(r"<picture>.*?</picture>\n*", "", readme, flags=re.DOTALL)
        return re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", readme)
    readme = re.sub(r"\]\((?!https?:)", f"]({repository}/blob/v{version}/", readme)
    return re.sub(r'(src|srcset)="(?!https?:)', rf'\1="{repository}/raw/v{version}/', readme)
