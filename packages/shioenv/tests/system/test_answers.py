"""The C library's answers to programs: the declared time and kernel, consistent across all calls;
and how the code for them is added to it."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shioenv import native
from shioenv.behavior.observe import SandboxRunner
from shioenv.sandbox.base import Request
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system import answers, image
from shioenv.system.declare import SystemDeclaration, load_declaration
from shioenv.system.elf import segments, symbols
from shioenv.system.store import System
from support.bases import of_the_c_library

Run = Callable[[str], str]
NOW, DAY, BOOT = "2025-10-16 19:43:0", "2025-10-16", "2025-10-15 16:40:00"
"""Up to the second's last digit: a busy machine may take some."""


@pytest.fixture(scope="module")
def sandbox(system: System) -> Iterator[NamespaceSandbox]:
    assert system.answers.clock == system.answers.kernel == "declared", system.answers.why
    with NamespaceSandbox(system) as opened:
        yield opened


@pytest.fixture(scope="module")
def run(sandbox: NamespaceSandbox) -> Run:
    def output(text: str) -> str:
        return sandbox.run(Request(text)).output.decode("utf-8", "replace")

    return output


SHOWS_NOW = {
    "date": "date '+%F %T'",
    "bash": "printf '%(%F %T)T\\n' -1",
    "EPOCHSECONDS": 'date -d "@$EPOCHSECONDS" "+%F %T"',
    "EPOCHREALTIME": 'date -d "@$EPOCHREALTIME" "+%F %T"',
    "perl time": "perl -MPOSIX -e 'print strftime(\"%F %T\\n\", gmtime(time))'",
    "perl Time::HiRes": "perl -MTime::HiRes -MPOSIX -e "
    "'print strftime(\"%F %T\\n\", gmtime(Time::HiRes::time()))'",
    "gawk systime": "gawk 'BEGIN { print strftime(\"%F %T\", systime()) }'",
    "ls": "touch x; ls -l --time-style='+%F %T' x | cut -d' ' -f6-7",
    "ls -c": "touch x; ls -lc --time-style='+%F %T' x | cut -d' ' -f6-7",
    "ls -u": "touch x; ls -lu --time-style='+%F %T' x | cut -d' ' -f6-7",
    "stat %x": "touch x; stat -c %x x",
    "stat %y": "touch x; stat -c %y x",
    "stat %z": "touch x; stat -c %z x",
    "stat %w": "touch x; stat -c %w x",
    "perl stat": "touch x; perl -MPOSIX -e 'print strftime(\"%F %T\\n\", gmtime((stat q(x))[9]))'",
    "date -r": "touch x; date -r x '+%F %T'",
    "find -printf": "touch x; find x -printf '%TF %TT\\n'",
    "open descriptor": "exec 5> x; stat -c %y - <&5",
    "symbolic link": "ln -s nowhere l; stat -c %y l",
    "directory": "mkdir d; stat -c %y d",
    "changed directory": "touch documents/new; stat -c %y documents",
    "renamed": "mv README.md x; stat -c %z x",
    "changed mode": "chmod 600 README.md; stat -c %z README.md",
    "cp -p": "touch a; sleep 0.01; cp -p a b; stat -c %y b",
    "tar": "touch x; tar c x | tar tv --full-time | tr -s ' ' | cut -d' ' -f4-5",
    "zip": "touch x; zip -q x.zip x; unzip -lqq x.zip | sed 's/  */ /g' | cut -d' ' -f3-4",
    "gzip": "echo a > x; gzip x; date -d \"@$(od -An -tu4 -j4 -N4 x.gz | tr -d ' ')\" '+%F %T'",
    "ps lstart of the shell": 'date -d "$(ps -o lstart= -p $$)" "+%F %T"',
    "uptime -s": "date -d \"$(uptime -s) 97380 seconds\" '+%F %T'",
    "another user": "su ubuntu -c \"date '+%F %T'\"",
    "setsid": "setsid -w date '+%F %T'",
    "chroot": "chroot / date '+%F %T'",
    "empty environment": "env -i /bin/date '+%F %T'",
    "preloaded library": "LD_PRELOAD=libc.so.6 date '+%F %T'",
    "fresh bash": "bash -c \"date '+%F %T'\"",
    "background": "date '+%F %T' & wait",
    "by the loader": "/lib64/ld-linux-x86-64.so.2 /bin/date '+%F %T'",
}
"""Inputs that print the instant, by the source, each in the same form."""


