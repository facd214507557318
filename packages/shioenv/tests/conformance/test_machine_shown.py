"""Mounts, disks, directories and network cards look as on the declared machine, and correctly so
after changes by an input. `executions.py` compares the same for root and an ordinary user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from shioenv.sandbox.base import Limits, Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import System

Run = Callable[[str], str]

POINTS = [
    "/sys", "/proc", "/dev", "/dev/pts", "/sys/fs/cgroup", "/run", "/run/lock", "/run/user/0",
    "/run/user/1000", "/", "/dev/shm", "/dev/mqueue",
]  # fmt: skip


@pytest.fixture(scope="module")
def run(system: System) -> Iterator[Run]:
    with NamespaceSandbox(system, Limits(wall_seconds=30, cpu_seconds=30)) as opened:
        yield lambda text: opened.run(Request(text)).output.decode("utf-8", "replace")


# ---- mounts --------------------------------------------------------------------------------------

SHOWS_MOUNTS = {
    "cat": "cat /proc/mounts | cut -d' ' -f2",
    "as it is": "cut -d' ' -f2 /proc/self/mounts",
    "mountinfo": "cut -d' ' -f5 /proc/self/mountinfo",
    "mountstats": "cut -d' ' -f5 /proc/self/mountstats",
    "mtab": "cut -d' ' -f2 /etc/mtab",
    "of a process": "cut -d' ' -f2 /proc/$$/mounts",
    "of process 1": "cut -d' ' -f2 /proc/1/mounts",
    "of a thread": "cut -d' ' -f5 /proc/thread-self/mountinfo",
    "relative": "cd /proc/self; cut -d' ' -f2 mounts",
    "mount": "mount | cut -d' ' -f3",
    "findmnt": "findmnt -lno TARGET",
    "redirected": "while read -r _ point _; do echo $point; done < /proc/mounts",
    "read into an array": "mapfile -t m < /proc/mounts; printf '%s\\n' \"${m[@]}\" | cut -d' ' -f2",
    "substituted": 'echo "$(< /proc/mounts)" | cut -d" " -f2',
    "descriptor": "exec 5< /proc/mounts; cut -d' ' -f2 <&5",
    "perl": "perl -ne 'print +(split)[1], qq(\\n)' /proc/mounts",
    "awk": "awk '{ print $2 }' /proc/mounts",
    "copied": "cp /proc/mounts x; cut -d' ' -f2 x",
    "backwards": "tac /proc/mounts | tac | cut -d' ' -f2",
    "head and tail": "(head -n 8 /proc/mounts; tail -n 4 /proc/mounts) | cut -d' ' -f2",
    "another user": "su ubuntu -c \"cut -d' ' -f2 /proc/mounts\"",
    "a fresh shell": 'env -i bash -c "while read _ b _; do echo \\$b; done < /proc/mounts; '
    "cut -d' ' -f2 /proc/mounts\"",
    "below another root": "mount --rbind / /mnt; chroot /mnt head -n 12 /proc/mounts | "
    "cut -d' ' -f2",
}


@pytest.mark.parametrize("how", SHOWS_MOUNTS)
def test_every_program_shows_the_mounts_of_a_machine(run: Run, how: str) -> None:
    shown = run(SHOWS_MOUNTS[how]).split()
    if how == "findmnt":  # which shows a tree
        assert sorted(shown) == sorted(POINTS)
    elif how == "a fresh shell":
        assert shown == POINTS * 2
    else:
        assert shown == POINTS


def test_nothing_among_them_tells_of_the_sandbox(run: Run, system: System) -> None:
    shown = run(
        "cat /proc/mounts /proc/self/mountinfo /proc/self/mountstats; mount; findmnt -A; df -aT; "
        "stat -f /; stat -f -c %T /etc /tmp; lsblk -f; find /etc/passwd -printf '%F\\n'"
    )
    for word in ("overlay", "lowerdir", "layer", "size=0", "/proc/", "/dev/null", "shioenv"):
        assert word not in shown
    assert set(re.findall(r"uid=(\d+)", shown)) == {"1000"}
    assert "/dev/vda on / type ext4 (rw,relatime)\n" in shown
    assert run("find /etc/passwd /proc/self/stat -printf '%F '") == "ext4 proc "
    assert run("stat -f -c %T / /proc /sys /run /dev/shm /dev/pts").split() == (
        ["ext2/ext3", "proc", "sysfs", "tmpfs", "tmpfs", "devpts"]
    )


def test_what_an_input_mounts_is_shown_as_it_is(run: Run) -> None:
    mounted = "mount -t tmpfs -o size=1m,uid=1000,mode=700 mine /mnt"
    assert run(f"{mounted}; mount | tail -n 1; grep -c . /proc/mounts") == (
        "mine on /mnt type tmpfs (rw,relatime,size=1024k,mode=700,uid=1000)\n13\n"
    )
    assert run(f"{mounted}; tail -n 1 /proc/self/mountinfo | cut -d' ' -f1,2,4-") == (
        "40 28 / /mnt rw,relatime - tmpfs mine rw,size=1024k,mode=700,uid=1000\n"
    )
    assert run(f"{mounted}; umount /mnt; mount | wc -l") == f"{len(POINTS)}\n"
    assert run("mount -t tmpfs proc /mnt; tail -n 1 /proc/mounts") == (
        "proc /mnt tmpfs rw,relatime 0 0\n"
    )
    assert run(
        "mount --bind /etc /mnt; mount -o remount,bind,ro /mnt; tail -n 1 /proc/mounts; "
        "tail -n 1 /proc/self/mountinfo"
    ) == (
        "/dev/vda /mnt ext4 ro,relatime 0 0\n40 28 240:0 /etc /mnt ro,relatime - ext4 /dev/vda rw\n"
    )
    assert run("mkdir 'a b'; mount -t tmpfs x 'a b'; tail -n 1 /proc/mounts").startswith("x /home/")
    many = "for n in {1..300}; do mkdir m$n; mount -t tmpfs t$n m$n; done; wc -l < /proc/mounts"
    shown = run(f"{many}; umount m7; grep -c tmpfs.t /proc/self/mountinfo; tail -n 1 /proc/mounts")
    assert re.fullmatch(r"312\n304\nt300 /\S+/m300 tmpfs rw,relatime 0 0\n", shown)
    assert run("mount -t tmpfs x /mnt; mkdir /mnt/y; mount -t tmpfs y /mnt/y; "
               "tail -n 1 /proc/self/mountinfo | cut -d' ' -f1-2") == "41 40\n"  # fmt: skip


def test_files_of_such_names_and_their_errors_are_as_they_were(run: Run) -> None:
    assert run("echo mine > mounts; cat mounts; mkdir mtab; cat mtab") == (
        "mine\ncat: mtab: Is a directory\n"
    )
    assert run("cat /proc/none/mounts; cat /proc/mounts/; echo x > /proc/mounts") == (
        "cat: /proc/none/mounts: No such file or directory\ncat: /proc/mounts/: Not a directory\n"
        "bash: line 1: echo: write error: Invalid argument\n"
    )
    assert run("perl -e 'open F, q(<), q(mounts) or print int $!'") == "2"
    # the list itself briefly takes a descriptor or two more, and never shows the kernel's
    few = "ulimit -n 5; perl -e 'print open(F, q(<), q(/proc/mounts)) ? scalar(@l = <F>) : int $!'"
    assert run(f"({few}) 2> /dev/null") in {str(len(POINTS)), "24"}
    flags = "perl -MFcntl -e 'sysopen F, q(/proc/mounts), O_NONBLOCK; print fcntl(F, F_GETFL, 0)'"
    assert int(run(flags)) & 0o4000
    assert run("perl -MFcntl -e 'open F, q(/proc/mounts); print fcntl(F, F_GETFD, 0)'") == "1"
    assert run("stat -c '%F %a %s %U' /proc/self/mounts") == "regular empty file 444 0 root\n"


# ---- the disk ------------------------------------------------------------------------------------


def test_the_root_disk_is_in_use_and_takes_no_more_than_it_shows_free(
    run: Run, system: System
) -> None:
    shown = "df -k --output=source,fstype,size,used,avail / | tail -n 1"
    source, kind, size, used, free = run(shown).split()
    assert (source, kind) == ("/dev/vda", "ext4")
    assert int(used) + int(free) == int(size) <= system.declaration.machine.disk // 1024
    assert int(used) == system.answers.disk_used // 1024 > int(size) // 4
    filled = run(f"head -c 300M /dev/zero > x; stat -c %s x; {shown}; rm x; {shown}").splitlines()
    assert "No space left on device" in filled[0]
    assert int(free) - 64 <= int(filled[1]) // 1024 <= int(free)
    assert int(filled[2].split()[4]) == 0
    assert run("df -k / | tail -n 1").split()[3] == free
    blocks = run("stat -f -c '%b %f %a %S %c %d' /").split()
    assert [int(number) * 4 for number in blocks[:3]] == [int(size), int(free), int(free)]
    assert int(blocks[4]) > int(blocks[5]) > 1000
    assert run(
        "perl -e 'print 1 if -e q(/)'; df -i / | tail -n 1 | awk '{ print $2 - $3 - $4 }'"
    ) == ("10\n")


# ---- files ---------------------------------------------------------------------------------------


def test_inode_numbers_have_ordinary_length_and_agree_by_every_way(run: Run) -> None:
    numbers = run("find / -xdev ! -path /proc ! -path '/dev/*' -printf '%i\\n'").split()
    assert len(numbers) > 5000
    assert all(len(number) < 9 for number in numbers)
    assert len(set(numbers)) == len(numbers)
    changed = "touch new; mkdir d; echo x >> README.md; chmod 600 empty.txt; touch documents/x; "
    agree = (
        "for f in * documents/*; do [ -L $f ] || echo $(ls -di $f | cut -d' ' -f1) "
        "$(stat -c %i $f) $(find $f -prune -printf %i) $(find . -inum $(stat -c %i $f) | wc -l) "
        "$(perl -e 'print +(lstat shift)[1]' $f) $(stat -c %i - < $f); done"
    )
    lines = run(f"{changed}{agree}").splitlines()
    assert len(lines) > 15
    for line in lines:
        first, *others = line.split()
        assert [first, first, "1", first, first] == others, line
    listed = "ls -ai documents | tail -n +3; ls -dUi documents/* documents/.* | grep -v '/[.]*$'"
    assert len({row.split()[0] for row in run(f"{changed}{listed}").splitlines()}) >= 5
    assert run("perl -e 'opendir D, q(.); print 1 while readdir D' | wc -c") != "0\n"


def test_the_root_disk_has_its_own_number_in_every_run(run: Run) -> None:
    for _ in range(2):
        assert run("touch x; stat -c '%d %Hd %Ld' / x README.md; mountpoint -d /") == (
            "61440 240 0\n" * 3 + "240:0\n"
        )
    assert run("mount -t tmpfs x /mnt; stat -c %d /mnt / /proc | sort -u | wc -l") == "3\n"
    assert run("find / -xdev -path '/proc/*' | wc -l") == "0\n"


def test_directories_have_the_links_of_their_directories(run: Run) -> None:
    change = (
        "touch documents/new; mkdir documents/inner etc; rmdir data/* 2> /dev/null; mkdir -p a/b; "
        "touch /new /etc/new /usr/bin/new; mkdir /usr/new; rm -r logs; mkdir logs; "
    )
    count = (
        "find / -xdev -type d ! -path /proc -printf '%n %p\\0' | perl -0ne 'chomp; my ($n, $d) = "
        'split / /, $_, 2; opendir D, $d; my $c = grep { lstat "$d/$_" and -d _ } readdir D; '
        'print "$d $n $c\\n" if $n != $c; $all++; END { print $all > 500 }\''
    )
    assert run(count) == "1"
    assert run(f"{change}{count}") == "1"
    shown = "touch documents/x; stat -c '%h %s' documents; ls -ld documents | cut -d' ' -f2; "
    shown += "stat -c %h - < documents; find documents -prune -links 3 -printf %n"
    assert run(shown) == "3 4096\n3\n3\n3"
    assert run("stat -c '%h %s' /; ls -ld / | cut -d' ' -f2").split() == ["17", "4096", "17"]
    hidden = "mkdir s; chmod 711 s; mkdir s/t; su ubuntu -c 'stat -c %h s s/t; cd s; stat -c %h .'"
    assert run(f"cd /tmp; {hidden}") == "3\n2\n3\n"
    assert run("stat -c %h /proc/sys /proc/sys/kernel").split() == ["1", "1"]


def test_files_of_proc_belong_to_root(run: Run) -> None:
    assert run("ls -l /proc /proc/sys /proc/tty | grep nobody") == ""
    assert (
        run("stat -c '%U %G' /proc/self /proc/sys/kernel/hostname /proc/net") == "root root\n" * 3
    )
    nobodys = "touch /tmp/n; stat -c %U /tmp/n /proc/self/; ps -o user= -p \\$\\$"
    assert run(f'su -s /bin/sh nobody -c "{nobodys}"').split() == ["nobody"] * 3


# ---- network cards -------------------------------------------------------------------------------


def test_the_network_card_is_no_end_of_a_cable(run: Run) -> None:
    shown = run("ip addr; ip -d link; ip -j -d link; ip -o link show eth0; ip -s link; ip -br link")
    for word in ("@", "netns", "veth", "link_index"):
        assert word not in shown
    assert run("cat /sys/class/net/eth0/{iflink,ifindex}") == "2\n2\n"
    assert re.search(r"^2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500", shown, re.M)
    assert (
        run("timeout 1 ip monitor link & sleep 0.2; ip link set eth0 mtu 1400; wait").count("@")
        == 0
    )


def test_cables_of_an_input_are_shown(run: Run) -> None:
    shown = run("ip link add v0 type veth peer name v1; ip -d link")
    assert "v0@v1:" in shown
    assert "v1@v0:" in shown
    assert shown.count("veth ") == 2


def test_a_file_that_was_read_at_such_a_time_is_no_device(run: Run) -> None:
    """Emulated devices are recognised by the nanoseconds of a time, which any program can set."""
    touch = "touch -ad '2025-10-16 19:43:00.'$(printf %09d $i) x"
    text = f"for i in {{0..300}}; do {touch}; stat -c %F x; done"
    assert run(f"{text} | uniq -c").split(None, 1) == ["301", "regular empty file\n"]


# ---- what a visitor asks first -------------------------------------------------------------------

VISITOR = {
    "ss -tlnpH | tr -s ' '": r"LISTEN 0 128 0\.0\.0\.0:22 0\.0\.0\.0:\* "
    r'users:\(\("sshd",pid=436,fd=3\)\) *\n'
    r'LISTEN 0 128 \[::\]:22 \[::\]:\* users:\(\("sshd",pid=436,fd=4\)\) *\n',
    "ss -tnpH | tr -s ' '": r"ESTAB 0 0 10\.20\.30\.40:22 10\.20\.30\.2:51514 "
    r'users:\(\("sshd",pid=812,fd=3\)\) *\n',
    "netstat -tlnp | awk 'NR > 2 {print $4, $7}'": r"0\.0\.0\.0:22 436/sshd:\n:::22 436/sshd:\n",
    "lsof -i | awk 'NR > 1 {print $1, $2, $9, $10}' | sort": r"sshd 436 \*:ssh \(LISTEN\)\n"
    r"sshd 436 \*:ssh \(LISTEN\)\n"
    r"sshd 812 ubuntu\.example\.internal:ssh->10\.20\.30\.2:51514 \(ESTABLISHED\)\n",
    "awk '{ print length($0) }' /proc/net/tcp | sort -u": r"149\n",
    "nc -w 3 localhost 22 < /dev/null": r"SSH-2\.0-OpenSSH_\S+ .*\s*",
    "service ssh status; service cron status": r"sshd is running\.\ncron is running\.\n",
    "cat /run/sshd.pid /run/crond.pid": r"436\n398\n",
    "kill -0 $(cat /run/sshd.pid) && ls -l /usr/sbin/sshd | cut -c1-10": r"-rwxr-xr-x\n",
    "find /var/log -maxdepth 1 -name '*.log' -newermt 2025-10-15 -printf '%f\\n' | sort": (
        r"auth\.log\ncron\.log\nkern\.log\n"
    ),
    "tail -n 1 /var/log/syslog; stat -c %y /var/log/syslog": r"2025-10-16T19:17:01\.\d{6}\+00:00 "
    r"ubuntu CRON\[\d+\]: \(root\) CMD .*\n2025-10-16 19:17:01.*\n",
    "grep -c installed /var/log/dpkg.log": r"[1-9]\d{2,}\n",
    "lsblk -fno NAME,UUID": r"vda +0b0b6f9e-\S+\nvdb +7a5e2c34-\S+\n",
    "cat /etc/timezone; readlink /etc/localtime; date +%Z": (
        r"Etc/UTC\n/usr/share/zoneinfo/Etc/UTC\nUTC\n"
    ),
    "dmesg | wc -l": r"[6-9]\d\n",
    'python3 -c "import os; print(*(round(x, 2) for x in os.getloadavg()))"; '
    "cut -d' ' -f1-3 /proc/loadavg": r"0\.08 0\.03 0\.01\n0\.08 0\.03 0\.01\n",
    "getconf _PHYS_PAGES; awk '/MemTotal/ {print $2 / 4}' /proc/meminfo": r"(\d+)\n\1\n",
    "grep -c . /proc/self/limits; awk '/file locks|core file/ {print $5}' /proc/self/limits": (
        r"17\n0\nunlimited\n"
    ),
    "grep -E 'Seccomp|Kthread|untag_mask' /proc/self/status": r"Seccomp:\t0\nSeccomp_filters:\t0\n",
    "lscpu | grep -c avx; grep -c avx /proc/cpuinfo; "
    "/lib64/ld-linux-x86-64.so.2 --help | grep -o 'x86-64-v[234] (supported'": (
        r"0\n0\nx86-64-v2 \(supported\n"
    ),
    "getconf LEVEL1_DCACHE_SIZE; getconf LEVEL3_CACHE_SIZE; lscpu -BC=ONE-SIZE | tail -n 4": (
        r"32768\n33554432\n *32768\n *32768\n *1048576\n *33554432\n"
    ),
    "ln -s $(printf '%060d' 0) long; stat -c %b long": r"8\n",
}
"""Ordinary commands, and their whole output."""


@pytest.mark.parametrize("text", VISITOR)
def test_a_visitor_finds_what_fits_together(run: Run, text: str) -> None:
    shown = run(text)
    assert re.fullmatch(VISITOR[text], shown), shown


def test_what_a_visitor_does_to_a_connection_is_gone_in_the_next_run(run: Run) -> None:
    before = run("ss -tanH | sort")
    assert "ESTAB" in before
    closed = run("ss -K dst 10.20.30.2 > /dev/null; ss -tanH | sort")
    assert "ESTAB" not in closed
    assert run("ss -tanH | sort") == before
    assert run("for i in 1 2 3; do nc -w 3 10.20.30.40 22 < /dev/null; done").count("SSH-2.0") == 3
    assert run("ss -tanH | sort") == before


def test_what_a_visitor_does_to_a_listener_ends_no_run(run: Run) -> None:
    before = run("ss -tanH | sort")
    for text in ("ss -tlnK", "ss -lK", "ss -K state listening"):
        closed = run(f"{text} > /dev/null; sleep 0.1; ss -tanH | sort; echo end")
        assert closed.endswith("end\n"), text
        assert "LISTEN" not in closed, text
    assert run("ss -tanH | sort") == before
    assert run("nc -w 3 10.20.30.40 22 < /dev/null").startswith("SSH-2.0")
