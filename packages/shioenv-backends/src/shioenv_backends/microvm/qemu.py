"""Machines in QEMU: starting, saving, and resuming from the saved state.

The memory of a running machine is an anonymous file of the kernel, not a file on a disk. QEMU
writes to it while the machine boots. Each machine that resumes from the saved state has a private
copy of the memory. Only pages that the machine writes use additional memory.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shioenv.errors import HostError, SandboxError
from shioenv.files.durable import atomic_write, cache_directory
from shioenv.sandbox.base import MEBIBYTE
from shioenv_backends.microvm.boot import Microvm
from shioenv_backends.microvm.channel import FrameKind, GuestChannel
from shioenv_backends.microvm.saved_machines import copy, open_kept, save_machine

PROGRAM = "qemu-system-x86_64"
KVM = "/dev/kvm"
_TRIED_MEMORY = 256 * MEBIBYTE
_TRIED_SECONDS = 20.0
"""Time limit in seconds for a trial boot, which takes one or two seconds with hardware support."""
BOOT_SECONDS = 240.0
"""Time limit in seconds for booting, also on an emulated processor."""
_QEMU_SECONDS = 60.0
"""Time limit in seconds for an answer of QEMU itself."""
_CAPABILITY = "x-ignore-shared"
_KERNEL = "console=ttyS0 quiet panic=-1 reboot=t no_timer_check random.trust_cpu=on"
"""The kernel's command line.

It disables the timer check, which causes a panic on a busy host.
"""
_REFUSED = "obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


def find_qemu() -> str:
    """Return the program's path. HostError if it is not installed."""
    found = shutil.which(PROGRAM)
    if found is None or shutil.which("setpriv") is None:
        raise HostError(
            f"{PROGRAM if found is None else 'setpriv'} is missing; --sandbox microvm needs it",
            hint="apt-get install qemu-system-x86 util-linux",
        )
    return found


@dataclass(frozen=True, slots=True)
class Hardware:
    """The hardware of a machine."""

    microvm: Microvm
    memory: int
    """Bytes."""
    accelerator: str = "tcg"
    """`kvm` if the host's processor runs the guest, `tcg` if it is emulated."""
    bare: bool = False
    """Whether inputs are root of the machine and can write to its disk.

    Changes to the disk are lost when the machine ends.
    """
    booted: int | None = None
    """The machine's clock at boot in seconds since 1970; None for this host's time.

    The kernel dates its own files by this clock, such as those of /dev.
    """
    cards: tuple[str, ...] = ()
    """MAC addresses of the machine's network cards, which are not connected."""

    def told(self) -> str:
        """Return the complete configuration of the machine for QEMU, and QEMU's version.

        A saved state can be loaded if this text is the same as when it was saved.
        """
        commands = (_command(PROGRAM, self, (0, 0, 0, 0), restored=how) for how in (False, True))
        return repr([qemu_version(), *commands])


