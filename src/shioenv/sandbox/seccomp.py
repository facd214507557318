"""The system-call filter of every sandbox, compiled by libseccomp.

Inputs get an ordinary Linux. What is refused (EPERM) reaches state that no namespace holds apart,
or adds attack surface that no shell command of the systems needs.
"""

from __future__ import annotations

import errno
import tempfile
from functools import cache

from shioenv.errors import HostError

REFUSED = (
    # keyrings are per user, not per namespace
    "add_key", "keyctl", "request_key",
    # kernel programs, counters and fault handlers
    "bpf", "perf_event_open", "userfaultfd",
    # a second way to every system call
    "io_uring_setup", "io_uring_enter", "io_uring_register",
    # the host's kernel, clock, swap and accounting
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
    "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog",
    "settimeofday", "clock_settime", "clock_adjtime", "adjtimex",
    # files by handle, past every mount
    "open_by_handle_at", "name_to_handle_at",
    "lookup_dcookie", "nfsservctl", "vm86", "vm86old", "iopl", "ioperm",
)  # fmt: skip


@cache
def filter_program() -> bytes:
    """The filter as BPF instructions for prctl(2). Raises HostError where libseccomp is missing."""
    try:
        import pyseccomp
    except (ImportError, OSError, RuntimeError) as error:
        raise HostError(
            f"libseccomp cannot be loaded: {error}", hint="apt-get install libseccomp2"
        ) from error
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in REFUSED:
        try:
            rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
        except (ValueError, OSError, RuntimeError):
            continue  # a call that this processor never had
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()
