"""Whether this host's processor runs a guest's kernel or QEMU simulates one, tried by booting.

A `/dev/kvm` that can be opened says little. Under some, no kernel of a distribution gets to its
first process: for one, in virtual machines on a host that rewrites its guests' kernels.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from shioenv.errors import SandboxError
from shioenv.files.cache import cache_directory
from shioenv.files.durable import atomic_write
from shioenv.sandbox.base import MEBIBYTE
from shioenv_backends.microvm.boot import Microvm
from shioenv_backends.microvm.qemu import Hardware, MachineTemplate, QemuMachine

KVM = "/dev/kvm"
_MEMORY = 256 * MEBIBYTE
_BOOT_SECONDS = 20.0
"""A kernel takes one or two seconds to boot where the processor runs it."""


def accelerator(microvm: Microvm) -> str:
    """`kvm` where KVM can be opened and a guest boots with it, else `tcg`, the simulated processor.

    The guest is booted once after each start of this host. The result is kept in the cache
    directory.
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
    """Whether this user can open `/dev/kvm`, which says little about what runs there."""
    return os.access(KVM, os.R_OK | os.W_OK)


def _boots(microvm: Microvm) -> bool:
    template = MachineTemplate(Hardware(microvm, _MEMORY, "kvm"))
    try:
        QemuMachine(template, restored=False, boot_seconds=_BOOT_SECONDS).close()
    except SandboxError:
        return False
    finally:
        template.close()
    return True
