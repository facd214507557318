"""The small C programs and where they are.

`shioenv-sandbox` makes namespaces and supervises one sandbox; `preload.so` turns the system's own
bash into a fork server. `shioenv-guest` is process 1 of a microVM and `shioenv-guest-sandbox` the
supervisor there. These are compiled when the package is built.

`committed/answers.so` holds what the build of a system writes into its C library. Inputs can see
it, so it is compiled once, by one compiler, and committed (`scripts/committed.py`).
"""

from __future__ import annotations

from pathlib import Path

from shioenv.errors import HostError

_HERE = Path(__file__).parent
_BINARIES = _HERE / "bin"


def _built(name: str) -> Path:
    path = _BINARIES / name
    if not path.exists():
        raise HostError(
            f"the compiled helper {path} is missing",
            hint="install the package again (pip install shioenv); from a clone: make setup",
        )
    return path


def sandbox_program() -> Path:
    """The executable that supervises a sandbox (`run`) or enters a user namespace (`exec`)."""
    return _built("shioenv-sandbox")


def preload_library() -> Path:
    """The library that is loaded into a system's bash."""
    return _built("preload.so")


def guest_agent() -> Path:
    """Process 1 of a microVM, linked against nothing."""
    return _built_static("shioenv-guest")


def guest_sandbox() -> Path:
    """What `sandbox_program` is, linked against nothing."""
    return _built_static("shioenv-guest-sandbox")


def _built_static(name: str) -> Path:
    if (_BINARIES / "shioenv-sandbox").exists() and not (_BINARIES / name).exists():
        raise HostError(
            f"{name} was not compiled with the other helpers: the C library for static linking "
            "was missing",
            hint="install it (Debian: libc6-dev, Fedora: glibc-static) and shioenv again",
        )
    return _built(name)


def answers_code() -> bytes:
    """What a system's C library is to answer: a shared object that is copied from, never loaded."""
    return (_HERE / "committed" / "answers.so").read_bytes()
