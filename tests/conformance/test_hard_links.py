"""Is a file of the system with several names one file, as on any other file system?"""

from __future__ import annotations

import random

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv.live.resident import ResidentShell

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
"""A script that prints what each name leads to, and which of them are one file."""


SAME = "[ README.md -ef h ] && echo same; cp README.md h; cat README.md >> h; wc -c < h"
ONE_FILE = (
    "same\ncp: 'README.md' and 'h' are the same file\n"
    "cat: README.md: input file is output file\n261\n"
)
MANY_FILES = "mkdir /srv/{0}; (cd /srv/{0}; seq 1500 | split -l 1 -a 4)"
"""So many that a resident shell begins a new layer over them."""


def printed(runner: SandboxRunner, text: str) -> str:
    return runner.run(text).text


def sequence(seed: int) -> str:
    """A script that changes some of the names, and prints the exit status of each step."""
    draw = random.Random(seed)
    steps = [
        draw.choice(CHANGES).format(x=draw.choice(NAMES), y=draw.choice(NAMES))
        for _ in range(draw.randint(3, 9))
    ]
    return "".join(f"{{ {step}; }} 2>&1; echo $?\n" for step in steps)


@pytest.mark.parametrize("seed", range(12))
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
        "for i in $(seq 100); do cp -r config c; { ln c/app.ini c/x 2> /dev/null & }; "
        "echo new > n; mv n c/app.ini; wait; cat c/app.ini; rm -r c; done | sort | uniq -c; "
        "ls -A | grep '~'"
    )
    assert printed(observer, text).split() == ["100", "new"]
