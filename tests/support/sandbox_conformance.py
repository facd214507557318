"""The conformance suite for sandboxes, which every backend must pass.

A check is a function that takes an open sandbox, runs inputs and asserts. All checks share one
sandbox, in the order of `CHECKS`. A check that passes leaves the sandbox pristine. Besides bash,
coreutils and procps, the inputs use the system's `awk`, `cmp`, `find`, `grep`, `hostname`, `ip`,
`ipcmk`, `ipcs`, `mount` and `unshare`.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from typing import Any

from shioenv.errors import InputError, StartDirectoryError
from shioenv.sandbox.base import LONGEST_STDIN, Execution, FileChange, Limits, Request, Sandbox
from support.runner_conformance import CheckResult, results

LIMITS = Limits(
    wall_seconds=1.0,
    memory_bytes=192 << 20,
    processes=64,
    disk_bytes=16 << 20,
    disk_inodes=2048,
    output_bytes=64 << 10,
    drain_bytes=1 << 20,
)
"""The limits that a sandbox needs for the checks: small, so that they are reached quickly.

For each limit, one check exceeds it (in parentheses how), and all others stay within it:

- one second (a sleep of 60)
- 192 MiB of memory (a text of 900 MiB)
- 64 processes (100 in the background)
- a disk of 16 MiB and 2,048 files (100 MiB, 4,000 files)
- 64 KiB of output kept and 1 MiB read (300,000 bytes, and `yes`)
"""

Check = Callable[[Sandbox], None]


def run_checks(sandbox: Sandbox) -> Iterator[CheckResult]:
    """Run the checks in order and yield each result. The sandbox must be open with `LIMITS`."""
    return results(CHECKS, sandbox)


def _run(sandbox: Sandbox, text: str, **how: Any) -> Execution:
    return sandbox.run(Request(text, **how))


def _expect(sandbox: Sandbox, text: str, output: str, exit_code: int = 0) -> Execution:
    execution = _run(sandbox, text)
    printed = execution.output.decode("utf-8", "replace")
    assert printed == output, f"{text!r} printed {printed!r}, not {output!r}"
    assert execution.exit_code == exit_code, f"{text!r}: exit code {execution.exit_code}"
    return execution


def _pristine(sandbox: Sandbox) -> None:
    """The sandbox still works and shows no traces of earlier runs."""
    _expect(sandbox, "ls -A /var/tmp; echo $((6 * 7)); ls /etc/passwd", "42\n/etc/passwd\n")
    others = "ps --ppid 2 -p 2 --deselect -o pid="  # kernel threads come and go
    _expect(sandbox, others + " | grep -c '^ *[0-9]\\{4\\}'", "3\n")


def _changes(execution: Execution) -> dict[str, FileChange]:
    return {change.path.decode("utf-8", "backslashreplace"): change for change in execution.changes}


# ---- execution of a run ----


def output_and_exit_code(sandbox: Sandbox) -> None:
    """Output and exit code are returned exactly as the input produced them."""
    _expect(sandbox, "printf 'a\\n\\tb'; exit 7", "a\n\tb", 7)
    assert _run(sandbox, "printf '\\377\\000x'").output == b"\xff\x00x"
    _expect(sandbox, "true", "")
    assert _run(sandbox, "echo no newline | tr -d '\\n'").output == b"no newline"


def messages_are_those_of_bash_c(sandbox: Sandbox) -> None:
    """Error messages have the same prefix (shell and line) as those of `bash -c`."""
    _expect(sandbox, "no-such-command", "bash: line 1: no-such-command: command not found\n", 127)
    execution = _run(sandbox, "ls 'unclosed")
    assert execution.exit_code == 2
    assert execution.output.startswith(b"bash: -c: line 1: unexpected EOF"), execution.output


def both_channels_in_order(sandbox: Sandbox) -> None:
    """One pipe for both channels keeps the order of arrival."""
    _expect(sandbox, "echo 1; echo 2 >&2; echo 3", "1\n2\n3\n")


def separate_channels(sandbox: Sandbox) -> None:
    """With two pipes, each channel holds its own output."""
    execution = _run(sandbox, "echo out; echo err >&2; exit 3", separate=True)
    assert execution.stdout == b"out\n", execution.stdout
    assert execution.stderr == b"err\n", execution.stderr
    assert execution.exit_code == 3


def standard_input_is_empty(sandbox: Sandbox) -> None:
    """Standard input is at end of file and is not a terminal."""
    _expect(sandbox, "cat; read x; echo $?; tty", "1\nnot a tty\n", 1)


def standard_input_is_given(sandbox: Sandbox) -> None:
    """A run reads the given bytes from a pipe, then end of file; the next run reads nothing."""
    assert _run(sandbox, "cat", stdin=b"a\0\xff\n").output == b"a\0\xff\n"
    execution = _run(
        sandbox, 'read x; read y; echo "$x|$y|$?"; cat; test -p /dev/stdin', stdin=b"1\n2\n3"
    )
    assert (execution.output, execution.exit_code) == (b"1|2|0\n3", 0), execution
    split = _run(sandbox, "sort; echo end >&2", stdin=b"b\na\n", separate=True, cwd="/etc")
    assert (split.stdout, split.stderr) == (b"a\nb\n", b"end\n"), split
    standard_input_is_empty(sandbox)


def long_standard_input_is_given(sandbox: Sandbox) -> None:
    """A long standard input arrives in full, even if it is read slowly."""
    longest = bytes(range(256)) * (LONGEST_STDIN // 256)
    assert _run(sandbox, "wc -c", stdin=longest).output == b"%d\n" % LONGEST_STDIN
    text = "head -c 70000 > /dev/null; sleep 0.1; tail -c 3 | od -An -tu1"
    assert _run(sandbox, text, stdin=longest[:-1]).output == b" 252 253 254\n"
    for wrong in ({"stdin": longest + b"x"}, {"stdin": b"x", "tty": True}):
        try:
            _run(sandbox, "true", **wrong)
        except InputError:
            continue
        raise AssertionError("a standard input that cannot be given raised nothing")


def standard_input_may_stay_unread(sandbox: Sandbox) -> None:
    """A run may leave standard input unread, stop reading, or keep the pipe open."""
    longest = b"line\n" * (LONGEST_STDIN // 5)
    for text, output in (
        ("echo done", "done\n"),
        ("head -n 1; echo done", "line\ndone\n"),
        ("exec 0<&-; sleep 0.1; echo done", "done\n"),
        ("exec 0</dev/null; cat; echo done", "done\n"),
        ("(trap '' PIPE; head -c 9 > /dev/null; sleep 60) & echo done", "done\n"),
        ("exec 3<> /proc/self/fd/0; head -c 200000 > /dev/null; echo done", "done\n"),
    ):
        execution = _run(sandbox, text, stdin=longest)
        printed = execution.output.decode()
        assert (printed, execution.exit_code) == (output, 0), f"{text!r} printed {printed!r}"
    waiting = _run(sandbox, "exec 3> /proc/self/fd/0; cat", stdin=b"x")
    assert (waiting.output, waiting.timed_out) == (b"x", True), waiting
    standard_input_is_empty(sandbox)
    _pristine(sandbox)


def process_ids_are_fixed(sandbox: Sandbox) -> None:
    """Process ids are the same in every run."""
    first = _run(sandbox, "echo $$; (echo $BASHPID); sh -c 'echo $$ $PPID'").output
    assert first == _run(sandbox, "echo $$; (echo $BASHPID); sh -c 'echo $$ $PPID'").output, first


def working_directory(sandbox: Sandbox) -> None:
    """A run starts in its start directory; one that cannot be entered raises an error."""
    assert _run(sandbox, "pwd; echo $PWD", cwd="/etc").output == b"/etc\n/etc\n"
    assert _run(sandbox, "cd /usr", cwd="/etc").cwd == b"/usr"
    for missing in ("/no/such/place", "/etc/passwd"):
        try:
            _run(sandbox, "true", cwd=missing)
        except StartDirectoryError:
            continue
        raise AssertionError(f"starting in {missing} raised nothing")
    _pristine(sandbox)


def impossible_inputs_are_refused(sandbox: Sandbox) -> None:
    """A text that cannot be a shell argument never runs."""
    for text in ("echo a\0b", "echo " + "x" * (1 << 18)):
        try:
            _run(sandbox, text)
        except InputError:
            continue
        raise AssertionError("an impossible input raised nothing")
    longest = "echo " + "x" * (128 * 1024 - 6)
    assert _run(sandbox, longest).exit_code == 0


def shell_state_is_known(sandbox: Sandbox) -> None:
    """The final state of a shell is known, whichever way the shell ends itself."""
    endings = (
        "x=1",
        "x=1; exit 3",
        "x=1; exec true",
        "x=1; kill -9 $$",
        "x=1; trap 'exit 4' EXIT",
        "x=1; declare() { :; }; builtin() { :; }; enable -n declare set shopt; readonly x",
        "x=1; set -r; set -o posix; exec 0<&- 1>&- 2>&-",
        "x=1; exec 3>/dev/null 200>/dev/null 201>/dev/null; exec 200>&- 201>&-",
    )
    for text in endings:
        state = _run(sandbox, text).shell
        assert state is not None, f"the state after {text!r} is unknown"
        assert b'x="1"' in state, f"the state after {text!r} lacks the variable"


# ---- changes of a run ----


def changes_are_complete(sandbox: Sandbox) -> None:
    """Exactly the changes that a run made to files are reported."""
    assert not _run(sandbox, "ls -R /etc > /dev/null; cat /etc/passwd > /dev/null").changes
    text = r"""
        mkdir -p /srv/new/deep; echo hi > /srv/new/deep/f; ln -s f /srv/new/deep/l
        ln /srv/new/deep/f /srv/new/hard; mkfifo /srv/new/pipe; mv /etc/hostname /etc/moved
        rm /etc/shells; chmod 600 /etc/passwd; chown 7:8 /etc/group; echo x >> /etc/issue
        printf x > $'/srv/odd\nname \xff'; rm -r /etc/skel; mkdir /etc/skel
    """
    changes = _changes(_run(sandbox, text))
    after = {path: change.after for path, change in changes.items() if change.after}
    gone = {path for path, change in changes.items() if change.after is None}
    assert {"/etc/hostname", "/etc/shells", "/etc/skel/.bashrc"} <= gone, gone
    assert stat.S_ISDIR(after["/srv/new/deep"].mode)
    hard = after["/srv/new/hard"]
    assert hard.links == 2, hard
    assert hard.size == 3, hard
    assert after["/srv/new/deep/l"].target == b"f"
    assert stat.S_ISFIFO(after["/srv/new/pipe"].mode)
    assert stat.S_IMODE(after["/etc/passwd"].mode) == 0o600
    assert (after["/etc/group"].uid, after["/etc/group"].gid) == (7, 8)
    assert changes["/etc/issue"].before is not None
    assert after["/etc/issue"].size == changes["/etc/issue"].before.size + 2
    assert "/srv/odd\nname \\xff" in after, sorted(after)
    moved, before = after["/etc/moved"], changes["/etc/hostname"].before
    assert before is not None
    assert (moved.size, moved.mtime_ns) == (before.size, before.mtime_ns)
    digest = "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4"
    assert hard.digest == digest, hard.digest
    _pristine(sandbox)


def files_are_pristine_again(sandbox: Sandbox) -> None:
    """No change of a file outlives its run."""
    before = _run(sandbox, "ls -laR /etc /var /root | cksum").output
    _run(sandbox, "rm -rf /etc /var /root /usr/bin/[a-m]*; echo x > /y; chmod 0 /")
    _run(sandbox, "touch -d 2001-01-01 /etc /etc/passwd; chmod 1777 /root; mkdir /var/tmp/a")
    assert _run(sandbox, "ls -laR /etc /var /root | cksum").output == before
    _pristine(sandbox)


def shell_is_pristine_again(sandbox: Sandbox) -> None:
    """Variables, functions, options, limits and directories are those of a fresh shell."""
    probe = (
        "set | grep -v -e RANDOM -e SECONDS -e EPOCH; shopt; set -o; ulimit -a; alias; umask; pwd"
    )
    before = _run(sandbox, probe).output
    _run(sandbox, "v=1; export w=2; f() { :; }; alias a=b; shopt -s extglob; set -f; umask 7; cd /")
    _run(sandbox, "ulimit -n 30; ulimit -u 20; readonly PATH=/x; trap 'echo t' EXIT; PS1=x")
    assert _run(sandbox, probe).output == before


# ---- after the shell has ended ----


def background_processes_end(sandbox: Sandbox) -> None:
    """Background processes may finish within a moment, and are then killed.

    This holds wherever their output goes. `limits_hit` reports that some were killed.
    """
    _expect(sandbox, "(sleep 0.02; echo late) &", "late\n")
    finished = _run(sandbox, "(sleep 0.02; : > /var/tmp/late) > /dev/null 2>&1 &")
    assert "/var/tmp/late" in _changes(finished), finished
    assert finished.limits_hit == (), finished
    left = _run(sandbox, "nohup setsid sleep 100 > /dev/null 2>&1 & disown -a")
    assert left.limits_hit == ("background_seconds",), left
    _run(sandbox, "sleep 100 &")
    _run(sandbox, "trap '' HUP TERM INT; (trap '' HUP TERM; while :; do :; done) & exit 3")
    _pristine(sandbox)


def the_network_is_pristine_again(sandbox: Sandbox) -> None:
    """Interfaces, addresses, routes, IPC objects and the hostname are restored."""
    before = _run(sandbox, "ip address; ip route; hostname; ipcs; ls /dev/mqueue").output
    _run(
        sandbox, "ip link set lo down; ip address add 10.1.1.1/8 dev lo; ip route flush table main"
    )
    _run(sandbox, "hostname other; ipcmk -M 4096 -Q -S 3")
    after = _run(sandbox, "ip address; ip route; hostname; ipcs; ls /dev/mqueue").output
    assert after == before, (before, after)
    _pristine(sandbox)


# ---- limits ----


def wall_time(sandbox: Sandbox) -> None:
    """A run that takes too long is ended, and its execution is marked as timed out."""
    execution = _run(sandbox, "echo before; sleep 60; echo after")
    assert execution.timed_out
    assert execution.exit_code == 124
    assert execution.output == b"before\n"
    assert _run(sandbox, "trap '' TERM INT HUP; while :; do :; done").timed_out
    _pristine(sandbox)


def output_is_bounded(sandbox: Sandbox) -> None:
    """The first bytes are kept; the exit code is correct up to `drain_bytes` of output."""
    execution = _run(sandbox, "head -c 300000 /dev/zero; exit 5")
    assert execution.output_truncated
    assert len(execution.output) == LIMITS.output_bytes
    assert execution.exit_code == 5
    assert _run(sandbox, "yes").output_truncated
    _pristine(sandbox)


def processes_are_bounded(sandbox: Sandbox) -> None:
    """A fork bomb reaches the process limit, and ends with its run."""
    _run(sandbox, "b() { b | b & }; b; sleep 0.3")
    execution = _run(sandbox, "for i in {1..100}; do sleep 60 & done; echo spawned")
    assert b"fork: " in execution.output, execution.output[-200:]
    _pristine(sandbox)


def disk_is_bounded(sandbox: Sandbox) -> None:
    """Writing too many bytes or too many files fails inside the run."""
    execution = _run(sandbox, "head -c 100M /dev/zero > /var/tmp/big; ls -s /var/tmp | wc -l")
    assert b"No space left on device" in execution.output, execution.output
    execution = _run(
        sandbox, "cd /var/tmp; for ((i = 0; i < 4000; i++)); do : > f$i || exit 9; done"
    )
    assert execution.exit_code == 9, execution
    _pristine(sandbox)


def memory_is_bounded(sandbox: Sandbox) -> None:
    """Using too much memory ends the run."""
    execution = _run(sandbox, "x=$(head -c 900M /dev/zero | tr '\\0' x); echo ${#x}")
    assert execution.exit_code != 0 or b"900" not in execution.output, execution.output[:99]
    _pristine(sandbox)


# ---- hostile inputs ----


def killing_everything(sandbox: Sandbox) -> None:
    """Signals cannot reach the processes that run the sandbox."""
    assert _run(sandbox, "kill -9 -1; kill -9 $$").exit_code == 137
    assert _run(sandbox, "kill -TERM $$").exit_code == 143
    _run(sandbox, "kill -9 1; kill -STOP -1; kill -9 0")
    _pristine(sandbox)


def descriptors_are_closed(sandbox: Sandbox) -> None:
    """Only the three standard descriptors are open; writing to others has no effect."""
    _expect(sandbox, "ls /proc/$$/fd; true", "0\n1\n2\n")
    _run(sandbox, 'for ((i = 3; i < 256; i++)); do eval "echo junk >&$i"; done; exec 1>&- 2>&-')
    _pristine(sandbox)


def mounts_stay(sandbox: Sandbox) -> None:
    """Changes of the mounts do not affect later runs."""
    for text in (
        "umount -l /; umount -a -l; ls",
        "mount -t tmpfs none /etc; mount -t tmpfs none /; mount --bind /etc /usr",
        "mount -o remount,rw /proc/sys; echo other > /proc/sys/kernel/hostname",
        "mount -t proc none /mnt; chroot /mnt; umount /proc/meminfo; umount /dev/null",
    ):
        _run(sandbox, text)
        _pristine(sandbox)


def the_host_is_out_of_reach(sandbox: Sandbox) -> None:
    """Processes, files, devices and name servers of the host cannot be seen or reached."""
    _expect(sandbox, "ps -e -o pid=,ppid= | awk '$2 == 0'", "      1       0\n")
    assert _run(sandbox, "echo 1 > /proc/sys/vm/drop_caches").exit_code != 0
    assert _run(sandbox, "mknod /var/tmp/sda b 8 0 && head -c 1 /var/tmp/sda").exit_code != 0
    assert _run(sandbox, "echo x > /proc/sysrq-trigger").exit_code != 0
    _expect(sandbox, "cat /proc/1/environ; cmp /proc/1/root/etc/hostname /etc/hostname", "")
    _expect(
        sandbox,
        "readlink -m /proc/[0-9]/fd/* /proc/[0-9][0-9][0-9]/fd/* | grep -v -e ^/dev -e '/socket:'",
        "",
        1,
    )
    assert _run(sandbox, "exec 3<>/dev/tcp/192.0.2.1/80").exit_code != 0
    assert _run(sandbox, "unshare -U true").exit_code != 0
    # by direct system calls: the system's C library hides what the sandbox adds
    read = '$p = "/proc/self/status"; $t = " " x 4096; syscall(0, syscall(2, $p, 0), $t, 4096)'
    status = f"perl -e '{read}; print $t'"
    assert b"Seccomp:\t2" in _run(sandbox, status).output


def repeated_runs_are_identical(sandbox: Sandbox) -> None:
    """The same input yields the same bytes each time, whichever inputs ran in between."""
    text = (
        "ls -lai /etc; find / -xdev -maxdepth 2 -printf '%p %i %s\\n'; echo $$; mkdir q; ls -id q"
    )
    first = _run(sandbox, text)
    _run(sandbox, "touch /a /b; rm -r /etc/skel")
    second = _run(sandbox, text)
    assert first.output == second.output
    assert {change.path for change in first.changes} == {change.path for change in second.changes}


CHECKS: tuple[Check, ...] = (
    output_and_exit_code,
    messages_are_those_of_bash_c,
    both_channels_in_order,
    separate_channels,
    standard_input_is_empty,
    standard_input_is_given,
    long_standard_input_is_given,
    standard_input_may_stay_unread,
    process_ids_are_fixed,
    working_directory,
    impossible_inputs_are_refused,
    shell_state_is_known,
    changes_are_complete,
    files_are_pristine_again,
    shell_is_pristine_again,
    background_processes_end,
    the_network_is_pristine_again,
    wall_time,
    output_is_bounded,
    processes_are_bounded,
    disk_is_bounded,
    memory_is_bounded,
    killing_everything,
    descriptors_are_closed,
    mounts_stay,
    the_host_is_out_of_reach,
    repeated_runs_are_identical,
)
"""All checks, in the order in which `run_checks` runs them."""
