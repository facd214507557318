"""The seccomp filter of every sandbox: the system calls in groups, with the reason for each group.

Inputs see an ordinary Linux, like root in a container:

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

import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

from shioenv import native


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

FILTER = Path(__file__).with_name("filter.txt")
"""The instructions of the filter, one per line, compiled from the lists above with libseccomp
(`scripts/filter.py`)."""

PARENT = "parent"
"""The placeholder in `filter.txt` for the process id of the shells' parent."""


@cache
def filter_program(parent: int) -> bytes:
    """Return the filter as BPF instructions for prctl(2); `parent` is the shells' parent (pid).

    Calls of other architectures (32-bit, x32) fail with ENOSYS, as on a kernel without them.
    """
    return native.read_filter(FILTER, {PARENT: parent})
