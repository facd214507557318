"""Inputs that try to break out, to stay, or to deceive, each with what it may not do.

A case that fails today says why and is expected to; repairing it makes it pass, and the mark goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shioenv.behavior.observe import Observer, open_sandbox
from shioenv.domain.behavior import Behavior
from shioenv.errors import ShioenvError
from shioenv.sandbox.backends.namespaces import NamespaceSandbox
from shioenv.sandbox.base import Limits
from shioenv.system.store import System


@pytest.fixture
def sandbox(system: System) -> Iterator[NamespaceSandbox]:
    """One per case: what a case leaves behind must not be what the next one finds."""
    with NamespaceSandbox(system, Limits(wall_seconds=3.0, memory_bytes=96 << 20)) as opened:
        yield opened


def _fails(*values: object, reason: str) -> Any:
    return pytest.param(*values, marks=pytest.mark.xfail(strict=True, reason=reason))


# ---- nothing stays ----

_SIBLING = """exec perl -e '
    if (syscall(56, 0x8000 | 17, 0, 0, 0, 0) == 0) {
        syscall(112); open STDIN, "</dev/null"; open STDOUT, ">&STDIN"; open STDERR, ">&STDIN";
        sleep 60;
    }'"""
"""A process beside the shell, not below it: clone(CLONE_PARENT | SIGCHLD), then setsid."""

_SHARED = r"""perl -e '
    open M, "<", "/proc/" . getppid() . "/maps"; /^(\w+)-.*memfd:/ and $at = hex $1 for <M>;
    open H, "+<:raw", "/proc/" . getppid() . "/mem";
    sub put { sysseek H, $at + $_[0], 0; syswrite H, $_[1] }
    %s'; true"""
"""Writes into the memory that the shell shares with what runs it."""

_XATTR = """perl -e '$p = "%s"; $n = "%s"; $v = "y"; print syscall 188, $p, $n, $v, 1, 0'"""

