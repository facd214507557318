"""A real machine made of a built system: its own kernel, disk and network, in QEMU.

The disk is an ext4 image of the system's root filesystem with its true owners, the kernel a
distribution's own, process 1 a small agent (`vm.c`) outside the disk. Each input finds the machine
as it was when its snapshot was made, memory included.
"""

from __future__ import annotations

import json
import lzma
import os
import resource
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shioenv.errors import HostError, SandboxError
from shioenv.system.idmap import find_idmap, run_mapped
from shioenv.system.store import System

QEMU = "qemu-system-x86_64"
PROGRAMS = (QEMU, "qemu-img", "mke2fs", "cc", "setpriv")
"""What has to be installed."""

MODULES = (
    "virtio_pci", "virtio_blk", "virtio_console", "virtio_net", "ext4", "nf_tables", "nft_ct",
    "nft_chain_nat", "nft_limit", "nft_log", "nft_masq", "nft_reject_inet", "veth", "bridge", "tun",
)  # fmt: skip
"""What the machine's kernel has, where it does not have it built in."""

_REQUEST = struct.Struct("<qIIIII32s32q")
_REPLY = struct.Struct("<iII")
_FILE = struct.Struct("<IIIIQq32s")
_LENGTH = struct.Struct("<I")
_BOOT_SECONDS = 300
_SOURCES = Path(__file__).parent, Path(__file__).parents[1] / "src/shioenv/native/around"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel as a distribution's package has it."""

    image: Path
    modules: Path
    """The directory of its modules, named after its release."""

    @property
    def release(self) -> str:
        """What `uname -r` says."""
        return self.modules.name


def find_kernel(root: Path = Path("/")) -> Kernel:
    """The newest kernel below `root`: that of the host, or of an unpacked package.

    HostError where there is none.
    """
    for image in sorted((root / "boot").glob("vmlinu[xz]-*"), key=_version, reverse=True):
        modules = root / "lib/modules" / image.name.partition("-")[2]
        if modules.is_dir():
            return Kernel(image, modules)
    raise HostError(
        f"no kernel with its modules lies below {root}",
        hint="apt-get download the package linux-image-*-cloud-amd64, dpkg-deb -x it to a "
        "directory, and name that with --kernel",
    )


def _limit(name: str) -> int:
    """The number of a resource of setrlimit(2)."""
    number: int = getattr(resource, f"RLIMIT_{name.upper()}", 10)  # Python has no RLIMIT_LOCKS
    return number


def _version(path: Path) -> list[int]:
    return [int(part) for part in "".join(c if c.isdigit() else " " for c in path.name).split()]


def missing_program() -> str | None:
    """The first of `PROGRAMS` that is not installed, or None."""
    return next((name for name in PROGRAMS if shutil.which(name) is None), None)


@dataclass(frozen=True, slots=True)
class Found:
    """A path after a run, as the machine's own `lstat` has it."""

    mode: int
    uid: int
    gid: int
    links: int
    size: int
    mtime_ns: int
    digest: str
    """SHA-256 (hex); of what is no regular file, of nothing."""
    target: str


@dataclass(frozen=True, slots=True)
class Run:
    """What an input did on the machine."""

    exit_code: int
    output: bytes
    timed_out: bool
    changed: Mapping[bytes, Found | None]
    """Every path whose status is not what it was; None where it is gone."""


class Stopped(Exception):  # noqa: N818 (no error: inputs may do so)
    """The machine did not answer: the input halted it, or broke it."""