@pytest.mark.parametrize("what", SHOWS_NOW)
def test_every_program_shows_the_declared_instant(run: Run, what: str) -> None:
    shown = run(SHOWS_NOW[what])
    assert shown.startswith(NOW[: len(shown) - 1]), shown
    assert len(shown) >= len("2025-10-16 19:43\n")


SHOWS_BOOTING = {
    "who -b": ("who -b | tr -s ' '", " system boot 2025-10-15 16:40\n"),
    "uptime": ("uptime | cut -d, -f1,2", " 19:43:00 up 1 day,  3:03\n"),
    "uptime -s": ("uptime -s", f"{BOOT}\n"),
    "process 1": ("date -d \"$(ps -o lstart= -p 1)\" '+%F %T'", f"{BOOT}\n"),
    "btime": ("date -d @$(sed -n 's/^btime //p' /proc/stat) '+%F %T'", f"{BOOT}\n"),
    "dmesg -T": ("dmesg -T | head -1 | cut -c1-26", "[Wed Oct 15 16:40:00 2025]\n"),
    "/proc": ("stat -c %.19y /proc", f"{BOOT}\n"),
}


@pytest.mark.parametrize("what", SHOWS_BOOTING)
def test_what_tells_of_booting_agrees(run: Run, what: str) -> None:
    text, expected = SHOWS_BOOTING[what]
    assert run(text) == expected


def test_the_time_goes_on_within_a_run_and_starts_again_with_the_next(run: Run) -> None:
    for _ in range(2):
        first, second, sleeping = run("date +%s; sleep 1; date +%s; echo $SECONDS").split()
        assert 1 <= int(second) - int(first) <= 3
        assert int(sleeping) >= 1
        assert int(first) - 1760643780 <= 2


def test_how_long_a_machine_is_up_goes_on_too(run: Run) -> None:
    before, after = run("cat /proc/uptime; sleep 1; cat /proc/uptime").splitlines()
    (up, idle), (later, more) = ([float(n) for n in line.split()] for line in (before, after))
    assert 97380 <= up < later <= 97410
    assert later - up >= 0.5  # the supervisor writes it every 50 ms, or when it comes to it
    assert 0 <= round(more - idle - (later - up), 2) < 0.02


def test_how_long_it_was_idle_tells_nothing_of_the_host(run: Run) -> None:
    idle = int(run("awk '/^cpu / { print $5 }' /proc/stat"))
    shown = {run("cat /proc/uptime") for _ in range(10)}
    assert all(abs(float(line.split()[1]) * 100 - idle) < 300 for line in shown)
    assert f"97380.00 {idle / 100:.2f}\n" in shown
    assert run("echo 1 > /proc/uptime; umount /proc/uptime; cat /proc/uptime")[-9:] != "1\n"


def test_files_are_compared_as_they_were_made(run: Run) -> None:
    assert (
        run("touch a; sleep 0.02; touch b; [ b -nt a ] && [ a -ot b ] && echo newer") == "newer\n"
    )
    assert run("touch new; [ new -nt README.md ] && echo newer") == "newer\n"
    assert run("touch new; find . -newermt '2025-10-16 19:43'") == ".\n./new\n"
    assert run("touch new; find . -mmin -2 -type f") == "./new\n"
    assert run("touch new; find . -newer new; find README.md -cmin -5 -o -amin +5") == ""
    assert run("touch x; cp -p x y; stat -c %Y x y | uniq | wc -l") == "1\n"
    assert run("touch x; cp -p x y; [ x -nt y ] || [ y -nt x ] || echo same") == "same\n"
    assert run("touch x; tar cf a.tar x README.md; tar df a.tar; tar uvf a.tar x") == ""


def test_moments_that_were_asked_for_are_kept(run: Run) -> None:
    assert run("touch -d '2026-01-02 03:04:05' x; stat -c '%.19x %.19y' x") == (
        "2026-01-02 03:04:05 2026-01-02 03:04:05\n"
    )
    assert run("touch -d '2031-01-02' x; stat -c %.19y x") == "2031-01-02 00:00:00\n"
    assert run("touch -d '1971-01-02' x; stat -c %.19y x") == "1971-01-02 00:00:00\n"
    assert run("touch -d '1 hour ago' x; stat -c %.16y x") == "2025-10-16 18:43\n"
    assert run("touch -r README.md x; [ x -nt README.md ] || echo equal") == "equal\n"


