"""A file of the system with several hard links is one file, as on any other file system."""

from __future__ import annotations

import random
import shlex
from dataclasses import replace

import pytest

import shioenv
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.inputs import Input, Session
from shioenv.irreducibility.scoring import Scoring
from shioenv.live.resident import ResidentShell
from shioenv.recording.session import SessionRecorder
from support.nightly import by_day

HOME = "/home/ubuntu"
FILES = ("README.md", "config/app.ini", "scripts/backup.sh", "latest.log")
"""Files of the system, one of them a symbolic link to another file of it."""
NAMES = (*FILES, "h", "config/k", "logs/z")
CHANGES = (
    "ln {x} {y}", "ln {x} {y}", "ln -P {x} {y}", "ln -f {x} {y}", "ln -L {x} {y}", "cp -l {x} {y}",
    "cp {x} {y}", "cp -a {x} {y}", "cp --remove-destination {x} {y}", "mv {x} {y}", "mv -n {x} {y}",
    "rm -f {x}", "cat {x} >> {y}", "cat < {x} >> {y}", "echo more >> {x}", "echo less > {x}",
    "sed -i s/e/E/ {x}", "truncate -s 7 {x}", "chmod 640 {x}", "touch {x}",
    "install -m 600 {x} {y}",
    "tar cf t.tar {x} {y}; rm -f {x}; tar xf t.tar; rm t.tar", "cp -al config copy; rm -r copy",
    "exec 3>> {x}; ln {x} {y}; echo held >&3; exec 3>&-", "mv {x} aside; mv {y} {x}; mv aside {y}",
    "python3 -c 'import os; os.rename(\"{x}\", \"{y}\")'",
)  # fmt: skip
ELSEWHERE = "mount -t tmpfs none /mnt && cp -a . /mnt && cd /mnt; "
"""The same files on another file system, to compare with."""

STATE = """
for x in NAMES; do
    stat -c '%n %h %s %a %F' $x; cksum < $x
    for y in NAMES; do [ $x -ef $y ] && echo $x is $y; done
    [ "$(stat -c %i $x)" = "$(ls -i $x | cut -d' ' -f1)" ] || echo $x is listed otherwise
done 2>&1
tar c NAMES 2> /dev/null | tar tv | grep -c 'link to'
find . -type f -links +1 | sort
""".replace("NAMES", " ".join(NAMES))
"""A script that prints the target of each name, and the names that are one file."""


SAME = "[ README.md -ef h ] && echo same; cp README.md h; cat README.md >> h; wc -c < h"
ONE_FILE = (
    "same\ncp: 'README.md' and 'h' are the same file\n"
    "cat: README.md: input file is output file\n261\n"
)
MANY_FILES = "mkdir /srv/{0}; (cd /srv/{0}; seq 1500 | split -l 1 -a 4)"
"""So many files that a resident shell begins a new layer over them."""


def printed(runner: SandboxRunner, text: str) -> str:
    return runner.run(text).text


def sequence(seed: int) -> str:
    """Return a script that changes some of the names, and prints the exit status of each step."""
    draw = random.Random(seed)
    steps = [
        draw.choice(CHANGES).format(x=draw.choice(NAMES), y=draw.choice(NAMES))
        for _ in range(draw.randint(3, 9))
    ]
    return "".join(f"{{ {step}; }} 2>&1; echo $?\n" for step in steps)


@pytest.mark.parametrize("seed", by_day(range(12), 3))
def test_random_changes_do_what_they_do_elsewhere(observer: SandboxRunner, seed: int) -> None:
    script = sequence(seed) + STATE
    assert printed(observer, script) == printed(observer, ELSEWHERE + script), sequence(seed)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("cat h > /dev/null", ONE_FILE),
        ("mv README.md h", "mv: 'README.md' and 'h' are the same file\n" + ONE_FILE),
        ("cp -l README.md h", ONE_FILE),
        ('python3 -c \'import os; os.rename("README.md", "h")\'', ONE_FILE),
        ("tar cf - README.md h | tar t -v | grep -o 'link to.*'", "link to README.md\n" + ONE_FILE),
        ("rm h; exec 3< README.md; ln -L /dev/fd/3 h", ONE_FILE),
    ],
)
def test_both_names_are_one_file(observer: SandboxRunner, change: str, text: str) -> None:
    assert printed(observer, f"ln README.md h; {change}; {SAME}") == text