class Machine:
    """A machine in QEMU that runs inputs, each from the same state. Used by one caller at a time.

    `directory` takes its files and is the caller's. HostError where the host lacks something.
    """

    def __init__(
        self, system: System, kernel: Kernel, directory: Path, *, accelerator: str = "tcg"
    ) -> None:
        if name := missing_program():
            raise HostError(
                f"{name} is missing",
                hint="apt-get install qemu-system-x86 qemu-utils e2fsprogs gcc util-linux",
            )
        if system.declaration.session.user != "root":
            raise HostError("inputs run as root on this machine", hint="take such a system")
        self._system, self._kernel, self._directory = system, kernel, directory
        self._accelerator = accelerator
        self._initrd = directory / "initrd"
        self._initrd.write_bytes(initramfs(kernel, _agent(directory)))
        self._disks = [
            make_disk(system, number, directory)
            for number in range(len(system.declaration.machine.disks))
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._boot()

    def close(self) -> None:
        """Ends the machine."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None
        self._agent.close()
        self._control.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self, text: str, cwd: str, *, wall_seconds: float = 30.0) -> Run:
        """What `bash --norc --noprofile -c TEXT` does in `cwd`. Raises Stopped."""
        try:
            self._monitor("loadvm", "ready")
            return self._request(text, cwd, wall_seconds=wall_seconds)
        except (OSError, EOFError) as error:
            self._boot()
            raise Stopped(str(error)) from error

    def _boot(self) -> None:
        self.close()
        paths = {name: self._directory / name for name in ("agent.socket", "control.socket")}
        listeners = []
        for path in paths.values():
            path.unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.settimeout(_BOOT_SECONDS)
            listener.bind(str(path))
            listener.listen(1)
            listeners.append(listener)
        for disk in self._disks:
            command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(disk)]
            subprocess.run([*command, f"{disk}.qcow2"], check=True)
        with (self._directory / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self._agent, self._control = (listener.accept()[0] for listener in listeners)
        except TimeoutError:
            said = (self._directory / "qemu.log").read_text(errors="replace")
            raise HostError(f"QEMU did not start: {said.strip()}", hint="see its command") from None
        finally:
            for listener in listeners:
                listener.close()
        self._replies = self._control.makefile("rb")
        self._replies.readline()
        self._ask("qmp_capabilities")
        ran = self._request(
            self._preparation(), "/", wall_seconds=_BOOT_SECONDS, waiting=_BOOT_SECONDS, first=True
        )
        if ran.exit_code or ran.output:
            raise SandboxError(f"the machine was not prepared: {ran.output!r}")
        if said := self._monitor("savevm", "ready"):
            raise SandboxError(f"no snapshot: {said}")

    def _command(self) -> list[str]:
        declared = self._system.declaration.machine
        logins = (self._system.path / "processes").glob("*/loginuid")
        processes = " ".join(
            f"{pid}:{path.read_text()}"
            for path in sorted(logins)
            if (pid := path.parent.name.partition(".")[0]) != "1"  # which stands for itself
        )
        cpu = "max,cx16=off" if self._accelerator == "tcg" else "host"  # 7.2 panics with cx16
        command = [
            *("setpriv", "--pdeathsig", "KILL"),  # whoever is killed leaves no machine behind
            *(QEMU, "-machine", "q35", "-accel", self._accelerator, "-cpu", cpu),
            *("-m", f"{declared.memory >> 20}M", "-smp", str(declared.cpu.count)),
            *("-nodefaults", "-no-user-config", "-display", "none"),
            *("-rtc", f"base={self._system.declaration.instant:%Y-%m-%dT%H:%M:%S}"),
            *("-no-reboot", "-serial", f"file:{self._directory}/console"),
            *("-kernel", str(self._kernel.image), "-initrd", str(self._initrd), "-append"),
            f"console=ttyS0 quiet panic=-1 random.trust_cpu=on -- {declared.uptime} {processes}",
            *("-device", "virtio-serial-pci,max_ports=2"),
            *("-chardev", f"socket,id=agent,path={self._directory}/agent.socket"),
            *("-device", "virtserialport,chardev=agent"),
            *("-qmp", f"unix:{self._directory}/control.socket"),
        ]
        for number, disk in enumerate(self._disks):
            drive = f"if=none,id=disk{number},format=qcow2,file={disk}.qcow2,cache=unsafe"
            command += ["-drive", drive, "-device", f"virtio-blk-pci,drive=disk{number}"]
        for number, face in enumerate(declared.interfaces):
            net = f"user,id=net{number},restrict=on,ipv6=off"
            if face.gateway:
                net += f",net={face.gateway}/{face.prefix},host={face.gateway}"
            command += ["-netdev", net, "-device"]
            command += [f"virtio-net-pci,netdev=net{number},mac={face.mac},romfile="]
        return command

    def _preparation(self) -> str:
        """What an init system would have done."""
        declared = self._system.declaration.machine
        lines = ["set -e", f"hostname {declared.hostname}", "ip link set lo up"]
        for number, face in enumerate(declared.interfaces):
            if face.name != f"eth{number}":
                lines.append(f"ip link set eth{number} name {face.name}")
            lines.append(f"ip link set {face.name} mtu {face.mtu} up")
            lines.append(f"ip address add {face.address}/{face.prefix} brd + dev {face.name}")
            if face.gateway:
                lines.append(f"ip route add default via {face.gateway} dev {face.name}")
        lines.append(f"rmdir /lost+found; touch -d @{self._system.index['/'].mtime} /")
        lines.append("sleep 3")  # until addresses of IPv6 are no longer tentative
        return "\n".join(lines)

    def _request(
        self,
        text: str,
        cwd: str,
        *,
        wall_seconds: float,
        waiting: float = 30.0,
        first: bool = False,
    ) -> Run:
        session = self._system.declaration.session
        limits = {_limit(name): values for name, values in session.limits.items()}
        header = _REQUEST.pack(
            int(self._system.declaration.instant.timestamp()),
            first,
            int(wall_seconds * 1000),
            500,
            1 << 16,
            session.umask,
            os.urandom(32),
            *(value for number in range(16) for value in limits.get(number, (-1, -1))),
        )
        environment = [f"{name}={value}" for name, value in session.environment.items()]
        strings = (os.fsencode(each) + b"\0" for each in (cwd, text, *environment))
        body = header + b"".join(strings)
        self._agent.settimeout(wall_seconds + waiting)
        self._agent.sendall(_LENGTH.pack(len(body)) + body)
        return _ran(self._read(_LENGTH.unpack(self._read(_LENGTH.size))[0]))

    def _read(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            more = self._agent.recv(min(length - len(data), 1 << 20))
            if not more:
                raise EOFError("the machine ended")
            data += more
        return bytes(data)

    def _ask(self, name: str, **arguments: Any) -> Any:
        """What QEMU's control answers."""
        self._control.settimeout(60)
        self._control.sendall(json.dumps({"execute": name, "arguments": arguments}).encode())
        while line := self._replies.readline():
            reply = json.loads(line)
            if "return" in reply:
                return reply["return"]
            if "error" in reply:
                raise SandboxError(f"QEMU: {reply['error']}")
        raise EOFError("QEMU ended")

    def _monitor(self, command: str, argument: str) -> str:
        """What a command of the monitor for people prints: nothing, where it did what it should."""
        line = f"{command} {argument}"
        return str(self._ask("human-monitor-command", **{"command-line": line})).strip()


def _ran(body: bytes) -> Run:
    status, timed_out, length = _REPLY.unpack_from(body)
    at = _REPLY.size
    output = body[at : at + length]
    at += length
    changed: dict[bytes, Found | None] = {}
    while at < len(body):
        mode, uid, gid, links, size, mtime, digest = _FILE.unpack_from(body, at)
        path, target, _ = body[at + _FILE.size :].split(b"\0", 2)
        at += _FILE.size + len(path) + len(target) + 2
        found = Found(mode, uid, gid, links, size, mtime, digest.hex(), os.fsdecode(target))
        changed[path] = found if mode else None
    code = os.waitstatus_to_exitcode(status)
    if timed_out:
        return Run(124, output, True, changed)
    return Run(code if code >= 0 else 128 - code, output, False, changed)


def make_disk(system: System, number: int, directory: Path) -> Path:
    """The image of a declared disk: the root file system with the system's own owners, or an empty
    one. The same bytes for the same system but for the times of inodes.
    """
    declared = system.declaration.machine.disks[number]
    image = directory / f"disk{number}"
    directory.chmod(0o755)
    with image.open("wb") as file:
        file.truncate(declared.size)
    image.chmod(0o666)  # the mapped ids of a user namespace write it
    command = ["mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256"]
    options = "root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"
    if declared.uuid:
        command += ["-U", declared.uuid]
        options += f",hash_seed={declared.uuid}"
    command += ["-E", options, "-L", declared.label or ""]
    if declared.mount == "/":
        command += ["-d", "."]
    done = run_mapped([*command, str(image)], idmap=find_idmap(), cwd=system.rootfs)
    if done.returncode:
        raise HostError(f"mke2fs: {done.stderr.decode().strip()}", hint="a disk was not made")
    return image


def _agent(directory: Path) -> bytes:
    here, native = _SOURCES
    made = directory / "init"
    command = ["cc", "-O2", "-static", f"-I{native}", str(here / "vm.c"), str(native / "sha256.c")]
    subprocess.run([*command, "-o", str(made)], check=True)
    return made.read_bytes()


def _field(module: bytes, key: bytes) -> str:
    """A field of a module's `.modinfo`."""
    parts = (part for part in module.split(b"\0") if part.startswith(key + b"="))
    return next(parts, b"=").partition(b"=")[2].decode()


def _modules(kernel: Kernel, wanted: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Modules and before each what it depends on; what is built in is left out."""
    files = {
        path.name.partition(".ko")[0].replace("-", "_"): path
        for path in kernel.modules.rglob("*.ko*")
    }
    done = set()

    def needed(name: str) -> Iterator[tuple[str, bytes]]:
        if name in done or name not in files:
            return
        done.add(name)
        content = files[name].read_bytes()
        if files[name].suffix == ".xz":
            content = lzma.decompress(content)
        for other in _field(content, b"depends").split(","):
            yield from needed(other.replace("-", "_"))
        yield name, content

    for name in wanted:
        yield from needed(name)


def initramfs(kernel: Kernel, agent: bytes) -> bytes:
    """The first file system of the machine (`newc`): the agent, a console, and modules in order."""
    modules = list(_modules(kernel, MODULES))
    order = "".join(f"/modules/{name}.ko\n" for name, _ in modules).encode()
    entries = [
        ("dev", 0o40755, b"", (0, 0)),
        ("dev/console", 0o20600, b"", (5, 1)),
        ("modules", 0o40755, b"", (0, 0)),
        ("modules/order", 0o100644, order, (0, 0)),
        ("init", 0o100755, agent, (0, 0)),
        *((f"modules/{name}.ko", 0o100644, content, (0, 0)) for name, content in modules),
        ("TRAILER!!!", 0, b"", (0, 0)),
    ]
    archive = bytearray()
    for number, (name, mode, content, device) in enumerate(entries, 1):
        named = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(named), 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + named
        archive += b"\0" * (-len(archive) % 4) + content
        archive += b"\0" * (-len(archive) % 4)
    return bytes(archive)