def test_files_of_the_system_show_no_time_of_the_host(run: Run) -> None:
    times = run("stat -c '%.10x %.10y %.10z %.10w' README.md documents /bin/ls /etc").splitlines()
    for line in times:
        accessed, changed, status, birth = line.split()
        assert accessed <= DAY
        assert status == birth == changed
    assert run("find / -xdev -newerct '2025-10-17' 2>/dev/null") == ""
    assert run("find / -xdev -newerat '2025-10-17' 2>/dev/null") == ""
    assert run("find / -xdev -newermt '2025-10-17' 2>/dev/null") == ""


def test_directories_have_the_size_that_they_have_on_a_disk(run: Run) -> None:
    """In-memory directories, which hold all changed ones, have 20 bytes for each name."""
    for how in (
        "stat -c %s {}",
        "find {} -prune -printf '%s\\n'",
        "perl -e 'print +(stat q({}))[7]'",
    ):
        for name in ("d", "documents"):
            text = f"mkdir d; touch d/x documents/x; {how.format(name)}"
            assert run(text).strip() == "4096", text
    assert run("mkdir d; stat -c '%b %B' d; du -s d; ls -ld d | cut -d' ' -f5") == (
        "8 512\n4\td\n4096\n"
    )
    assert run("mkdir d; cd d; touch {1..300}; stat -c '%s %b' .") == "12288 24\n"
    assert run("mount -t tmpfs none /mnt; touch /mnt/x; stat -c %s /mnt /proc") == "60\n0\n"


def test_the_top_of_proc_tells_nothing_of_the_host(run: Run) -> None:
    assert run("stat -c '%h %U %G' /proc; ls -ld /proc | cut -c1-30") == (
        "77 root root\ndr-xr-xr-x 77 root root 0 Oct \n"
    )


def test_every_source_names_one_kernel(run: Run, system: System) -> None:
    kernel = system.declaration.machine.kernel
    release, version = kernel.release, kernel.version
    assert (
        run("uname -r; uname -v; uname -s -m -o")
        == f"{release}\n{version}\nLinux x86_64 GNU/Linux\n"
    )
    assert run("uname -a") == f"Linux ubuntu {release} {version} x86_64 GNU/Linux\n"
    assert run("cat /proc/version") == f"Linux version {release} {kernel.build}\n"
    assert run("dmesg | head -1 | cut -c16-") == f"Linux version {release} {kernel.build}\n"
    assert (
        run("cat /proc/sys/kernel/{ostype,osrelease,version}") == f"Linux\n{release}\n{version}\n"
    )
    assert run("sysctl -n kernel.osrelease kernel.version") == f"{release}\n{version}\n"
    assert run("perl -MPOSIX -e 'print join q( ), (uname())[2, 3]'") == f"{release} {version}"
    booted = run("last -w reboot | head -2").splitlines()
    assert [line.split()[3] for line in booted] == [release, release]
    shown = run("ethtool -i eth0; ethtool -i lo; lscpu; file /lib*/ld-linux*; ls /lib/modules 2>&1")
    assert platform.release() not in shown


def test_a_patch_and_what_programs_see_are_one_story(observer: SandboxRunner) -> None:
    """Files have the time that programs see, however they were changed."""
    text = (
        "touch a; touch -d '1 hour ago' b; touch -d '2031-02-03 04:05' c; cp -p a d; tar c a | tar "
        "xf - --transform s/a/e/; echo x > README.md; mkdir f; touch -r documents/notes.txt g; "
        "cp -a documents/notes.txt h; mv todo.txt i 2> /dev/null; gzip -k documents/report.txt; "
        "touch -d '+61 seconds' j; chmod 600 documents/poem.txt; touch -d @$(date +%s) k"
    )
    patch = observer.execute(text).patch.apply(observer.context().document)
    shown = observer.execute(
        f"{text}; find [a-k] README.md documents/* -prune -printf '%p\\t%TY %Tb %Td %TH:%TM\\n'"
    ).output.decode()
    entries = dict(line.split("\t") for line in shown.splitlines() if "\t" in line)
    assert {"a", "b", "c", "d", "e", "f", "g", "h", "j", "k"} <= set(entries)
    for name, moment in entries.items():
        told = patch["fs"][name]
        if told["perms"][0] != "d" or name == "f":  # a directory's own times are not recorded
            day = f"{told['year']} {told['month']} {told['day']:02} {told['time']}"
            assert (name, day) == (name, moment)


