"""A system's sshd in namespaces without a network.

Its root directory has only the files that sshd needs.
"""

from __future__ import annotations

import io
import os
import re
import signal
import socket
import subprocess
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from shioenv.errors import HostError, ServingError
from shioenv.files.durable import new_directory, storage_errors
from shioenv.native import built
from shioenv.system.idmap import find_idmap, spawn_mapped
from shioenv.system.store import System

_PROGRAMS = Path(__file__).parents[1] / "native" / "bin"
_FILES = {
    "keeper": "ssh-keeper",
    "session": "ssh-session",
    "names": "ssh-names.so",
    "passwords": "ssh-passwords.so",
}
"""Programs that run with sshd, compiled when the package is built."""

SSHD: Final = "/usr/sbin/sshd"
_HELPERS = ("/usr/lib/openssh/sshd-session", "/usr/lib/openssh/sshd-auth")
"""Programs of newer versions of OpenSSH that sshd executes."""
_KINDS = ("rsa", "ecdsa", "ed25519")
_PATIENCE = 30.0  # seconds until sshd's namespaces must be ready

_SETTINGS = """\
LogLevel DEBUG2
PermitRootLogin yes
PasswordAuthentication yes
UsePAM yes
PrintMotd no
PrintLastLog no
DisableForwarding yes
AllowAgentForwarding no
AllowStreamLocalForwarding no
AllowTcpForwarding no
PermitTunnel no
X11Forwarding no
ForceCommand none
ChrootDirectory none
AuthorizedKeysFile /etc/ssh/accepted_keys
"""
"""Options that override those of the system's sshd_config, also inside `Match`.

They turn off the message of the day and the last login, since our session prints both.
"""

_SFTP = "Subsystem sftp /usr/lib/openssh/sftp-server\n"
"""A program of the machine serves SFTP; `internal-sftp` would serve sshd's own files."""

_OPTION = re.compile(r"[\s\"]*(\w+)[\s\"=]*(.*)")

_PAM = """\
auth required pam_front.so
account required pam_front.so
session required pam_front.so
password required pam_deny.so
"""

_SCRIPT = """
mount --make-rprivate /
mount -t tmpfs -o mode=755,size=64m,nosuid,nodev none /mnt
tar -x -C /mnt --numeric-owner --same-owner --same-permissions
for program in usr/sbin/sshd $HELPERS usr/lib/x86_64-linux-gnu/security/pam_deny.so; do
    chroot rootfs /lib64/ld-linux-x86-64.so.2 --list "/$program" |
        sed -n 's:.*=> \\(/[^ ]*\\) (.*:\\1:p; s:^[[:space:]]*\\(/lib64/ld[^ ]*\\) .*:\\1:p'
    echo "/$program"
done | sort -u | while read -r file; do
    mkdir -p "/mnt${file%/*}"
    chroot rootfs cat "$file" > "/mnt$file"
    chmod 755 "/mnt$file"
done
cd /mnt
for device in null zero full random urandom tty; do
    : > dev/$device
    mount --bind /dev/$device dev/$device
done
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts dev/pts
mount -t proc -o nosuid,nodev,noexec,hidepid=2 proc proc 2> /dev/null || true
mount -t tmpfs -o mode=755,size=1m,nosuid,nodev,noexec none run/front
mount -o remount,bind,ro,nosuid,nodev /mnt
pivot_root . .
exec /bin/keeper "$0" /usr/sbin/sshd < /dev/null
"""
"""Create the root directory and execute the keeper.

The script runs as root of a mapped user namespace, in a system's directory. Its standard input is
an archive of the files for the root directory.
"""


class Daemon:
    """The sshd daemon; `serve` passes it one connection after the other."""

    def __init__(self, system: System, host_keys: Path, accepted_keys: bytes = b"") -> None:
        """Start the namespaces. `host_keys` is a directory made by `make_host_keys`.

        `accepted_keys` are lines in the format of an `authorized_keys` file. Errors: ServingError
        if the system has no OpenSSH; HostError if this host forbids the namespaces.
        """
        if system.content(SSHD) is None:
            raise ServingError(
                f"the system {system.name} has no {SSHD}",
                hint='declare it with the package "openssh-server", and build it again',
            )
        files = _archive(_root_files(system, host_keys, accepted_keys))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        helpers = " ".join(path.lstrip("/") for path in _HELPERS if system.resolve(path))
        command = ["exec", "unshare", "-m", "-p", "-n", "-i", "-u", "-f", "--kill-child"]
        command += ["sh", "-ec", _SCRIPT, str(theirs.fileno())]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HELPERS": helpers}
        with theirs:
            self._process, connection = spawn_mapped(
                command, find_idmap(), descriptors=(theirs.fileno(),), cwd=system.path,
                env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        connection.close()
        self._control = ours
        ours.settimeout(_PATIENCE)
        try:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):
                self._process.stdin.write(files)
                self._process.stdin.close()
            said, fds, *_ = socket.recv_fds(ours, 16, 2)
        except OSError as error:
            said, fds = str(error).encode(), []
        if len(fds) != 2:
            self.close()
            raise HostError(
                f"sshd's namespaces could not be created: {self._complaint() or said.decode()}",
                hint="`shioenv doctor` lists what this host lacks",
            )
        ours.settimeout(1.0)
        self.gate, self.sessions = (socket.socket(fileno=fd) for fd in fds)
        """Sockets that receive PAM's password checks and the calls of login shells."""

    def serve(self, name: str, connection: socket.socket) -> int:
        """Start an sshd for a connection, and return the read end of its log.

        The log ends when the last sshd of the connection does. Errors: ServingError if the
        namespaces are gone.
        """
        log, write = os.pipe()
        try:
            os.fchmod(write, 0o622)
            socket.send_fds(self._control, [name.encode()], [connection.fileno(), write])
        except OSError as error:
            os.close(log)
            raise ServingError(f"sshd's namespaces ended: {error}") from None
        finally:
            os.close(write)
        return log

    @property
    def running(self) -> bool:
        """Whether the namespaces still exist."""
        return self._process.poll() is None

    def close(self) -> None:
        """End every sshd and every login shell; a second call does nothing."""
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.read().decode("utf-8", "replace").strip()


