"""Compiles the small C programs of `shioenv.native` into the wheel (or, editable, in place).

It also makes the long description of README.md, whose links would lead nowhere on a package index.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

NATIVE = Path("src/shioenv/native")
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-fstack-protector-strong"]
FORTIFIED = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
ON_SYSTEM = ["-shared", "-fPIC", "-nostdlib", "-U_FORTIFY_SOURCE"]
"""For a library that runs on the C library of a system: it is linked against none."""

SUPERVISOR = ("around/*.c", "inside/server.c", "inside/directory.c")
"""Sources of the supervisor of a sandbox, on a host and in a microVM."""

Programs = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""By name: the sources, as patterns below the directories of sources, and the flags of the
compiler. No program takes anything from a C library of the host, so that one wheel runs on every
distribution."""

CORE: Programs = {
    # what is called is what is written
    "preload.so": (("inside/*.c",), [*ON_SYSTEM, "-fno-builtin"]),
    "shioenv-sandbox": (
        SUPERVISOR,
        [
            *("-static-pie", "-fPIE", "-pthread", "-Wl,-z,relro,-z,now", "-Wl,--build-id=none"),
            *FORTIFIED,
        ],
    ),
}
"""Programs of the sandbox in namespaces."""

BACKENDS: Programs = {
    "shioenv-guest": (
        (
            *("guest/*.c", "around/configuration.c", "around/scan.c", "around/sha256.c"),
            "inside/directory.c",
        ),
        ["-static", "-Wl,--build-id=none"],
    ),
    "shioenv-guest-sandbox": (
        SUPERVISOR,
        ["-static", "-pthread", "-Wl,--build-id=none", *FORTIFIED],
    ),
}
"""Programs of microVMs, where no library is. Most of their sources are the core's."""

SERVE: Programs = {
    # modules for the sshd of a system
    "ssh-names.so": (("ssh/names.c",), ON_SYSTEM),
    "ssh-passwords.so": (("ssh/passwords.c",), ON_SYSTEM),
    # beside that sshd
    "ssh-keeper": (("ssh/keeper.c",), ["-static"]),
    "ssh-session": (("ssh/session.c",), ["-static"]),
}
"""Programs of the SSH server."""

PLATFORM = "manylinux_2_17_x86_64"
"""What the wheel's tag says. The programs need no glibc; an index wants one to be named."""

IMPORTS = "inside/imports.txt"
"""Symbols that `preload.so` may take from a system's C library; among its sources."""


def compile_native(root: Path) -> list[Path]:
    """Compile every program of a checkout into `native/bin`, and return their paths."""
    native = root / NATIVE
    return [
        path
        for programs in (CORE, BACKENDS, SERVE)
        for path in compile_programs(programs, [native], native / "bin")
    ]


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
        # Written aside and renamed: a sandbox may be running the old one.
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
        build_data["tag"] = f"py3-none-{PLATFORM}"
        build_data["pure_python"] = False


def long_description(readme: str, repository: str | None, version: str) -> str:
    """README.md for a package index: links lead to the files of this version in the repository.

    Without a repository there is nothing to lead to. Pictures are left out, and the text of links
    stays.
    """
    if repository is None:
        readme = re.sub(r"<picture>.*?</picture>\n*", "", readme, flags=re.DOTALL)
        return re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", readme)
    readme = re.sub(r"\]\((?!https?:)", f"]({repository}/blob/v{version}/", readme)
    return re.sub(r'(src|srcset)="(?!https?:)', rf'\1="{repository}/raw/v{version}/', readme)


class LongDescription(MetadataHookInterface):
    """Gives the project its long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Links lead to the files of this version in the project's repository."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": long_description(text, repository, metadata["version"]),
        }


if __name__ == "__main__":
    for path in compile_native(Path(__file__).parent):
        print(path)