@pytest.mark.parametrize(
    "link",
    [
        "mount --bind . /srv; cd /srv; ln README.md h",
        'mkdir "/srv/a b"; mount --bind . "/srv/a b"; cd "/srv/a b"; ln README.md h',
        "mount --rbind / /srv; ln /srv$PWD/README.md /srv$PWD/h",
        "unshare -m sh -c 'mount --bind . /srv; ln /srv/README.md /srv/h'",
        "chroot / ln $PWD/README.md $PWD/h",
        "ln /proc/self/cwd/README.md h",
        "ln /proc/$$/cwd/README.md h",
        "ln -L /dev/stdin h < README.md",
        "unshare -pf ln /proc/thread-self/cwd/README.md h",
        "ln config/../README.md h",
        "su ubuntu -c 'ln README.md h'",
    ],
)
def test_ways_to_a_file(observer: SandboxRunner, link: str) -> None:
    assert printed(observer, f"({link}); {SAME}") == ONE_FILE


@pytest.mark.parametrize(
    "text",
    [
        "ln /etc/shadow x; ln /etc/passwd x; ln /usr/bin/passwd x",
        "ln README.md /root/x; ln README.md /etc/x",
        "ln README.md /proc/x; ln README.md /none/x; ln none x",
        "ln README.md config; ln README.md config; ln config x; ln README.md scripts/backup.sh",
    ],
)
def test_a_refused_link_leaves_nothing(observer: SandboxRunner, text: str) -> None:
    behavior = observer.run(f"su ubuntu -c '{text}; rm -f config/README.md'")
    assert "ln: " in behavior.text
    assert not [one for one in behavior.patch.operations if "links" in str(one)]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("ln README.md config/h", {"/fs/README.md/links", "/fs/config~1h"}),
        ("ln README.md h; rm h", set()),
        ("ln README.md h; ln h i; rm README.md; mv i README.md", {"/fs/README.md/links", "/fs/h"}),
    ],
)
def test_a_patch_has_the_links_and_no_more(
    observer: SandboxRunner, text: str, paths: set[str]
) -> None:
    told = {one[1] for one in observer.run(text).patch.operations}
    times = {path for path in told if path.rpartition("/")[2] in ("day", "month", "time", "year")}
    assert told - times == paths


def test_a_moved_file_that_had_two_names_is_a_move(observer: SandboxRunner) -> None:
    operations = observer.run("ln README.md h; rm h; mv README.md z").patch.operations
    assert "m" in [one[0] for one in operations]


@pytest.mark.parametrize("history", [("ln README.md h",), ("true", "cp -l README.md z; mv z h")])
def test_a_history_may_have_made_the_link(
    observer: SandboxRunner, history: tuple[str, ...]
) -> None:
    state = replace(observer.state(), history=history)
    behavior = observer.run(SAME, state)
    assert behavior.text == ONE_FILE
    assert not behavior.patch.operations
    moved = observer.run("mv h x", state).patch.operations
    assert moved == (("m", "/fs/h", "/fs/x"),)


def test_rows_and_their_sub_inputs(observer: SandboxRunner) -> None:
    rows = tuple(Input.from_marked([name, "README.md", "h"]) for name in ("ln", "cp", "mv"))
    recorder = SessionRecorder(scoring=Scoring())
    record = recorder.record(Session(HOME, rows), observer, random.Random(0))
    alone = observer.run("\n".join(row.text for row in rows))
    assert record.behavior.patch == alone.patch
    assert record.behavior.text == "".join(
        f"{name}: 'README.md' and 'h' are the same file\n" for name in ("cp", "mv")
    )
    assert record.score is not None
    assert record.score.irreducibility == 1.0