def make_host_keys(directory: Path) -> None:
    """Create the server's host keys, unless the directory exists.

    Errors: HostError without `ssh-keygen`, DatasetStorageError.
    """
    if directory.is_dir():
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with storage_errors(directory), new_directory(directory) as made:
        for kind in _KINDS:
            file = made / f"ssh_host_{kind}_key"
            command = [
                "ssh-keygen",
                "-q",
                "-t",
                kind,
                "-N",
                "",
                "-C",
                "root@debian",
                "-f",
                str(file),
            ]
            try:
                subprocess.run(command, check=True, capture_output=True)
            except FileNotFoundError:
                raise HostError(
                    "ssh-keygen is missing, which generates the server's keys",
                    hint="apt-get install openssh-client",
                ) from None


def settings(own: str) -> str:
    """Return the text of an sshd_config: our options, then those of `own` that we do not set."""
    stated = {line.split()[0].lower() for line in _SETTINGS.splitlines()}
    kept, sftp = [], ""
    for line in own.rstrip("\n").split("\n"):
        found = _OPTION.match(line)
        keyword = found[1].lower() if found else ""
        if found and keyword == "subsystem":
            sftp = _SFTP if found[2].lower().startswith("sftp") else sftp
        elif keyword not in stated:
            kept.append(f"{line}\n")
    return _SETTINGS + sftp + "".join(kept)


def _root_files(
    system: System, host_keys: Path, accepted_keys: bytes
) -> Mapping[str, tuple[int, bytes]]:
    """Return mode and content of each file of sshd's root directory."""
    programs = ssh_programs()
    library = "usr/lib/x86_64-linux-gnu"
    own = (system.content("/etc/ssh/sshd_config") or b"").decode("utf-8", "surrogateescape")
    config = settings(own).encode("utf-8", "surrogateescape")
    # the NSS module `front` resolves all other names
    names = b"sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n"
    sources = b"passwd: files front\ngroup: files\nshadow: files\nhosts: files\n"
    files = {
        "bin/keeper": (0o755, programs["keeper"]),
        "bin/session": (0o755, programs["session"]),
        f"{library}/libnss_front.so.2": (0o755, programs["names"]),
        f"{library}/security/pam_front.so": (0o755, programs["passwords"]),
        "etc/nsswitch.conf": (0o644, sources),
        "etc/passwd": (0o644, names),
        "etc/group": (0o644, b"root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"),
        "etc/pam.d/sshd": (0o644, _PAM.encode()),
        "etc/pam.d/other": (0o644, _PAM.encode()),
        "etc/ssh/sshd_config": (0o644, config),
        "etc/ssh/moduli": (0o644, system.content("/etc/ssh/moduli") or b""),
        "etc/ssh/accepted_keys": (0o644, accepted_keys),
    }
    for key in sorted(host_keys.glob("ssh_host_*_key*")):
        mode = 0o644 if key.suffix == ".pub" else 0o600
        files[f"etc/ssh/{key.name}"] = (mode, key.read_bytes())
    return files


_DIRECTORIES = (
    "dev/pts", "proc", "run/front", "run/sshd", "usr/sbin", "usr/lib/openssh", "var/empty", "tmp",
)  # fmt: skip
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


def _archive(files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """Return the root directory's files as a tar archive, owned by the user root."""
    kept = io.BytesIO()
    made: set[str] = set()
    with tarfile.open(fileobj=kept, mode="w") as tar:

        def directory(path: str) -> None:
            if path and path not in made:
                directory(path.rpartition("/")[0])
                made.add(path)
                member = tarfile.TarInfo(path)
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(member)

        for place in _LINKS.values():
            directory(place)
        for name, place in _LINKS.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, place
            tar.addfile(member)
            made.add(name)
        for place in _DIRECTORIES:
            directory(place)
        member = tarfile.TarInfo("dev/ptmx")
        member.type, member.linkname = tarfile.SYMTYPE, "pts/ptmx"
        tar.addfile(member)
        for name, (mode, content) in files.items():
            directory(name.rpartition("/")[0])
            member = tarfile.TarInfo(name)
            member.mode, member.size = mode, len(content)
            tar.addfile(member, io.BytesIO(content))
    return kept.getvalue()


def ssh_programs() -> dict[str, bytes]:
    """Return the programs `keeper` and `session` and the modules `names` and `passwords`.

    Errors: HostError if one is missing.
    """
    return {
        name: built(_PROGRAMS, file, "shioenv-serve").read_bytes() for name, file in _FILES.items()
    }
