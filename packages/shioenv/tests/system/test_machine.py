"""Programs of the built default system see the declared machine, and only that."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.catalogue import catalogue, quoted_name
from shioenv.system.store import System

COMMANDS = (
    "arch basename cat cd chgrp chmod chown comm cp cpio curl cut date dd df dir dirname dmesg du "
    "echo env ethtool export false file find fold free grep groups gzip head hostid id ip last "
    "link ln logname ls lsblk lscpu mkdir mkfifo mktemp mv netstat nl nproc od paste ping printenv "
    "ps pwd readlink rev rm rmdir shred sort split stat tail tar tee touch tr true truncate ulimit "
    "uname unexpand uniq unlink uptime users vdir w wc wget who whoami xargs"
)
"""The paper's 86 (Table 5); `ip` replaces ip-addr, ip-link and ip-route."""

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def run(system: System) -> Iterator[Run]:
    with NamespaceSandbox(system) as sandbox:
        yield lambda text: sandbox.run(Request(text)).output.decode("utf-8", "replace")


def test_every_command_of_the_paper_exists(run: Run) -> None:
    assert len(COMMANDS.split()) + 2 == 86
    assert run(f"for each in {COMMANDS}; do type $each > /dev/null; done") == ""


def test_lscpu_shows_the_declared_processor(run: Run, system: System) -> None:
    shown = run("lscpu")
    assert re.search(r"^CPU\(s\): +1$", shown, re.M)
    assert system.declaration.machine.cpu.model_name in shown
    assert run("nproc; nproc --all") == "1\n1\n"
    assert run("grep -c ^processor /proc/cpuinfo") == "1\n"


def test_free_shows_the_declared_memory(run: Run) -> None:
    fields = run("free -k").splitlines()[1].split()
    assert int(fields[1]) == 216 * 1024
    assert all(int(field) < 216 * 1024 for field in fields[2:])
    assert run("free -m | awk '/^Swap/ { print $2 }'") == "0\n"


def test_lsblk_and_df_show_the_declared_disks(run: Run) -> None:
    assert run("lsblk -rno NAME,MAJ:MIN,SIZE,TYPE,MOUNTPOINTS") == (
        "vda 240:0 512M disk /\nvdb 240:16 64M disk \n"
    )
    size, used, available = run("df -k --output=size,used,avail / | tail -1").split()
    assert 0.95 * 512 * 1024 < int(size) < 512 * 1024  # less the file system's own
    assert int(size) == int(used) + int(available)
    assert run("wc -l < /proc/partitions") == "4\n"


def test_logins_are_the_declared_ones(run: Run) -> None:
    assert run("users") == "root ubuntu\n"
    assert run("who") == (
        "root     tty1         2025-10-15 16:41\n"
        "ubuntu   pts/0        2025-10-16 08:04 (10.20.30.2)\n"
    )
    assert run("who -b").split() == ["system", "boot", "2025-10-15", "16:40"]
    last = run("last")
    assert last.startswith(
        "alice    pts/1        10.20.30.57      Thu Oct 16 13:27 - 15:02  (01:34)"
    )
    assert last.endswith("wtmp begins Fri Oct 10 07:57:44 2025\n")
    assert "198.51.100.77" in run("lastb")
    assert "10.20.30.57" in run("lastlog -u alice")


def test_names_and_addresses_are_the_declared_ones(run: Run) -> None:
    assert run("hostname; hostname -f; uname -n") == "ubuntu\nubuntu.example.internal\nubuntu\n"
    assert "inet 10.20.30.40/24" in run("ip -4 addr show eth0")
    assert run("ip -o link | wc -l") == "2\n"
    assert run("id ubuntu") == (
        "uid=1000(ubuntu) gid=1000(ubuntu) groups=1000(ubuntu),4(adm),27(sudo),1100(developers)\n"
    )


def test_root_may_see_whose_the_sockets_are(run: Run) -> None:
    shown = "netstat -unap | awk 'NR > 2 {print $4, $NF}'"
    assert run(f"nc -ul 127.0.0.1 4000 & sleep 0.1; {shown}") == "127.0.0.1:4000 1001/nc\n"


def test_uptime_is_the_declared_one(run: Run) -> None:
    assert re.search(
        r"up 1 day,  3:0\d,  2 users,  load average: 0\.08, 0\.03, 0\.01", run("uptime")
    )


def test_dmesg_shows_the_declared_log(run: Run, system: System) -> None:
    lines = run("dmesg").splitlines()
    log = system.declaration.machine.kernel.log
    assert lines == [f"[{seconds:12.6f}] {text}" for seconds, text in log]