LEFT_BEHIND = (
    # processes
    ("sleep 60 & setsid sleep 60 > /dev/null 2>&1 & disown -a", "ps -e -o comm="),
    ("perl -e 'syscall(157, 36, 1); fork; fork; setpgrp; sleep 60' &", "ps -e -o comm="),
    ("kill -STOP $$ & sleep 60 & kill -STOP $!; exit", "ps -e -o comm="),
    (
        "perl -e 'syscall(101, 0x4206, getppid(), 0, 0); sleep 60' & sleep 0.1; exit 3",
        "ps -e -o comm=",
    ),
    ("unshare -p -f sleep 60 > /dev/null 2>&1 &", "ps -e -o comm="),
    (_SIBLING, "ps -e -o comm="),
    ("prlimit --pid 1 --nofile=7:9", "prlimit --pid 1 --noheadings --nofile -o SOFT,HARD"),
    ("renice 7 -p 1", "ps -o ni= -p 1"),
    ("taskset -p 1 1; chrt -i -p 0 1", "chrt -p 1"),
    # limits
    ("ulimit -n 20; ulimit -u 30; ulimit -f 1", "ulimit -a"),
    ("prlimit --pid $$ --core=0:0; renice 19 $$; taskset -p 1 $$", "ulimit -a; nice"),
    (_SHARED % 'put(32 + 24 * $_, pack "VVQQ", 7, 0, 99, 99) for 0 .. 15', "ulimit -n"),
    # files
    ("rm -rf /etc /var /home 2> /dev/null; touch -d 2001-01-01 /", "ls -la --ignore=proc / /etc"),
    ("echo x > /a; rm /a", "stat -c '%y %A' /"),
    (
        "touch -a -d 2001-01-01 /etc/passwd /; chmod 700 /; chmod 755 /",
        "stat -c %x%y /etc/passwd /",
    ),
    (
        "mount -t tmpfs none /etc; mount --bind /usr /home; umount -l /",
        "ls /etc /home; cat /proc/mounts",
    ),
    ("mount -t tmpfs none /run; echo a > /run/x; unshare -m true", "ls -la /run"),
    ("for i in {1..14}; do mount --rbind /run /run; done", "grep -c . /proc/mounts"),
    (
        _XATTR % ("/etc", "user.overlay.opaque") + "; " + _XATTR % ("/etc", "user.a"),
        "ls /etc; perl -e '$d = \"/etc\"; print syscall 194, $d, 0, 0'",
    ),
    ("mknod /etc/passwd.x c 0 0; rm /etc/shells; mknod /etc/shells c 0 0", "ls -l /etc"),
    (
        """perl -e '$a = "/etc/shells"; $b = "/etc/x"; syscall 316, -100, $a, -100, $b, 4'""",
        "ls -l /etc",
    ),
    ("cd ..; rm -rf ubuntu; mkdir ubuntu; ln -s / ubuntu/r", "pwd; ls -la"),
    ("chmod 600 /dev/null", "stat -c %A /dev/null"),
    ("chown 5:6 /dev/full", "stat -c %U /dev/full"),
    ("touch -d 2001-01-01 /dev/zero", "stat -c %y /dev/zero"),
    ("chmod 700 /dev/mqueue", "stat -c %A /dev/mqueue"),
    ("sleep 60 & sleep 60 & sleep 60 &", "ls /proc | grep -v -e '^[0-9]'"),
    _fails("chmod 0 /proc/net/dev", "stat -c %A /proc/net/dev", reason="it belongs to the network"),
    # what namespaces hold
    ("hostname other; domainname other", "hostname; domainname"),
    ("ipcmk -M 4096 -Q -S 3 > /dev/null", "ipcs"),
    (
        "ip link set lo down; ip route add 10.9.0.0/16 dev eth0; ip link set eth0 mtu 900",
        "ip a; ip route",
    ),
    (
        "nft add table ip a; ip rule add to 10.9.9.9 lookup 7; tc qdisc add dev lo root pfifo",
        "nft list ruleset; ip rule; ip link",
    ),
    ("ip neigh add 10.20.30.99 lladdr 02:00:00:00:00:01 dev eth0", "ip neigh show 10.20.30.99"),
    _fails("ipcmk -M 4 -Q; ipcrm -a", "ipcmk -M 4 -Q", reason="the kernel counts ids on"),
    ("ping -c 1 127.0.0.1", "grep lo: /proc/net/dev"),
    ("ip xfrm policy add src 10.0.0.0/8 dst 10.0.0.0/8 dir out", "ip xfrm policy"),
    ("ip nexthop add id 5 blackhole", "ip nexthop"),
    _fails(
        "ip ntable change name arp_cache dev lo queue 7",
        "ip ntable show dev lo | grep -o 'queue 7'",
        reason="the kernel tells nobody",
    ),
    _fails(
        "ip maddr add 33:33:00:00:00:77 dev eth0",
        "ip maddr show dev eth0",
        reason="the kernel tells nobody",
    ),
    _fails(
        "ip addrlabel add prefix 2001:db8::/32 label 77",
        "ip addrlabel",
        reason="the kernel tells nobody",
    ),
    _fails(
        "ip mptcp limits set subflow 3",
        "ip mptcp limits",
        reason="generic netlink is not listened to",
    ),
    (
        """perl -MIO::Socket::INET -e '
            $l = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1:8080");
            $c = IO::Socket::INET->new("127.0.0.1:8080");
            $s = $l->accept; close $c; $s->getline'""",
        "grep -c 1F90 /proc/net/tcp",
    ),
)


@pytest.mark.parametrize(("attack", "probe"), LEFT_BEHIND)
def test_nothing_stays(attack: str, probe: str, sandbox: NamespaceSandbox) -> None:
    before = sandbox.run(probe)
    assert before.exit_code in (0, 1), before.output
    sandbox.run(attack)
    after = sandbox.run(probe)
    assert (after.exit_code, after.output) == (before.exit_code, before.output)


# ---- nothing is reached ----

OUT_OF_REACH = (
    "cat /proc/1/environ",
    "ls /proc/1/root/",
    "ls /proc/1/fd/",
    "readlink /proc/1/ns/mnt",
    "nsenter -t 1 -m true",
    "nsenter -t 1 -n true",
    "unshare -U true",
    "strace -p 1",
    "chmod 777 /proc/sys/kernel/hostname",
    "echo 1 > /proc/sys/net/ipv4/ip_forward",
    "mount -o remount,rw /proc/sys",
    "umount /proc/meminfo",
    "umount -l /dev/null",
    "mount -t proc none /mnt",
    "mount -t sysfs none /mnt",
    "mount -t bpf none /mnt",
    "mount -t debugfs none /mnt",
    "mount -t tracefs none /mnt",
    "mknod /tmp/k c 1 11",
    "mknod /tmp/d b 8 0",
    "date -s 2001-01-01",
    "echo -1000 > /proc/1/oom_score_adj",
    "echo -1000 > /proc/self/oom_score_adj",
    "nice -n -5 true 2>&1 | grep -q -v . ",
    "chrt -f 5 true",
    "renice -5 $$",
    "ulimit -n 99999999",
    "ls /proc/self/map_files/* > /proc/self/fd/9",
    "exec 3<> /dev/tcp/192.0.2.1/80",
    "echo x > /proc/sysrq-trigger",
    "perl -e 'exit(syscall(321, 5, 0, 0) < 0)'",
    "perl -e 'exit(syscall(425, 8, 0) < 0)'",
    "mount -t cgroup2 none /mnt",
)


