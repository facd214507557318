"""The compiled C programs and libraries, and where they are.

`shioenv-sandbox` makes namespaces and supervises one sandbox. `preload.so` turns the system's own
bash into a fork server. `shioenv-guest` is process 1 of a microVM; `shioenv-guest-sandbox` is the
supervisor there. `ssh-keeper`, `ssh-session`, `ssh-names.so` and `ssh-passwords.so` go beside an
sshd (`shioenv serve ssh`). All of these are compiled when the package is built. They take
nothing from the host's C library: the programs are linked statically, and the libraries run on the
system's.

`committed/answers.so` and `committed/processor.so` hold the code that the build of a system writes
into its C library and into its loader. Inputs can see this code, so it was compiled once, by one
compiler, and committed (`scripts/committed.py`).
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
    """The library that is loaded into a system's bash and makes a fork server of it."""
    return _built("preload.so")


def guest_agent() -> Path:
    """Process 1 of a microVM."""
    return _built("shioenv-guest")


def guest_sandbox() -> Path:
    """The supervisor of a sandbox in a microVM."""
    return _built("shioenv-guest-sandbox")


def ssh_programs() -> dict[str, bytes]:
    """What goes beside an sshd: `keeper` and `session`, and the modules `names` and `passwords`."""
    keeper, session = _built("ssh-keeper"), _built("ssh-session")
    return {
        "keeper": keeper.read_bytes(),
        "session": session.read_bytes(),
        "names": _built("ssh-names.so").read_bytes(),
        "passwords": _built("ssh-passwords.so").read_bytes(),
    }


def answers_code() -> bytes:
    """The code for a system's C library: a shared object that is copied from and never loaded."""
    return (_HERE / "committed" / "answers.so").read_bytes()


def processor_code() -> bytes:
    """The code for a system's loader: a shared object that is copied from and never loaded.

    It looks up what the processor would answer, in rows that begin at its end.
    """
    return (_HERE / "committed" / "processor.so").read_bytes()