def test_nothing_of_the_hosts_name_or_files_shows(run: Run) -> None:
    import socket

    host = socket.gethostname()
    if len(host) > 3 and host != "ubuntu":
        shown = run("env; mount; cat /etc/hosts /proc/version /proc/cmdline; ps aux; dmesg")
        assert host not in shown
    home = str(Path.home())
    if home != "/root":
        assert home not in run("mount; env; cat /proc/self/mountinfo")


def test_every_name_of_the_catalogue_exists(run: Run, system: System) -> None:
    tokens = catalogue(system)
    for token in ("File", "Directory", "Symlink", "Fifo", "GlobalFile", "GlobalDirectory",
                  "GlobalExecutable", "Executable"):  # fmt: skip
        names = " ".join(quoted_name(name) for name in tokens[token])
        assert run(f'for n in {names}; do [ -e "$n" ] || [ -L "$n" ] || echo "$n"; done') == ""
    for user in tokens["Username"]:
        assert run(f"id -un {user}") == f"{user}\n"
    for group in tokens["Groupname"]:
        assert run(f"getent group {group} > /dev/null; echo $?") == "0\n"


def test_the_home_tree_is_what_its_tools_say(run: Run) -> None:
    kinds = run("file -b images/photo.png archives/* misc/utf16.txt misc/crlf.txt bin/hello")
    for expected in ("PNG image data, 48 x 32", "POSIX tar archive", "gzip compressed data",
                     "Zip archive data", "ASCII cpio archive", "bzip2 compressed data",
                     "Unicode text, UTF-16", "CRLF line terminators", "ELF 64-bit"):  # fmt: skip
        assert expected in kinds
    assert run("bin/hello") == "hello from a small program\n"
    assert run("tar tzf archives/backup.tar.gz") == (
        "data/data.csv\ndata/users.csv\ndata/numbers.txt\ndocuments/notes.txt\n"
    )
    assert run("unzip -tq archives/site.zip").startswith("No errors detected")
    assert (
        run("gzip -t archives/app.log.1.gz && zcat archives/app.log.1.gz | cmp - logs/app.log.1")
        == ""
    )
    assert run("cpio -t --quiet < archives/scripts.cpio").splitlines()[-1] == "scripts/main.py"
    assert run("bzcat archives/numbers.txt.bz2 | cmp - data/numbers.txt") == ""
    assert run("bash -n scripts/*.sh; sh -n bin/greet") == ""
    assert run("comm -12 documents/words_sorted.txt documents/words_other.txt | wc -l") == "6\n"
    assert (
        run("find . -user alice -o -group auditors | sort")
        == "./data/shared/budget.csv\n./data/shared/plan.txt\n"
    )
    assert run("stat -c '%s %b' data/sparse.img") == "65536 16\n"
    assert run("find . -newermt '2025-10-16 19:43'; find . ! -newermt '2025-04-15'") == ""


def test_the_index_agrees_with_what_stat_says(run: Run, system: System) -> None:
    shown = run("find . -mindepth 1 -printf '%P\\t%m\\t%u\\t%g\\t%n\\t%T@\\0'").split("\0")[:-1]
    users = {number: name for name, number in system.users.items()}
    groups = {number: name for name, number in system.groups.items()}
    assert len(shown) == len(list(system.beneath("/home/ubuntu"))) - 1
    for line in shown:
        name, mode, user, group, links, time = line.split("\t")
        entry = system.index[f"/home/ubuntu/{name}"]
        assert entry.mode & 0o7777 == int(mode, 8)
        assert (users[entry.uid], groups[entry.gid]) == (user, group)
        assert entry.links == int(links)
        assert entry.mtime == float(time)


def test_setuid_programs_take_effect(run: Run) -> None:
    assert run("su ubuntu -c 'passwd -S ubuntu'").startswith("ubuntu L 2025-04-22 ")
    assert run("su ubuntu -c 'sudo id -un'") == "root\n"
    assert run("su bob -c 'sudo -n id'") == "sudo: a password is required\n"
    assert run("su ubuntu -c 'su -c id'") == "Password: su: Authentication failure\n"
    assert "1 received" in run("su ubuntu -c 'ping -c1 -W1 10.20.30.1'")


