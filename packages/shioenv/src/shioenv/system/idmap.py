"""Which of the host's user and group ids stand for a system's ids 0 to 65535, and how to map them.

Ids of this range own a system's files and run its inputs; to the host they are nobody. An ordinary
user owns a range through /etc/subuid and /etc/subgid, and maps it with newuidmap and newgidmap
(package uidmap). Root needs neither.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shioenv import native
from shioenv.errors import HostError, SandboxError
from shioenv.system import refusals

COUNT = 65536
_LONGEST_LINE = 4096  # bytes of the line that the sandbox program writes before it begins
_PATIENCE = 120.0  # seconds that the line may take
_ROOT_BASE = 1_000_000_000
"""Where root's range starts unless /etc/subuid says otherwise: far above any assigned id."""


@dataclass(frozen=True, slots=True)
class IdMap:
    """The host ids that a system's ids 0 to 65535 map to."""

    first_uid: int
    first_gid: int

    def write(self, process: int) -> None:
        """Maps the ids of a user namespace that `process` has just made.

        Raises HostError where the host forbids mapping.
        """
        try:
            for kind, first in (("uid", self.first_uid), ("gid", self.first_gid)):
                if os.geteuid() == 0:
                    Path(f"/proc/{process}/{kind}_map").write_text(f"0 {first} {COUNT}\n")
                else:
                    command = [f"new{kind}map", str(process), "0", str(first), str(COUNT)]
                    subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise HostError(
                f"{error.filename} is missing: an ordinary user needs it to map subordinate ids",
                hint="apt-get install uidmap",
            ) from error
        except subprocess.CalledProcessError as error:
            raise refusals.no_mapping(error.stderr.strip(), _user()) from error
        except OSError as error:
            raise refusals.no_mapping(str(error), _user()) from error


@dataclass(frozen=True, slots=True)
class OwnId:
    """The caller's own user and group id, as id 0: what every user may map without a range."""

    def write(self, process: int) -> None:
        """Maps the ids of a user namespace that `process` has just made.

        Raises HostError where the host forbids mapping.
        """
        try:
            Path(f"/proc/{process}/setgroups").write_text("deny")
            Path(f"/proc/{process}/uid_map").write_text(f"0 {os.geteuid()} 1\n")
            Path(f"/proc/{process}/gid_map").write_text(f"0 {os.getegid()} 1\n")
        except OSError as error:
            raise refusals.no_mapping(str(error), _user()) from error


def _user() -> str:
    """The user's name, or number where the user has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _subordinate(path: str, user: str, uid: int) -> int | None:
    """The start of the first range of at least 65,536 ids that `path` gives to `user`."""
    try:
        text = Path(path).read_text()
    except OSError:
        return None
    ranges = re.findall(rf"^(?:{re.escape(user)}|{uid}):([0-9]+):([0-9]+)$", text, re.MULTILINE)
    return next((int(first) for first, count in ranges if int(count) >= COUNT), None)


def find_idmap() -> IdMap:
    """The range that this user may map; root always has one. HostError (with the fix) for none."""
    uid, user = os.geteuid(), _user()
    first_uid = _subordinate("/etc/subuid", user, uid)
    first_gid = _subordinate("/etc/subgid", user, uid)
    if first_uid is not None and first_gid is not None:
        if uid != 0 and not (shutil.which("newuidmap") and shutil.which("newgidmap")):
            raise HostError(
                "newuidmap and newgidmap are missing: an ordinary user needs them to map ids",
                hint="apt-get install uidmap",
            )
        return IdMap(first_uid, first_gid)
    if uid == 0:
        return IdMap(_ROOT_BASE, _ROOT_BASE)
    raise HostError(
        f"user {user} has no 65,536 subordinate ids in /etc/subuid and /etc/subgid",
        hint=refusals.MORE_IDS_FIX.format(user=user),
    )


def spawn(
    arguments: Sequence[str], *, descriptors: Sequence[int] = (), **options: Any
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts the sandbox program; returns its process, and our end of the socket that it was given.

    `arguments` are the program's command, and the words that follow the socket's number.
    `descriptors` stay open in the program under their numbers.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(_PATIENCE)
    command = [str(native.sandbox_program()), arguments[0], str(theirs.fileno()), *arguments[1:]]
    with theirs:
        try:
            given = [theirs.fileno(), *descriptors]
            return subprocess.Popen(command, pass_fds=given, **options), ours
        except BaseException:
            ours.close()
            raise


def spawn_mapped(
    arguments: Sequence[str], idmap: IdMap | OwnId, **options: Any
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """What `spawn` returns for `keep`, `exec` or `own`, each in a mapped user namespace of its own.

    Raises HostError where the host forbids user namespaces, SandboxError where somebody killed the
    program.
    """
    process, ours = spawn(arguments, **options)
    try:
        line = read_line(ours)
        if not line and (killed_by := -process.wait()) > 0:
            raise SandboxError(f"signal {killed_by} ended the supervisor while it started")
        if line != "U":
            raise refusals.no_user_namespace(line)
        idmap.write(process.pid)
        ours.sendall(b"M")
    except BaseException as error:
        ours.close()
        killed = (process.poll() or 0) < 0
        process.kill()
        process.wait()
        if isinstance(error, OSError) or (killed and isinstance(error, HostError)):
            raise SandboxError(f"the supervisor ended while it started: {error}") from error
        raise
    return process, ours


class Readable(Protocol):
    """An object that is read like a socket."""

    def recv(self, most: int, /) -> bytes:
        """Some of the bytes that came; none at the end."""
        ...


def read_line(connection: Readable) -> str:
    """The program's next line, without its newline; empty where the program said no more."""
    text = bytearray()
    while not text.endswith(b"\n") and len(text) < _LONGEST_LINE:
        byte = connection.recv(1)
        if not byte:
            break
        text += byte
    return text.decode("utf-8", "replace").rstrip("\n")


def run_mapped(
    command: Sequence[str], *, idmap: IdMap, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    """Runs a program as id 0 of a user namespace with the mapped ids; output is captured.

    The program sees the host's files, and owns only those that ids of the mapped range own. A
    directory given as `cwd` is entered before the ids change, so directories above it may be closed
    to the program. Raises HostError where the host forbids the namespace, and SandboxError as
    `spawn_mapped` does.
    """
    process, connection = spawn_mapped(
        ["exec", *command], idmap, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )
    with connection:
        try:
            output, errors = process.communicate()
        except BaseException:
            process.kill()
            process.wait()
            raise
        if said := read_line(connection):  # the helper's last word: the program never ran
            raise refusals.no_user_namespace(said)
    return subprocess.CompletedProcess(list(command), process.returncode, output, errors)