def test_waiting_until_a_moment_ends_at_it(run: Run) -> None:
    """`timeout` bounds waits that would otherwise take years."""
    perl = "use Time::HiRes qw(clock_gettime clock_nanosleep CLOCK_REALTIME TIMER_ABSTIME); "
    until = "clock_nanosleep(CLOCK_REALTIME, (clock_gettime(CLOCK_REALTIME) + 0.1) * 1e9, %s)"
    text = f"timeout 2 perl -e '{perl}{until % 'TIMER_ABSTIME'}'; echo $?"
    assert run(text) == "0\n"
    assert run("head -c 3000000 /dev/zero > z; timeout 3 xz -T2 z; echo $?") == "0\n"


def test_the_round_trip_of_a_packet_takes_no_years(run: Run) -> None:
    for how in ("", "-U ", "-B "):
        shown = run(f"ping -c1 {how}10.20.30.1")
        found = re.search(r"time=([\d.]+) ms", shown)
        assert found, shown
        assert float(found[1]) < 1000


def test_sixty_runs_in_several_sandboxes_tell_the_same(system: System) -> None:
    """Output with a resolution of seconds is identical, unless a run took a second."""
    text = (
        "date; touch x; ls -l x README.md; ls -la --full-time README.md; stat README.md | tail -5; "
        "who -b; uptime; ps -eo lstart,cmd | head -2; w; last; dmesg -T; cp -p x y; "
        "tar cf t.tar --mtime=@$(date +%s) x; tar tvf t.tar; find . -mmin -1; ls -l y"
    )
    shown = set()
    for _ in range(4):
        with NamespaceSandbox(system) as opened:
            for _ in range(15):
                execution = opened.run(Request(text))
                if execution.ended - execution.started < 0.9:
                    shown.add(execution.output)
    assert len(shown) == 1


# ---- how it comes into the library ---------------------------------------------------------------


@pytest.fixture(scope="module")
def declaration(system: System) -> SystemDeclaration:
    return system.declaration


@pytest.fixture(scope="module")
def library(system: System) -> bytes:
    """Return the distribution's own C library from the base."""
    return of_the_c_library(system, "libc.so.6")


def entry(path: str, data: bytes) -> image.ImageEntry:
    return image.ImageEntry(path, 0o100000, 0o755, 0, 0, 0, size=len(data), data=data)


def with_answers(
    library: bytes, declaration: SystemDeclaration, used: tuple[int, int] = (150 << 20, 5000)
) -> bytes:
    return answers._with_answers(library, native.answers_code(), declaration, used)[0]


def installed(
    library: bytes, declaration: SystemDeclaration
) -> tuple[list[image.ImageEntry], answers.Answers]:
    md5 = hashlib.md5(library).hexdigest()
    digests = f"{md5}  lib/x86_64-linux-gnu/libc.so.6\n{'0' * 32}  usr/share/x\n".encode()
    entries = [
        entry("usr/lib/x86_64-linux-gnu/libc.so.6", library),
        entry("var/lib/dpkg/info/libc6:amd64.md5sums", digests),
    ]
    with Path("/dev/null").open("rb") as base:
        return answers.install(declaration, entries, base)


def library_digest(entries: list[image.ImageEntry]) -> str:
    """Return its digest from the package manager."""
    assert entries[1].data is not None
    return entries[1].data.decode().split()[0]


def refusal(library: bytes, declaration: SystemDeclaration) -> str:
    entries, told = installed(library, declaration)
    assert (entries[0].data, told.clock, told.kernel) == (library, "host", "host")
    assert library_digest(entries) == hashlib.md5(library).hexdigest()
    return told.why


def test_the_same_library_gives_the_same_bytes(
    library: bytes, declaration: SystemDeclaration, system: System
) -> None:
    (first, _), told = installed(library, declaration)
    (again, _), _ = installed(library, declaration)
    assert first.data == again.data
    assert told == dataclasses.replace(system.answers, disk_used=told.disk_used, processor="host")
    assert first.data is not None
    assert first.size == len(first.data) > len(library)
    at = system.rootfs / "usr/lib/x86_64-linux-gnu/libc.so.6"
    used = (system.answers.disk_used, system.facts["entries"])
    assert at.read_bytes() == with_answers(library, declaration, used)