def test_devices_look_like_a_machines(run: Run) -> None:
    shown = run("stat -c '%A %U %G %t,%T %s %b' /dev/vda /dev/tty1 /dev/ttyS0 /dev/ptmx")
    assert shown.splitlines() == [
        "brw-rw---- root disk f0,0 0 0",
        "crw--w---- root tty 4,1 0 0",
        "crw-rw---- root dialout 4,40 0 0",
        "crw-rw-rw- root tty 5,2 0 0",
    ]
    assert run("test -b /dev/vda && test -c /dev/net/tun && readlink -f /dev/disk/by-label/*") == (
        "/dev/vdb\n/dev/vda\n"
    )
    assert run("lsblk -rno NAME,SIZE /dev/vdb") == "vdb 64M\n"
    assert run("cat /dev/vda") == "cat: /dev/vda: No such device or address\n"
    assert run("find /dev -maxdepth 1 -type b -name 'vd*' | sort") == "/dev/vda\n/dev/vdb\n"
    assert run("find /dev ! -name kmsg ! -type b ! -type c ! -type d ! -type l") == ""


def test_devices_of_what_is_no_disk_have_the_declared_numbers(run: Run) -> None:
    places = "/ /proc /sys /dev/pts /dev/mqueue /dev/shm /proc/version /dev/pts/ptmx"
    shown = "61440 21 20 22 25 61440 21 22"
    assert run(f"stat -c %d {places} | xargs") == f"{shown}\n"
    assert run(f"find {places} -maxdepth 0 -printf '%D\\n' | xargs") == f"{shown}\n"
    assert run("stat -f -c %i /proc /dev/pts /dev/mqueue /sys | xargs") == (
        "1500000000 1600000000 1900000000 0\n"
    )
    assert run("stat -Lc %d /dev/stdout | cat") == "13\n"
    assert (
        run("mountpoint -d /proc; stat -c %i /proc /dev/pts /dev/mqueue | xargs") == "0:21\n1 1 1\n"
    )
    assert run("findmnt -rno MAJ:MIN,TARGET | sort | xargs") == (
        "0:20 /sys 0:21 /proc 0:22 /dev/pts 0:23 /run 0:24 /dev/shm 0:25 /dev/mqueue "
        "0:26 /sys/fs/cgroup 0:27 /run/lock 0:28 /run/user/0 0:29 /run/user/1000 0:5 /dev "
        "240:0 /\n"
    )


def test_memory_file_systems_have_the_options_of_a_debian_kernel(run: Run) -> None:
    """Root's tmpfs shows no owner."""
    places = "/dev /run /run/lock /run/user/0 /run/user/1000 /dev/shm"
    options = run(f"for at in {places}; do findmnt -no FS-OPTIONS $at; done").split()
    assert options == [
        "rw,size=110592k,nr_inodes=27648,mode=755,inode64",
        "rw,size=22118k,mode=755,inode64",
        "rw,size=5120k,inode64",
        "rw,size=22118k,nr_inodes=5529,mode=700,inode64",
        "rw,size=22118k,nr_inodes=5529,mode=700,uid=1000,gid=1000,inode64",
        "rw,inode64",
    ]


def test_mounts_of_an_input_have_numbers_of_their_own(run: Run) -> None:
    mounted = "cd /mnt; mkdir m n; mount -t tmpfs x m; mount -t tmpfs y n; mount --bind m /media; "
    assert run(f"{mounted} stat -c %d m n /media | xargs") == "40 41 40\n"
    assert run(f"{mounted} tail -n 3 /proc/self/mountinfo | cut -d' ' -f3 | xargs") == (
        "0:40 0:41 0:40\n"
    )


def test_files_of_proc_are_as_old_as_the_machine(run: Run) -> None:
    booted = "2025-10-15 16:40:00.000000000 +0000"
    for _ in range(3):
        shown = run("stat -c %y /proc /proc/net /proc/kmsg /proc/slabinfo /proc/sys/vm | sort -u")
        assert shown == f"{booted}\n"


def test_long_links_take_a_block(run: Run) -> None:
    links = "ln -s $(printf %059d 0) a; ln -s $(printf %060d 0) b; ln -s $(printf %0900d 0) c; "
    assert run(f"cd /tmp; {links} stat -c '%s %b' a b c; du -s") == "59 0\n60 8\n900 8\n12\t.\n"
    long = (
        "find /etc /usr -type l -printf '%b %l\\n' | awk '{ print ($1 > 0) == (length($2) > 59) }'"
    )
    assert run(f"{long} | sort -u") == "1\n"


def test_whoever_wants_a_terminal_gets_one(run: Run) -> None:
    assert run("tty; script -qc tty /dev/null") == "not a tty\n/dev/pts/0\r\n"
    spawned = "import pty; pty.spawn(['stat', '-L', '-c', '%A %U %G', '/proc/self/fd/0'])"
    assert run(f'python3 -c "{spawned}"') == "crw--w---- root tty\r\n"
    assert run("ls -A /dev/pts; script -qc tty /dev/null") == "ptmx\n/dev/pts/0\r\n"


