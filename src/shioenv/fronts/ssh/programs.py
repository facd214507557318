"""The C programs that run beside an sshd, which are compiled when the package is built."""

from __future__ import annotations

from shioenv import native

_FILES = {
    "keeper": "ssh-keeper",
    "session": "ssh-session",
    "names": "ssh-names.so",
    "passwords": "ssh-passwords.so",
}


def ssh_programs() -> dict[str, bytes]:
    """Contents of the programs `keeper` and `session` and the modules `names` and `passwords`."""
    return {name: native.built(native.PROGRAMS, file).read_bytes() for name, file in _FILES.items()}