class MachineTemplate:
    """A saved machine: its memory and the state of its devices. Close it after its last use.

    `kept` is the directory of a machine that was saved before. With None, memory and state are
    empty. OSError if `kept` lacks one of them, or its bytes have changed; the directory is then
    removed.
    """

    def __init__(self, hardware: Hardware, kept: Path | None = None) -> None:
        self.hardware = hardware
        self.memory = self.state = -1
        if kept is None:
            self.memory = os.memfd_create("shioenv-memory")
            self.state = os.memfd_create("shioenv-state")
            os.ftruncate(self.memory, hardware.memory)
            return
        self.memory, self.state = open_kept(kept)

    def machine(self, *, restored: bool) -> QemuMachine:
        """Start a machine: resume the saved one (`restored`), or boot one to be saved here."""
        return QemuMachine(self, restored=restored)

    def keep(self, place: Path) -> None:
        """Write memory and state to the directory `place`, completely and durably or not at all."""

        def write(work: Path) -> None:
            copy(self.memory, work / "memory")
            copy(self.state, work / "state")

        save_machine(place, write)

    def close(self) -> None:
        """Free memory and state. Running machines are not affected."""
        for name in ("memory", "state"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                os.close(descriptor)
            setattr(self, name, -1)


def qemu_version() -> str:
    """Return the first line of `qemu-system-x86_64 --version`."""
    done = subprocess.run([find_qemu(), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.partition("\n")[0]


class QemuMachine:
    """A machine that runs in QEMU. It ends with the thread that started it.

    Raises HostError if QEMU is missing, SandboxError if the machine does not start.
    """

    def __init__(
        self, template: MachineTemplate, *, restored: bool, boot_seconds: float = BOOT_SECONDS
    ) -> None:
        self.template = template
        program = find_qemu()
        ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
        console = os.memfd_create("shioenv-console")
        given = [each.fileno() for each in theirs] + [template.memory, console]
        command = _command(program, template.hardware, given, restored=restored)
        try:
            self._process = subprocess.Popen(
                command, pass_fds=given, stdin=subprocess.DEVNULL, stdout=console, stderr=console
            )
        except BaseException:
            os.close(console)
            raise
        finally:
            for each in theirs:
                each.close()
        self._console = console
        self.channel = GuestChannel(ours[0])
        self._control = ours[1]
        self._control.settimeout(_QEMU_SECONDS)
        self._replies = self._control.makefile("rb")
        try:
            self._replies.readline()
            self._ask("qmp_capabilities")
            if restored:
                self._restore()
            else:
                self.release = self.channel.expect(FrameKind.BOOTED, boot_seconds).decode()
        except (OSError, EOFError) as error:
            said = self.said()
            self.close()
            raise SandboxError(
                f"the machine did not start: {error}{said and f': {said}'}",
                hint="`shioenv doctor` lists what this host supports",
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process ID of QEMU."""
        return self._process.pid

    def wait(self, timeout: float | None = None) -> int:
        """End the machine immediately, and return the exit status of QEMU."""
        self.close()
        return self._process.returncode

    def kill(self) -> None:
        """End the machine."""
        self.close()

    def poll(self) -> int | None:
        """Return the exit status of QEMU; None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """End the machine; closing twice does nothing."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self.channel.close()
        self._replies.close()
        self._control.close()
        if self._console >= 0:
            os.close(self._console)
        self._console = -1

    def said(self) -> str:
        """Return the last 2,000 bytes that QEMU and the booting kernel wrote, as text."""
        if self._console < 0:
            return ""
        size = os.fstat(self._console).st_size
        return os.pread(self._console, 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()

    def save(self) -> None:
        """Save the state in the template, and end the machine. Errors: SandboxError."""
        try:
            self._ask("stop")
            self._migrate("migrate", "out")
        except (OSError, EOFError) as error:
            raise SandboxError(f"the machine could not be saved: {error}") from error
        finally:
            self.close()

    def _restore(self) -> None:
        self._migrate("migrate-incoming", "in")
        self._ask("cont")

    def _migrate(self, command: str, name: str) -> None:
        self._ask(
            "migrate-set-capabilities", capabilities=[{"capability": _CAPABILITY, "state": True}]
        )
        way = os.open(
            f"/proc/self/fd/{self.template.state}", os.O_RDWR if name == "out" else os.O_RDONLY
        )
        try:
            request = {"execute": "getfd", "arguments": {"fdname": name}}
            socket.send_fds(self._control, [json.dumps(request).encode()], [way])
            self._answer()
        finally:
            os.close(way)
        self._ask(command, uri=f"fd:{name}")
        until = time.monotonic() + _QEMU_SECONDS
        while (status := self._ask("query-migrate").get("status")) != "completed":
            if status == "failed" or time.monotonic() > until:
                raise SandboxError(f"QEMU could not save or restore a machine: {status}")
            time.sleep(0.002)

    def _ask(self, name: str, **arguments: Any) -> Any:
        """Send a command over QEMU's control socket and return the answer."""
        self._control.sendall(json.dumps({"execute": name, "arguments": arguments}).encode())
        return self._answer()

    def _answer(self) -> Any:
        while line := self._replies.readline():
            reply = json.loads(line)
            if "return" in reply:
                return reply["return"]
            if "error" in reply:
                raise SandboxError(f"QEMU: {reply['error'].get('desc')}")
        raise EOFError("QEMU ended")


def _command(
    program: str, hardware: Hardware, given: Sequence[int], *, restored: bool
) -> list[str]:
    agent, control, memory, console = given
    microvm, kvm = hardware.microvm, hardware.accelerator == "kvm"
    share = "off" if restored else "on"
    disk = str(microvm.disk).replace(",", ",,")  # QEMU's escape for commas in a value
    clock = [] if hardware.booted is None else ["-rtc", f"base={_date(hardware.booted)}"]
    written = "snapshot=on" if hardware.bare else "readonly=on"
    way = "serial bare" if hardware.bare else "serial"
    cards = [
        argument
        for number, mac in enumerate(hardware.cards)
        for argument in (
            *("-netdev", f"hubport,id=net{number},hubid={number}", "-device"),
            # a guest that announces itself after a restore would change its network
            f"virtio-net-pci,netdev=net{number},mac={mac},guest_announce=off,romfile=",
        )
    ]
    ram = f"memory-backend-file,id=ram,size={hardware.memory},mem-path=/proc/self/fd/{memory}"
    return [
        *("setpriv", "--pdeathsig", "KILL", "--"),  # if Python is killed, the machine ends
        *(program, "-machine", "q35,memory-backend=ram,usb=off,smm=off,vmport=off"),
        *("-accel", hardware.accelerator),
        # without cx16, whose emulation in QEMU 7.2 crashes Linux
        *("-cpu", "host" if kvm else "max,cx16=off", "-smp", "1"),
        *("-m", f"{hardware.memory >> 20}M", "-object", f"{ram},share={share}"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-sandbox", f"on,{_REFUSED}"),
        *clock,
        *("-chardev", "null,id=console" if restored
          else f"file,id=console,append=on,path=/proc/self/fd/{console}"),
        *("-serial", "chardev:console"),
        *("-kernel", str(microvm.kernel), "-initrd", str(microvm.initramfs)),
        *("-append", f"{_KERNEL} -- {way}"),
        *("-drive", f"if=none,id=disk,format=raw,{written},file={disk}"),
        *("-device", "virtio-blk-pci,drive=disk"),
        *cards,
        *("-device", "virtio-serial-pci,max_ports=2"),
        *("-chardev", f"socket,id=agent,fd={agent}"),
        *("-device", "virtserialport,chardev=agent,name=agent"),
        *("-chardev", f"socket,id=control,fd={control}", "-mon", "chardev=control,mode=control"),
        *(("-incoming", "defer") if restored else ()),
    ]  # fmt: skip


def _date(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def accelerator(microvm: Microvm) -> str:
    """Return `kvm` if a guest boots with KVM, else `tcg`, the emulated processor.

    Access to `/dev/kvm` is not sufficient: on some hosts that are virtual machines, distribution
    kernels do not reach their first process. So the guest is booted once after each start of this
    host. The result is kept in the cache directory.
    """
    if not may_open_kvm():
        return "tcg"
    kept = cache_directory() / "accelerator.json"
    host = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError, ValueError, KeyError):
        verdict = json.loads(kept.read_text())
        if verdict["host"] == host:
            return "kvm" if verdict["kvm"] else "tcg"
    works = _boots(microvm)
    with suppress(OSError):
        atomic_write(kept, f"{json.dumps({'host': host, 'kvm': works})}\n".encode())
    return "kvm" if works else "tcg"


def may_open_kvm() -> bool:
    """Whether this user can open `/dev/kvm`; guests may still fail to boot with it."""
    return os.access(KVM, os.R_OK | os.W_OK)


def _boots(microvm: Microvm) -> bool:
    template = MachineTemplate(Hardware(microvm, _TRIED_MEMORY, "kvm"))
    try:
        QemuMachine(template, restored=False, boot_seconds=_TRIED_SECONDS).close()
    except SandboxError:
        return False
    finally:
        template.close()
    return True
