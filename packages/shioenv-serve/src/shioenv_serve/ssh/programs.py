"""The C programs that run beside an sshd, which are compiled when the package is built."""

from __future__ import annotations

from pathlib import Path

from shioenv.native import built

_PROGRAMS = Path(__file__).parents[1] / "native" / "bin"
_FILES = {
    "keeper": "ssh-keeper",
    "session": "ssh-session",
    "names": "ssh-names.so",
    "passwords": "ssh-passwords.so",
}


def ssh_programs() -> dict[str, bytes]:
    """Contents of the programs `keeper` and `session` and the modules `names` and `passwords`.

    Errors: HostError where one is missing.
    """
    return {
        name: built(_PROGRAMS, file, "shioenv-serve").read_bytes() for name, file in _FILES.items()
    }