@pytest.mark.parametrize(
    ("text", "irreducibility"),
    [("cp -l README.md h", 1.0), ("ln README.md h", 1.0), ("ln -P latest.log h", 7 / 9)],
)
def test_scores(observer: SandboxRunner, text: str, irreducibility: float) -> None:
    score = shioenv.score(text, runner=observer, system=observer.system)
    assert not score.volatile
    assert score.irreducibility == pytest.approx(irreducibility)


def test_resident_shells(observer: SandboxRunner) -> None:
    with ResidentShell(observer, HOME) as shell:
        assert shell.run("ln README.md h").text == ""
        assert shell.beside(SAME).text == ONE_FILE
        with shell.fork() as fork:
            assert fork.run(SAME).text == ONE_FILE


def test_layers_that_begin_anew(observer: SandboxRunner) -> None:
    with ResidentShell(observer, "/") as shell:
        for name in "ab":
            shell.run(MANY_FILES.format(name))
        assert shell.run(f"cd {HOME}; ln README.md h; {SAME}").text == ONE_FILE
        assert shell.run("ln /srv/a/xaaaa y; [ /srv/a/xaaaa -ef y ] && echo same").text == "same\n"
        shell.run("cd /; " + MANY_FILES.format("c"))
        assert shell.run(f"cd {HOME}; {SAME}").text == ONE_FILE


def test_another_process_is_not_undone(observer: SandboxRunner) -> None:
    text = (
        "for i in $(seq 40); do cp -r config c; { ln c/app.ini c/x 2> /dev/null & }; "
        "echo new > n; mv n c/app.ini; wait; cat c/app.ini; rm -r c; done | sort | uniq -c; "
        "ls -A | grep '~'"
    )
    assert printed(observer, text).split() == ["40", "new"]


HELD = "exec 3<> README.md; ln README.md h; "


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("printf new >&3; head -c 5 h; head -c 5 README.md", "newomnewom"),
        ("printf new > h; cat <&3", "new"),
        ("(for i in 1 2; do cat >&3 <<< $i; done); head -n 2 h", "1\n2\n"),
        ("truncate -s 3 README.md; cat <&3; echo; echo more >> h; cat <&3", "# H\nmore\n"),
        ("sed -i s/H/h/ README.md; head -c 3 <&3; head -c 3 h; head -c 3 README.md", "# H# H# h"),
        ("rm README.md h; ln -L /dev/fd/3 h 2>&1 | grep -o 'No such.*'; wc -c <&3",
         "No such file or directory\n261\n"),
    ],
)  # fmt: skip
def test_descriptors_from_before_have_the_content(
    observer: SandboxRunner, text: str, output: str
) -> None:
    assert printed(observer, HELD + text) == output


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("[ /dev/fd/3 -ef README.md ] || echo another", "another\n"),
        ("flock 3; flock -n h echo free", "free\n"),
        ("cp /dev/fd/3 h; wc -c < README.md", "0\n"),
    ],
)
def test_descriptors_from_before_are_another_inode(
    observer: SandboxRunner, text: str, output: str
) -> None:
    """A limitation listed in `decisions.md`."""
    assert printed(observer, HELD + text) == output


def test_a_first_link_changes_the_inode_number(observer: SandboxRunner) -> None:
    links = "; ".join(f"ln README.md {name}; stat -c %i README.md {name}" for name in "ab")
    before, *after = printed(observer, f"stat -c %i README.md; {links}").split()
    assert len(set(after)) == 1 != len({before, *after})


WATCH = """
import ctypes, os, subprocess, sys
notify = ctypes.CDLL(None)
watch = notify.inotify_init1(os.O_NONBLOCK)
notify.inotify_add_watch(watch, b".", 0xFFF)
for command in sys.argv[1:]:
    subprocess.run(["sh", "-c", command])
    try:
        events = os.read(watch, 65536)
    except BlockingIOError:
        events = b""
    while events:
        end = 16 + int.from_bytes(events[12:16], "little")
        name = events[16:end].rstrip(b"\\0").decode()
        if name:
            print(int.from_bytes(events[4:8], "little"), name, flush=True)
        events = events[end:]
"""
"""Prints each event of a name in the working directory while some commands run."""


