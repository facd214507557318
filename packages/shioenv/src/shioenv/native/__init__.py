"""Paths of the compiled C programs and libraries.

`shioenv-sandbox` creates namespaces and supervises one sandbox. `preload.so` turns the system's own
bash into a fork server. `shioenv_backends/microvm/programs.py` lists the programs of a microVM,
`shioenv_serve/ssh/programs.py` those for an sshd. All of these are compiled when their package is
built. They do not depend on the host's C library: programs are linked statically, and libraries use
the C library of the system.

`committed/answers.so` and `committed/processor.so` hold code that the build of a system patches
into its C library and its loader. Inputs can see this code, so it must be the same everywhere: it
was compiled once and committed (`scripts/committed.py`). Seccomp filters are compiled and committed
as well (`scripts/filter.py`), next to their lists.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from shioenv.errors import HostError

_HERE = Path(__file__).parent

PROGRAMS: Final = _HERE / "bin"
"""The directory of the compiled programs and libraries."""


def built(directory: Path, name: str, package: str = "shioenv") -> Path:
    """Return the path of a program that was compiled when its package was built.

    Errors: HostError if the program is missing. The hint is to reinstall `package`.
    """
    path = directory / name
    if not path.exists():
        raise HostError(
            f"the compiled helper {path} is missing",
            hint=f"install the package again (pip install {package}); from a clone: make setup",
        )
    return path


def sandbox_program() -> Path:
    """Return the program that supervises a sandbox (`run`) or enters a user namespace (`exec`)."""
    return built(PROGRAMS, "shioenv-sandbox")


def preload_library() -> Path:
    """Return the library that turns a system's bash into a fork server."""
    return built(PROGRAMS, "preload.so")


def answers_code() -> bytes:
    """Return the code for a system's C library, as a shared object that is never loaded itself."""
    return (_HERE / "committed" / "answers.so").read_bytes()


def processor_code() -> bytes:
    """Return the code for a system's loader, as a shared object that is never loaded itself.

    The code looks up the declared results of `cpuid` in rows that are appended to it.
    """
    return (_HERE / "committed" / "processor.so").read_bytes()


def read_filter(file: Path, constants: Mapping[str, int]) -> bytes:
    """Read a seccomp filter as BPF instructions, with values for its named constants.

    A line of the file is one instruction: code, jump if true, jump if false, constant.
    """
    program = b""
    for line in file.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            *numbers, constant = line.split()
            value = constants[constant] if constant in constants else int(constant)
            program += struct.pack("=HBBI", *map(int, numbers), value)
    return program
