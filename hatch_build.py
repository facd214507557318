"""Compiles the small C programs of `shioenv.native` into the wheel (or, editable, in place).

It also makes the long description of README.md, whose links would lead nowhere on a package index.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

NATIVE = Path("src/shioenv/native")
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-fstack-protector-strong"]
FORTIFIED = ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
PROGRAMS = {
    # Runs on the C library of a system: linked against none, and what is called is what is written.
    "preload.so": (
        ("inside/*.c",),
        ["-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-U_FORTIFY_SOURCE"],
    ),
    "shioenv-sandbox": (
        ("around/*.c", "inside/server.c", "inside/directory.c"),
        [
            "-static-pie",
            "-fPIE",
            "-pthread",
            "-Wl,-z,relro,-z,now",
            "-Wl,--build-id=none",
            *FORTIFIED,
        ],
    ),
    # Modules for the sshd of a system: linked against none of its libraries, as `preload.so`.
    "ssh-names.so": (("ssh/names.c",), ["-shared", "-fPIC", "-nostdlib", "-U_FORTIFY_SOURCE"]),
    "ssh-passwords.so": (
        ("ssh/passwords.c",),
        ["-shared", "-fPIC", "-nostdlib", "-U_FORTIFY_SOURCE"],
    ),
    # For microVMs, where no library is.
    "shioenv-guest": (
        (
            *("guest/*.c", "around/configuration.c", "around/scan.c", "around/sha256.c"),
            "inside/directory.c",
        ),
        ["-static", "-Wl,--build-id=none"],
    ),
    "shioenv-guest-sandbox": (
        ("around/*.c", "inside/server.c", "inside/directory.c"),
        ["-static", "-pthread", "-Wl,--build-id=none", *FORTIFIED],
    ),
    # Beside the sshd of a system.
    "ssh-keeper": (("ssh/keeper.c",), ["-static"]),
    "ssh-session": (("ssh/session.c",), ["-static"]),
}
"""By name: where its sources are below `native`, and how they are compiled and linked. None takes
anything from a C library of the host, so that one wheel runs on every distribution."""

PLATFORM = "manylinux_2_17_x86_64"
"""What the wheel's tag says. The programs need no glibc; an index wants one to be named."""

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
    for name, (patterns, flags) in PROGRAMS.items():
        output = target / name
        # Written aside and renamed: a sandbox may be running the old one.
        partial = output.with_suffix(".partial")
        command = [*compiler.split(), *FLAGS, "-o", str(partial)]
        for pattern in patterns:
            command += map(str, sorted((root / NATIVE).glob(pattern)))
        if subprocess.run([*command, *flags], check=False, cwd=root).returncode:
            raise SystemExit(
                f"{name} could not be compiled; where the linker found no -lc, the C library for "
                "static linking is missing: libc6-dev (Debian), glibc-static (Fedora)"
            )
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