def watched(*commands: str) -> str:
    return shlex.join(["python3", "-c", WATCH, *commands])


@pytest.mark.parametrize(
    "commands",
    [
        ("ln README.md a", "ln README.md b", "cat README.md", "chmod 600 a", "rm b"),
        ("ln latest.log a", "ln -L latest.log b"),
        ("cp -l config/app.ini a", "ln a config/k"),
        ("ln a b", "ln README.md config", "ln README.md scripts", "ln README.md README.md"),
    ],
)
def test_a_watch_sees_what_it_sees_elsewhere(
    observer: SandboxRunner, commands: tuple[str, ...]
) -> None:
    seen = printed(observer, watched(*commands))
    assert seen == printed(observer, ELSEWHERE + watched(*commands))
    assert "~" not in seen


MODES = "stat -c '%n %A %U %G %h'"


@pytest.mark.parametrize(
    "path", ["/usr/bin/passwd", "/usr/bin/chage", "/etc/shadow", "/usr/lib/os-release"]
)
def test_what_is_linked_keeps_its_attributes(observer: SandboxRunner, path: str) -> None:
    text = f"{MODES} {path}; ln {path} /var/tmp/x; echo $?; {MODES} {path}"
    before, link, after = printed(observer, text).splitlines()
    assert link == "0"
    assert after == f"{before.removesuffix(' 1')} 2"


def test_nobody_sees_a_name_between(observer: SandboxRunner) -> None:
    """Neither the kind of a file nor the listing of its directory changes while it is linked."""
    text = """
import os, threading
names = [name for name in sorted(os.listdir("/etc")) if os.path.isfile("/etc/" + name)]
names = [name for name in names if not os.path.islink("/etc/" + name)][:60]
os.chdir("/etc")
listed, over, odd = set(os.listdir(".")), threading.Event(), set()
def look():
    while not over.is_set():
        odd.update(set(os.listdir(".")) - listed)
        odd.update(name for name in names if os.path.islink(name))
threads = [threading.Thread(target=look) for _ in range(2)]
for thread in threads: thread.start()
for number, name in enumerate(names): os.link(name, f"/var/tmp/{number}")
over.set()
for thread in threads: thread.join()
print(len(names), odd)
"""
    assert printed(observer, f"python3 -c '{text}'") == "60 set()\n"


def test_a_watch_sees_temporary_names_of_a_file_in_use(observer: SandboxRunner) -> None:
    """A limitation listed in `decisions.md`."""
    seen = printed(observer, "exec 3< README.md; " + watched("ln README.md a"))
    assert ".~0~" in seen


def test_a_watch_of_a_changed_file_ends_with_the_next_first_link(observer: SandboxRunner) -> None:
    """A limitation listed in `decisions.md`: the watch alone does not keep its inode."""
    text = """
import ctypes, os
notify = ctypes.CDLL(None)
watch = notify.inotify_init1(os.O_NONBLOCK)
notify.inotify_add_watch(watch, b"README.md", 2)
for link in (None, "config/app.ini"):
    if link: os.link(link, "h")
    with open("README.md", "a") as file: file.write("more")
    try: print(len(os.read(watch, 4096)))
    except BlockingIOError: print("nothing")
"""
    assert printed(observer, f"python3 -c '{text}'").split() == ["16", "nothing"]


def test_a_full_disk(observer: SandboxRunner) -> None:
    text = "head -c 1G /dev/zero > big; ln README.md h; rm big; ls -A | grep -c '~'; wc -c *.md"
    assert printed(observer, text).splitlines()[1:] == [
        "ln: failed to create hard link 'h': No space left on device", "0", "261 README.md",
    ]  # fmt: skip