def test_sys_cannot_be_changed(system: System) -> None:
    with NamespaceSandbox(system) as sandbox:
        execution = sandbox.run(Request("touch /sys/x; mkdir /sys/y; rm -r /sys/block; ls /sys/x"))
        assert execution.output.startswith(b"touch: cannot touch '/sys/x': Read-only file system\n")
        assert not execution.changes
        shown = sandbox.run(Request("df -h | grep -c /sys; df --output=size,used /sys | tail -1"))
    assert shown.output.split() == [b"0", b"0", b"0"]


def test_what_a_visitor_tries_first_is_there(run: Run) -> None:
    assert run("sudo -n id -un; crontab -l") == "root\nno crontab for root\n"
    assert run("python3 -c 'import json, sqlite3, ssl, venv; print(6 * 7)'") == "42\n"
    assert run("systemctl is-enabled cron; lsb_release -cs") == "enabled\nbookworm\n"
    names = "apt apt-get vi nano ssh make htop screen journalctl reboot bc nc mkfs.ext4"
    for name in names.split():
        assert run(f"command -v {name}"), name
    assert "Temporary failure resolving 'deb.debian.org'" in run("apt-get update")
    assert run("git") == "bash: line 1: git: command not found\n"


def test_python_finds_its_modules_compiled(system: System) -> None:
    with NamespaceSandbox(system) as sandbox:
        execution = sandbox.run(Request("python3 -c 'import json, http.server, asyncio, sqlite3'"))
    assert execution.exit_code == 0
    assert not execution.changes


def test_lsmod_lists_the_declared_modules(run: Run, system: System) -> None:
    modules = [line.split()[0] for line in system.declaration.machine.kernel.modules]
    assert [line.split()[0] for line in run("lsmod").splitlines()[1:]] == modules
    assert run("cut -d' ' -f1 /proc/modules; cat < /proc/modules | wc -l").split() == [
        *modules,
        str(len(modules)),
    ]
    assert run("ls /sys/module").split() == sorted(modules)
    assert run("cat /proc/no-modules") == "cat: /proc/no-modules: No such file or directory\n"
    assert "Operation not permitted" in run("rmmod virtio_rng")


TREE = "find data* logs -printf '%P %y %i %m %u %g %T@\\n' | sort"


def test_directories_of_the_system_are_renamed(system: System) -> None:
    with NamespaceSandbox(system) as sandbox:

        def run(text: str) -> str:
            return sandbox.run(Request(text)).output.decode()

        files = "find {} -type f -printf '%f %i %s %m %u %g %T@\\n' | sort"
        times = "find {} -printf '%f %y %m %u %g %T@\\n' | tail -n +2 | sort"
        assert run("mv -v documents d2") == "renamed 'documents' -> 'd2'\n"
        for listing in (files, times):
            before, after = listing.format("documents"), listing.format("d2")
            shown = run(f"{before} > /tmp/1; mv documents d2; {after} > /tmp/2; diff /tmp/1 /tmp/2")
            assert shown == ""
        assert run("mv -v documents d; mv -v d documents; mv -v documents/old documents/o") == (
            "renamed 'documents' -> 'd'\nrenamed 'd' -> 'documents'\n"
            "renamed 'documents/old' -> 'documents/o'\n"
        )
        assert run(
            "mkdir z; mv -vT documents z; perl -e 'rename q(data), q(logs) or print $!'"
        ) == ("renamed 'documents' -> 'z'\nDirectory not empty")
        assert run("exec 3< documents/notes.txt; mv documents d; head -c 5 <&3; ls documents") == (
            run("head -c 5 documents/notes.txt")
            + "ls: cannot access 'documents': No such file or directory\n"
        )
        assert run("perl -e 'rename q(data), q(data/x) or print $!'") == "Invalid argument"
        assert run("su bob -c 'mv /home/ubuntu/data /tmp/'") == (
            "mv: cannot move '/home/ubuntu/data' to '/tmp/data': Permission denied\n"
        )


def test_a_directory_that_cannot_be_moved_whole_stays_whole(system: System) -> None:
    with NamespaceSandbox(system) as sandbox:
        shown = sandbox.run(Request(
            f"mkdir t e; chmod 751 e; touch -d @5 e; {TREE} > /tmp/1; mount --bind t data/shared; "
            "perl -e 'for (qw(d3 e)) { rename q(data), $_ or print qq($!\\n) }'; "
            "umount data/shared; "
            f"{TREE} | diff /tmp/1 -; ls -d d3; stat -c '%a %Y' e"
        )).output  # fmt: skip
    refused = b"Invalid cross-device link\n"
    gone = b"ls: cannot access 'd3': No such file or directory\n"
    assert shown == refused + refused + gone + b"751 5\n"