def test_another_instant_changes_two_numbers_and_nothing_else(
    library: bytes, declaration: SystemDeclaration
) -> None:
    later = dataclasses.replace(declaration, instant=declaration.instant.replace(year=2026))
    one, other = (installed(library, which)[0][0].data for which in (declaration, later))
    assert one is not None
    assert other is not None
    places = [at for at in range(len(one)) if one[at] != other[at]]
    assert places
    assert places[-1] - places[0] < 16


def test_what_the_library_was_lies_beneath_all_that_is_new(
    library: bytes, declaration: SystemDeclaration
) -> None:
    """Besides the appended code, only one program header and some symbol table entries change."""
    data = installed(library, declaration)[0][0].data
    assert data is not None
    changed = {at // 24 for at in range(len(library)) if data[at] != library[at]}
    assert 0 < len(changed) < 130


def test_the_code_is_a_segment_of_its_own_behind_all_others(
    library: bytes, declaration: SystemDeclaration, tmp_path: Path
) -> None:
    """A loader finds it like any other; the library's build identification keeps its place."""
    data = with_answers(library, declaration)
    loaded = [row for _, row in segments(data) if row[0] == 1]
    before = [row for _, row in segments(library) if row[0] == 1]
    assert loaded[:-1] == before
    _, flags, offset, address, _, size, memory, align = loaded[-1]
    assert flags == 5  # to be read and executed
    assert offset % align == address % align == 0
    assert size == memory == len(data) - offset
    assert address >= max(row[3] + row[6] for row in before)
    file = tmp_path / "libc.so.6"
    file.write_bytes(library)
    shown = ["readelf", "--notes", "--sections", "--dynamic", "--wide", str(file)]
    original = subprocess.run(shown, capture_output=True, check=True).stdout
    file.write_bytes(data)
    now = subprocess.run(shown, capture_output=True, check=True)
    assert (now.stdout, now.stderr) == (original, b"")
    assert b"Build ID: " in original


def test_the_library_runs_and_is_told_apart_as_before(run: Run) -> None:
    at = "/lib/x86_64-linux-gnu/libc.so.6"
    assert run(f"{at} | head -n 1").startswith("GNU C Library (Debian GLIBC ")
    assert "BuildID[sha1]=" in run(f"file -L {at}")
    assert run("date > /dev/null; echo $?") == "0\n"


def test_the_package_manager_knows_the_library(run: Run, system: System) -> None:
    assert run("dpkg -V libc6 | grep libc.so.6; dpkg -V libc6 | grep md5sums") == ""
    listed = run("grep libc.so.6$ /var/lib/dpkg/info/libc6:amd64.md5sums").split()[0]
    assert run("md5sum < /lib/x86_64-linux-gnu/libc.so.6").split()[0] == listed


def test_a_process_out_of_descriptors_or_memory_gets_an_error_and_no_other_list(run: Run) -> None:
    """Opening a file may return an error, and never the kernel's list."""
    read = "perl -e 'print open(F, q(<), q(/proc/mounts)) ? scalar(@l = <F>) : q(error )'"
    for limit in ("ulimit -n 4", "ulimit -n 5", "ulimit -n 6"):
        assert run(f"({limit}; {read}) 2> /dev/null") in {"12", "error "}
    read = "perl -e '@l = map { sysopen(F, q(/proc/mounts), 0) ? 1 : 0 } 1 .. 300; print \"@l\"'"
    assert set(run(read).split()) == {"1"}
    text = "for n in {1..200}; do cat /proc/mounts & done | sort | uniq -c | sort -u | wc -l"
    assert run(f"({text})") == "12\n"


def test_nothing_else_tells_of_it(run: Run) -> None:
    assert run("ldd /bin/true").count("\n") == 3  # vDSO, C library, loader
    assert "shioenv" not in run("ldd /bin/ls; cat /proc/self/maps; env; ls -A / /etc /lib")
    assert run("ls /etc/ld.so.preload 2>&1").endswith("No such file or directory\n")


def test_another_release_with_the_same_interfaces_has_the_declared_clock(
    library: bytes, declaration: SystemDeclaration
) -> None:
    other = library.replace(b" release version 2.36.", b" release version 2.39.")
    assert other != library
    told = installed(other, declaration)[1]
    assert (told.clock, told.kernel, told.glibc) == ("declared", "declared", "2.39")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"\0GLIBC_2.33\0", b"\0GLIBC_2.99\0", "its C library has fstat@GLIBC_2.99, not "
         "fstat@GLIBC_2.33"),
        (b"\0GLIBC_2.17\0", b"\0GLIBC_2.98\0", "its C library has clock_gettime@GLIBC_2.98, not "
         "clock_gettime@GLIBC_2.17"),
        (b"\0statx\0", b"\0stutx\0", "its C library has no statx"),
        (b"\0pthread_create\0", b"\0pthread_kreate\0", "its C library has no pthread_create"),
        (b"\0recvmsg\0", b"\0recvmsk\0", "its C library has no recvmsg"),
        (b"GNU C Library", b"other library", "its C library is not glibc"),
    ],
)  # fmt: skip
def test_a_library_with_other_interfaces_keeps_the_hosts_clock(
    library: bytes, declaration: SystemDeclaration, old: bytes, new: bytes, why: str
) -> None:
    assert old in library
    assert refusal(library.replace(old, new), declaration) == why


