"""The compiled C programs and libraries, and where they are.

`shioenv-sandbox` makes namespaces and supervises one sandbox. `preload.so` turns the system's own
bash into a fork server. `shioenv_backends/microvm/programs.py` has the programs of a microVM,
`shioenv_serve/ssh/programs.py` those that run beside an sshd. All of these are compiled when their
package is built. They take nothing from the host's C library: the programs are linked statically,
and the libraries run on the system's.

`committed/answers.so` and `committed/processor.so` hold the code that the build of a system writes
into its C library and into its loader. Inputs can see this code, so it was compiled once, by one
compiler, and committed (`scripts/committed.py`). Filters of system calls are compiled and committed
as well (`scripts/filter.py`); they lie beside their lists.
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
    """The path of a program that was compiled into a directory when its package was built.

    Errors: HostError where the program is missing. The hint installs `package` again.
    """
    path = directory / name
    if not path.exists():
        raise HostError(
            f"the compiled helper {path} is missing",
            hint=f"install the package again (pip install {package}); from a clone: make setup",
        )
    return path


def sandbox_program() -> Path:
    """The executable that supervises a sandbox (`run`) or enters a user namespace (`exec`)."""
    return built(PROGRAMS, "shioenv-sandbox")


def preload_library() -> Path:
    """The library that is loaded into a system's bash and makes a fork server of it."""
    return built(PROGRAMS, "preload.so")


def answers_code() -> bytes:
    """The code for a system's C library: a shared object that is copied from and never loaded."""
    return (_HERE / "committed" / "answers.so").read_bytes()


def processor_code() -> bytes:
    """The code for a system's loader: a shared object that is copied from and never loaded.

    It looks up what the processor would answer, in rows that begin at its end.
    """
    return (_HERE / "committed" / "processor.so").read_bytes()


def read_filter(file: Path, constants: Mapping[str, int]) -> bytes:
    """Return a filter of system calls as BPF instructions, with the values of its named constants.

    A line of the file is one instruction: code, jump if true, jump if false, constant.
    """
    program = b""
    for line in file.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            *numbers, constant = line.split()
            value = constants[constant] if constant in constants else int(constant)
            program += struct.pack("=HBBI", *map(int, numbers), value)
    return program
