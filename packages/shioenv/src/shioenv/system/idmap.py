"""Map a system's user and group ids 0 to 65535 to a range of host ids.

The host ids of this range own a system's files and run its inputs; they have no accounts on the
host. For an ordinary user, /etc/subuid and /etc/subgid assign the range, and newuidmap and
newgidmap (package uidmap) map it. Root needs neither files nor programs.
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
from shioenv.system import host_diagnosis

COUNT = 65536
_LONGEST_LINE = 4096  # maximum bytes of the line that the sandbox program writes at its start
_PATIENCE = 120.0  # timeout in seconds for this line
_ROOT_BASE = 1_000_000_000
"""Start of root's range if /etc/subuid or /etc/subgid assigns none. It is far above all assigned
ids."""


@dataclass(frozen=True, slots=True)
class IdMap:
    """The range of host ids that a system's ids 0 to 65535 map to."""

    first_uid: int
    first_gid: int

    def write(self, process: int) -> None:
        """Map the ids of the user namespace that `process` has just created.

        Raises HostError if the host does not allow the mapping.
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
            raise host_diagnosis.no_mapping(error.stderr.strip(), _user()) from error
        except OSError as error:
            raise host_diagnosis.no_mapping(str(error), _user()) from error


@dataclass(frozen=True, slots=True)
class OwnId:
    """A mapping of id 0 to the caller's user and group id, which needs no assigned range."""

    def write(self, process: int) -> None:
        """Map the ids of the user namespace that `process` has just created.

        Raises HostError if the host does not allow the mapping.
        """
        try:
            Path(f"/proc/{process}/setgroups").write_text("deny")
            Path(f"/proc/{process}/uid_map").write_text(f"0 {os.geteuid()} 1\n")
            Path(f"/proc/{process}/gid_map").write_text(f"0 {os.getegid()} 1\n")
        except OSError as error:
            raise host_diagnosis.no_mapping(str(error), _user()) from error


def _user() -> str:
    """Return the user's name, or the number if the user has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _subordinate(path: str, user: str, uid: int) -> int | None:
    """Return the start of the first range of at least 65,536 ids that `path` assigns to `user`."""
    try:
        text = Path(path).read_text()
    except OSError:
        return None
    ranges = re.findall(rf"^(?:{re.escape(user)}|{uid}):([0-9]+):([0-9]+)$", text, re.MULTILINE)
    return next((int(first) for first, count in ranges if int(count) >= COUNT), None)


def find_idmap() -> IdMap:
    """Return the range that this user may map; root always has one. Errors: HostError."""
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
        hint=host_diagnosis.MORE_IDS_FIX.format(user=user),
    )


def spawn(
    arguments: Sequence[str], *, descriptors: Sequence[int] = (), **options: Any
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the sandbox program, and return its process and our end of its socket.

    `arguments` are the program's subcommand and its arguments; the socket's number is inserted
    after the subcommand. The program inherits `descriptors` under the same numbers.
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
    """Start the sandbox program in a new user namespace with mapped ids.

    Its subcommand is `keep`, `exec` or `own`. Returns the same values as `spawn`. Raises HostError
    if the host does not allow user namespaces, and SandboxError if the program was killed.
    """
    process, ours = spawn(arguments, **options)
    try:
        line = read_line(ours)
        if not line and (killed_by := -process.wait()) > 0:
            raise SandboxError(f"signal {killed_by} ended the supervisor while it started")
        if line != "U":
            raise host_diagnosis.no_user_namespace(line)
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
    """An object with the `recv` method of a socket."""

    def recv(self, most: int, /) -> bytes:
        """Return some of the received bytes, or b"" at the end."""
        ...


def read_line(connection: Readable) -> str:
    """Read the program's next line, without its newline; return "" at the end of its output."""
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
    """Run a program as id 0 of a user namespace with mapped ids, and capture its output.

    The program sees the host's files, but owns only those of the mapped ids. The directory `cwd` is
    entered before the ids change, so the program needs no access to its parent directories. Raises
    HostError if the host does not allow the namespace, and SandboxError as `spawn_mapped` does.
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
        if said := read_line(connection):  # an error of the helper: the program never ran
            raise host_diagnosis.no_user_namespace(said)
    return subprocess.CompletedProcess(list(command), process.returncode, output, errors)