@pytest.mark.parametrize("text", OUT_OF_REACH)
def test_nothing_is_reached(text: str, observer: Observer) -> None:
    assert observer.run(text).exit_code != 0, observer.run(text).output


# ---- nothing breaks ----

HARMLESS = (
    "kill -9 -1; kill -9 0",
    "kill -STOP -1",
    "exec 0<&- 1>&- 2>&-; exit 4",
    "umount -l /; exec /bin/true",
    "rm -rf --no-preserve-root / 2> /dev/null",
    "chroot /tmp; cd /; rm -rf /bin /lib /lib64 /usr",
    "trap '' 1 2 3 13 15; while :; do :; done",
    "exec perl -e 'kill 19, $$; sleep 9'",
    "b() { b | b & }; b; sleep 0.2",
    "yes > /dev/stderr",
    "cat /dev/urandom",
    "x=$(head -c 5M /dev/zero | tr '\\0' x); export x; true",
    "for ((i = 0; i < 8000; i++)); do declare v$i=$i; done",
    "eval \"f() { cat <<'E'\n\ng () \n{ \nE\n}\"; declare -A m=([$'\\n'a]=$'\\377'); alias q=\"'\"",
    "mkdir d; cd d; rmdir ../d; pwd",
    "ulimit -v 9000; ulimit -s 8; ls",
    "ulimit -f 0; echo x > y",
    "touch $'\\n' $'\\377' \"$(printf 'x%.0s' {1..255})\" -- -rf '*' $'a\\tb'",
    "truncate -s 8E huge; dd if=/dev/zero of=big bs=1 count=1 seek=3T",
    'perl -e \'chdir "d" while mkdir "d" and $i++ < 3000\'',
    "perl -e 'pipe $a[$_], $b[$_] for 0 .. 400; sleep 9'; true",
    "perl -e 'socketpair $a[$_], $b[$_], 1, 1, 0 for 0 .. 400'; true",
    "perl -e 'syscall(435, 0, 0); syscall(272, 0x7e020000); fork for 1 .. 5'",
    """perl -MFcntl -e '
        sysopen R, "/proc/self/fd/1", O_RDONLY | O_NONBLOCK; fork;
        while (time - $^T < 1) { syswrite STDOUT, "x"; sysread R, $b, 9 }'""",
    "for i in {1..300}; do ip link add l$i type veth; done 2> /dev/null; nft flush ruleset",
    """perl -e 'chroot "/tmp"; $d = "."; syscall 155, $d, $d; chdir ".." for 1 .. 99; exec "ls"'""",
    _SHARED % "put(0, chr(255) x 32)",
    _SHARED % 'put(16, pack "V", 0x7fffffff)',
    _SHARED % 'put(8, pack "Vl", 9, -1); kill 9, getppid()',
    _SHARED % 'put(8, pack "Vl", 2, 13); kill 9, getppid()',
    _SHARED % 'put(8, pack "Vl", 1, 5); kill 9, getppid()',
    "exec perl -e 'syscall(56, 0x8000 | 17, 0, 0, 0, 0)'",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_nothing_breaks(text: str, sandbox: NamespaceSandbox) -> None:
    """The input is a run like any other, soon over, and the next one knows nothing of it."""
    start = time.monotonic()
    sandbox.run(text)
    assert sandbox.run("echo $((6 * 7)); pwd").output == b"42\n/home/ubuntu\n"
    assert time.monotonic() - start < 25.0


# ---- nothing is recorded that did not happen ----


def _operations(behavior: Behavior) -> str:
    return str(behavior.patch.operations)


RECORDED: tuple[Any, ...] = (
    ("true", lambda b: not b.patch.operations),
    ("mkdir d; rmdir d; echo > /e; rm /e", lambda b: "'/fs/d'" not in _operations(b)),
    (_XATTR % ("documents", "user.overlay.opaque"), lambda b: "notes" not in _operations(b)),
    (
        "(cd /tmp; x=1; kill -9 $BASHPID); sh -c 'exit 3'",
        lambda b: b.exit_code == 3 and "/cwd" not in _operations(b),
    ),
    ("x=1; sh -c 'kill -9 $PPID'; true", lambda b: not b.shell_state_known and b.exit_code == 137),
    ("kill -CONT $$; cd /tmp; sh -c 'kill -9 $PPID'; true", lambda b: not b.shell_state_known),
    (
        "shopt -s execfail; exec /etc/passwd; cd /tmp; sh -c 'kill -9 $PPID'; true",
        lambda b: not b.shell_state_known,
    ),
    ("touch -d 2100-01-01 new", lambda b: "'year': 2100" in _operations(b)),
    ("touch -d 2300-01-01 new", lambda b: "'year': 2300" in _operations(b)),
    ("touch -d 1600-01-01 new", lambda b: "'year': 1600" in _operations(b)),
    ("mkdir -p $(printf 'a/%.0s' {1..100})", lambda b: not b.patch_truncated),
    ("mkdir -p $(printf 'a/%.0s' {1..200})", lambda b: b.patch_truncated),
    (
        "D=$(stat -c %y /bin/bash); printf X | dd of=/bin/bash conv=notrunc; "
        'touch -d "$D" /bin/bash',
        lambda b: "bash" in str(b.content_digests),
    ),
    ("hostname ubuntu", lambda b: "/hostname" not in _operations(b)),
    ("domainname other", lambda b: "/hostname" not in _operations(b)),
    ("ip link set lo alias $'\\xff'", lambda b: "'r', '/network" not in _operations(b)),
)


@pytest.mark.parametrize(("text", "holds"), RECORDED)
def test_only_what_happened_is_recorded(
    text: str, holds: Callable[[Behavior], bool], observer: Observer
) -> None:
    behavior = observer.run(text)
    assert holds(behavior), (behavior.patch.operations[:9], behavior.output[:300])


# ---- limits ----


@pytest.mark.xfail(strict=True, reason="only processes' resident memory is counted")
@pytest.mark.parametrize(
    "text",
    [
        "mount -t tmpfs none /mnt; head -c 120M /dev/zero > /mnt/x && sleep 0.2 && echo all",
        'perl -e \'$m = "m"; $f = syscall(319, $m, 0); open F, ">&=$f"; $b = "x" x (1 << 20);'
        ' print F $b for 1 .. 120; close F; select undef, undef, undef, 0.2; print "all\\n"\'',
    ],
)
def test_memory_outside_of_processes_is_bounded(text: str, system: System) -> None:
    with NamespaceSandbox(system, Limits(wall_seconds=20.0, memory_bytes=48 << 20)) as opened:
        assert b"all" not in opened.run(text).output


@pytest.mark.parametrize(
    "text",
    [
        "for i in {1..8}; do truncate -s 64M f$i; done",
        "head -c 8M /dev/zero > f; for i in {1..60}; do ln f f$i; done",
    ],
)
def test_reading_what_changed_takes_no_longer_than_writing_it(text: str, system: System) -> None:
    with NamespaceSandbox(system) as opened:
        start = time.monotonic()
        opened.run(text)
        assert time.monotonic() - start < 2.0


def test_processes_of_all_users_are_bounded(system: System) -> None:
    text = (
        "perl -e 'for $u (1 .. 3) { next if fork; $> = $< = 2000 + $u; for (1 .. 45) { fork // last"
        ' or sleep 9 } sleep 9 } sleep 1; print scalar(@{[glob "/proc/[0-9]*"]})\' 2> /dev/null'
    )
    with NamespaceSandbox(system, Limits(processes=50, memory_bytes=4 << 30)) as opened:
        assert int(opened.run(text).output) <= 66, "the limit and what the sandbox needs itself"


# ---- callers ----


@pytest.mark.parametrize(
    ("cwd", "text"),
    [
        ("/etc\0/x", "pwd"),
        ("etc", "pwd"),
        ("/" + "x" * 5000, "pwd"),
        ("/etc", "\ud800"),
        ("/etc/passwd", "pwd"),
    ],
)
def test_what_cannot_run_is_refused(cwd: str, text: str, system: System) -> None:
    with open_sandbox(system) as opened:
        inner = opened._sandbox
        supervisor = inner._process
        with pytest.raises(ShioenvError):
            inner.run(text, cwd=cwd)
        assert inner._process is supervisor, "it was no reason to open the sandbox again"