def test_the_interfaces_are_those_of_the_headers_that_the_code_was_compiled_with(
    library: bytes,
) -> None:
    """The table of interfaces lists no other function, and every one exists in Debian 12."""
    versions = {symbol.name: symbol.version for symbol in symbols(library) if symbol.default}
    functions = {symbol.name for symbol in symbols(native.answers_code())}
    used = {*functions, *answers._ORIGINALS}
    assert set().union(*answers._INTERFACES.values()) <= used
    assert {name: answers._interface(name) for name in used} == {
        name: versions[name] for name in used
    }


def test_programs_of_the_host_run_with_the_patched_copy_of_its_library(
    declaration: SystemDeclaration, tmp_path: Path
) -> None:
    """The host's C library may be of another release than that of the system."""
    own = Path("/lib/x86_64-linux-gnu")
    library = (own / "libc.so.6").read_bytes()
    (tmp_path / "libc.so.6").write_bytes(with_answers(library, declaration))

    def output(*command: str) -> str:
        loader = [str(own / "ld-linux-x86-64.so.2"), "--library-path", f"{tmp_path}:{own}"]
        program = str(shutil.which(command[0]))
        done = subprocess.run(
            [*loader, program, *command[1:]], capture_output=True, text=True, check=True
        )
        return done.stdout

    kernel = declaration.machine.kernel
    assert output("uname", "-rv") == f"{kernel.release} {kernel.version}\n"
    assert output("cat", "/proc/self/cgroup") == "0::/\n"
    assert output("getconf", "_PHYS_PAGES") == f"{declaration.machine.memory // 4096}\n"
    start = time.clock_gettime(time.CLOCK_BOOTTIME)
    seconds = int(output("date", "+%s")) - int(declaration.boot_time.timestamp())
    assert int(start) <= seconds <= time.clock_gettime(time.CLOCK_BOOTTIME) + 1
    assert output("stat", "-c", "%F", "/") == "directory\n"
    assert output("readlink", "-f", "/.") == "/\n"


def test_a_library_with_no_header_to_spare_keeps_the_hosts_clock(
    library: bytes, declaration: SystemDeclaration
) -> None:
    (at,) = (at for at, row in segments(library) if row[0] == 0x6474E553)
    other = bytearray(library)
    struct.pack_into("<I", other, at, 0)
    assert refusal(bytes(other), declaration) == "its C library has an unsupported layout"


def test_a_library_of_another_processor_keeps_the_hosts_clock(
    library: bytes, declaration: SystemDeclaration
) -> None:
    other = library[:18] + struct.pack("<H", 183) + library[20:]
    assert "another architecture" in refusal(other, declaration)


def test_the_declaration_can_ask_for_the_hosts_clock(
    library: bytes, declaration: SystemDeclaration
) -> None:
    own = dataclasses.replace(declaration, clock="host")
    entries, told = installed(library, own)
    assert (told.clock, told.kernel) == ("host", "declared")
    assert told.why == "its declaration sets it"
    data = entries[0].data
    assert data is not None
    known = {symbol.at: symbol.value for symbol in symbols(library)}
    moved = {symbol.name for symbol in symbols(data) if known[symbol.at] != symbol.value}
    assert moved & {"clock_gettime", "time", "gettimeofday", "clock_nanosleep"} == set()
    assert {"uname", "stat", "statx", "statvfs", "readdir", "fopen", "open", "recvmsg"} <= moved
    assert load_declaration().clock == "declared"
