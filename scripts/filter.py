"""Compile the system-call filters: `filter.txt` of every sandbox and `filter.txt` of previews.

    make filter

The lists below and those of `shioenv_agents.preview.inside` define the result of each call, and
libseccomp compiles them to instructions. The results are committed, so that no host needs
libseccomp. A line is one instruction: code, jump if true, jump if false, constant (`struct
sock_filter`). A constant that is known later is a word. In the sandbox's filter `parent` is the PID
of the shells' parent, which a system declares. In that of previews `family` is the refused socket
family.

Inputs of a sandbox see an ordinary Linux, like root in a container:

- `ALLOWED` calls pass. Programs of a Debian or Ubuntu system use them, or the supervisor needs them
  once the filter is installed (`native/around/supervisor.c`).
- `FORBIDDEN` calls fail with EPERM, as for root in a container; programs handle that error.
- `HOLLOW` calls succeed and do nothing.
- All other calls fail with ENOSYS, as on a kernel without them, so programs use a fallback.
  `ABSENT` lists such calls with reasons. Calls that newer kernels add fail as well, so that inputs
  behave the same on every host.
- `socket` and `socketpair` are filtered by family and protocol. Others fail as on a kernel without
  support for them.
- `fcntl` cannot enlarge a pipe beyond `LARGEST_PIPE`: larger sizes fail with EPERM.
- `kill` of the shells' parent succeeds and does nothing.

The supervisor and the inputs share one filter. The calls that only the supervisor needs (mounts,
namespaces, change of root) are available to root on any Linux, and the namespaces limit their
effects.

A call that is allowed for any arguments costs almost nothing, since the kernel caches the decision
in a bitmap (`benchmarks/filter_cost.py`). So arguments are inspected only for the last three items
above. The arguments of `clone` are not inspected, because a filter cannot see those of `clone3`,
and the limit on user namespaces already prevents new ones.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
import tempfile
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import NamedTuple

import pyseccomp
from pyseccomp import ALLOW, EQ, ERRNO, GT, LE, LT, MASKED_EQ, NE, Arch, Arg, Attr

from shioenv.sandbox.namespaces import configuration


class CallGroup(NamedTuple):
    """System calls that are handled the same way, for one reason."""

    reason: str
    names: tuple[str, ...]


def _group(reason: str, names: str) -> CallGroup:
    return CallGroup(reason, tuple(names.split()))


ALLOWED = (
    _group(
        "reading and writing what is open (the only terminals in reach are the sandbox's own)",
        """read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek sendfile
        splice tee vmsplice copy_file_range readahead fadvise64 fallocate ftruncate fsync fdatasync
        syncfs sync_file_range flock ioctl close close_range dup dup2 dup3 pipe
        pipe2""",
    ),
    _group(
        "files and directories by name",
        """open openat openat2 creat access faccessat faccessat2 stat lstat fstat newfstatat statx
        statfs fstatfs getdents getdents64 getcwd chdir fchdir truncate rename renameat renameat2
        link linkat symlink symlinkat readlink readlinkat unlink unlinkat mkdir mkdirat rmdir mknod
        mknodat chmod fchmod fchmodat chown fchown lchown fchownat utime utimes futimesat utimensat
        umask name_to_handle_at""",
    ),
    _group(
        "extended attributes",
        """getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr listxattr llistxattr flistxattr
        removexattr lremovexattr fremovexattr""",
    ),
    _group(
        "waiting for files and being told of their changes",
        """select pselect6 poll ppoll epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
        epoll_pwait2 eventfd eventfd2 inotify_init inotify_init1 inotify_add_watch
        inotify_rm_watch""",
    ),
    _group(
        "memory of the process itself",
        """brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 munlock mlockall
        munlockall membarrier pkey_alloc pkey_free pkey_mprotect""",
    ),
    _group(
        "processes and threads",
        """clone clone3 fork vfork execve execveat exit exit_group wait4 waitid getpid getppid
        gettid set_tid_address set_robust_list get_robust_list rseq futex arch_prctl set_thread_area
        get_thread_area prctl restart_syscall pidfd_open pidfd_getfd""",
    ),
    _group(
        "looking into one's own processes: debuggers, and the kernel asks whose they are",
        "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease",
    ),
    _group(
        "who is scheduled when, and within what limits",
        """sched_yield sched_setparam sched_getparam sched_setscheduler sched_getscheduler
        sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_setaffinity
        sched_getaffinity sched_setattr sched_getattr getpriority setpriority ioprio_get ioprio_set
        getcpu getrlimit setrlimit prlimit64 getrusage times""",
    ),
    _group(
        "signals",
        """rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigsuspend rt_sigtimedwait
        rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack tkill tgkill pause signalfd signalfd4""",
    ),
    _group(
        "reading clocks, and timers of one's own",
        """time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer
        setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
        timerfd_create timerfd_settime timerfd_gettime""",
    ),
    _group(
        "sockets, once `socket` made one",
        """bind listen accept accept4 connect shutdown sendto recvfrom sendmsg recvmsg sendmmsg
        recvmmsg getsockname getpeername getsockopt setsockopt""",
    ),
    _group(
        "System V and POSIX objects, in a namespace of their own",
        """shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
        mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr""",
    ),
    _group(
        "ids, groups and capabilities, of the user namespace",
        """getuid geteuid getgid getegid getresuid getresgid setuid setgid setreuid setregid
        setresuid setresgid setfsuid setfsgid getgroups setgroups getpgid getpgrp setpgid getsid
        setsid capget capset""",
    ),
    _group(
        "confining oneself further",
        """seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self""",
    ),
    _group("what machine this is, with the name it gives itself",
        "uname personality sethostname setdomainname sysinfo getrandom",
    ),
    _group(
        "namespaces, mounts and roots: the supervisor's work, and root's in its own namespaces",
        "unshare setns mount umount2 pivot_root chroot",
    ),
)  # fmt: skip

FORBIDDEN = (
    _group("keyrings are per user, not per namespace", "add_key keyctl request_key"),
    _group(
        "programs, counters and fault handlers in the kernel", "bpf perf_event_open userfaultfd"
    ),
    _group("a second way to every system call", "io_uring_setup io_uring_enter io_uring_register"),
    _group(
        "the host's kernel, power, swap, quotas and accounting",
        """kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff
        acct quotactl quotactl_fd""",
    ),
    _group("the host's clock", "settimeofday clock_settime clock_adjtime adjtimex"),
    _group("the host's log", "syslog"),
    _group("files by handle, past every mount", "open_by_handle_at"),
    _group("a watch over whole file systems", "fanotify_init fanotify_mark"),
    _group("ports of the processor and the machine's terminal", "iopl ioperm vhangup"),
)

HOLLOW = (_group("writes out every disk of the host; an input's own files are in memory", "sync"),)
"""Calls that succeed and do nothing. On files in memory, the real calls would have no effect
either."""

ABSENT = (
    _group(
        "memory that belongs to no process, which no limit would count; no program of the systems "
        "needs it, and libraries that try it take a file instead",
        "memfd_create memfd_secret",
    ),
    _group(
        "the newer way to mount: libmount falls back to mount",
        "open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr",
    ),
    _group(
        "memory of several nodes, which the declared machine does not have",
        "mbind set_mempolicy set_mempolicy_home_node get_mempolicy migrate_pages move_pages",
    ),
    _group(
        "a signal by an open directory of /proc, which of the machine's own processes is another "
        "than the kernel's: killall then names the process",
        "pidfd_send_signal",
    ),
    _group(
        "for databases, emulators and checkpoints alone",
        """io_setup io_destroy io_getevents io_pgetevents io_submit io_cancel modify_ldt kcmp
        remap_file_pages futex_waitv""",
    ),
    _group(
        "obsolete, or never there",
        """uselib ustat sysfs _sysctl create_module get_kernel_syms query_module nfsservctl getpmsg
        putpmsg afs_syscall tuxcall security lookup_dcookie epoll_ctl_old epoll_wait_old vserver""",
    ),
)
"""This list is only documentation: every call that is in no other list fails with ENOSYS. This
includes calls added after Linux 5.17."""

FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
"""The allowed socket families. Some others bypass the network namespace (AF_VSOCK reaches the
hypervisor). No program of the systems needs the rest, which would only be attack surface."""

NETLINK = {
    0: "routes, links and addresses", 2: "between processes", 4: "socket statistics", 6: "IPsec",
    12: "firewall", 15: "devices", 16: "generic: ethtool and others",
}  # fmt: skip
"""The allowed protocols of AF_NETLINK. Other protocols reach the kernel's auditing, storage and
cryptography."""


LARGEST_PIPE = 65_536
"""The maximum capacity of a pipe in bytes, which is also the default. The kernel counts larger
pipes against a quota of the host's user, so they would make pipes in the user's other sandboxes
smaller."""

Rule = tuple[int, str, list[Arg]]
"""Action, call and conditions. A condition compares the whole register."""

FAILS_ENOSYS, FAILS_EPERM, SUCCEEDS = ERRNO(errno.ENOSYS), ERRNO(errno.EPERM), ERRNO(0)

HEADER = """\
# Compiled by libseccomp from the lists in {}: `make filter` writes it.
# code, jump if true, jump if false, constant
"""


def group_rules() -> Iterator[Rule]:
    """Generate the rules for calls with one result for all arguments."""
    for action, groups in (
        (ALLOW, ALLOWED),
        (FAILS_EPERM, FORBIDDEN),
        (SUCCEEDS, HOLLOW),
    ):
        for group in groups:
            for name in group.names:
                yield action, name, []


def socket_rules() -> Iterator[Rule]:
    """Yield the rules for making sockets."""
    no_family, no_protocol = ERRNO(errno.EAFNOSUPPORT), ERRNO(errno.EPROTONOSUPPORT)
    families, protocols = FAMILIES, NETLINK
    netlink = Arg(0, EQ, socket.AF_NETLINK)
    for call in ("socket", "socketpair"):
        for family in range(max(families) + 1):
            if call == "socketpair" or family != socket.AF_NETLINK:
                yield ALLOW if family in families else no_family, call, [Arg(0, EQ, family)]
        yield no_family, call, [Arg(0, GT, max(families))]
    for protocol in range(max(protocols) + 1):
        action = ALLOW if protocol in protocols else no_protocol
        yield action, "socket", [netlink, Arg(2, EQ, protocol)]
    yield no_protocol, "socket", [netlink, Arg(2, GT, max(protocols))]


def pipe_rules() -> Iterator[Rule]:
    """Yield the rules for `fcntl`, which sets the size of pipes among other things."""
    sets_size = Arg(1, EQ, fcntl.F_SETPIPE_SZ)
    yield ALLOW, "fcntl", [sets_size, Arg(2, LE, LARGEST_PIPE)]
    yield FAILS_EPERM, "fcntl", [sets_size, Arg(2, GT, LARGEST_PIPE)]
    # All other commands. Whole registers are compared: the kernel reads 32 bits of the command, and
    # the bits above these could hide a forbidden one. 0x41f lies past all commands of Linux today.
    whole = 0xFFFF_FFFF_FFFF_FFFF
    yield ALLOW, "fcntl", [Arg(1, LT, fcntl.F_SETPIPE_SZ)]
    yield ALLOW, "fcntl", [Arg(1, MASKED_EQ, whole - 0x7, 0x408)]
    yield ALLOW, "fcntl", [Arg(1, MASKED_EQ, whole - 0xF, 0x410)]


def kill_rules(parent: int) -> Iterator[Rule]:
    """Yield the rules for `kill`, which succeeds on the shells' parent without effect.

    That process cannot be killed: without the filter the error would be that of another user's
    process.
    """
    yield ALLOW, "kill", [Arg(0, NE, parent)]
    yield SUCCEEDS, "kill", [Arg(0, EQ, parent)]


def compile_filter(parent: int) -> bytes:
    """Compile the filter to BPF instructions. Exit where libseccomp is older than the lists."""
    rules = pyseccomp.SyscallFilter(FAILS_ENOSYS)
    rules.set_attr(Attr.ACT_BADARCH, FAILS_ENOSYS)
    rules.set_attr(Attr.CTL_OPTIMIZE, 2)  # a tree by number, not one comparison per call
    groups = (*group_rules(), *socket_rules(), *pipe_rules(), *kill_rules(parent))
    return exported(rules, groups)


def compile_preview_filter(family: int) -> bytes:
    """Compile the filter of previews; x32 programs are refused the same calls."""
    from shioenv_agents.preview import inside  # the core's tests do without that package

    rules = pyseccomp.SyscallFilter(ALLOW)
    rules.set_attr(Attr.ACT_BADARCH, ALLOW)
    rules.add_arch(Arch.X32)
    asked = Arg(0, MASKED_EQ, 0xFFFF_FFFF, family)  # the kernel reads 32 bits
    return exported(
        rules,
        [
            *((FAILS_EPERM, name, []) for name in inside.FORBIDDEN),
            *((FAILS_ENOSYS, name, []) for name in inside.ABSENT),
            (ERRNO(errno.EAFNOSUPPORT), "socket", [asked]),
        ],
    )


def exported(rules: pyseccomp.SyscallFilter, groups: Iterable[Rule]) -> bytes:
    """Return the instructions of a filter with these rules."""
    for action, name, conditions in groups:
        number = pyseccomp.resolve_syscall(Arch.X86_64, name)
        if number == -1:
            raise SystemExit(f"this libseccomp does not know {name}: 2.5.4 or newer is needed")
        rules.add_rule(action, number, *conditions)
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def written(one: bytes, other: bytes, word: str, source: str) -> str:
    """Return the text of a `filter.txt`, from the same filter with constants 1 and 2."""
    lines = []
    for first, second in zip_longest(
        struct.iter_unpack("=HBBI", one), struct.iter_unpack("=HBBI", other)
    ):
        *numbers, constant = first
        if first != second:
            if (first, second) != ((*numbers, 1), (*numbers, 2)):
                raise SystemExit(f"{word} decides more than a constant: {first}")
            constant = word
        lines.append(" ".join(map(str, [*numbers, constant])))
    return HEADER.format(source) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    from shioenv_agents.preview import inside

    for path, compiled, word, source in (
        (configuration.FILTER, compile_filter, configuration.PARENT, "scripts/filter.py"),
        (inside.FILTER, compile_preview_filter, inside.FAMILY, "inside.py"),
    ):
        path.write_text(written(compiled(1), compiled(2), word, source), encoding="ascii")
        print(path)
