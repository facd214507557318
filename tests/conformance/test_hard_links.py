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
    "sed -i s/e/E/ {x}", "truncate -s 7 {x}", "chmod 640 {x}", "touch {x}", "install -m 600 {x} {y}",
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


@pytest.mark.parametrize("seed", range(24))
def test_random_changes_do_what_they_do_elsewhere(observer: SandboxRunner, seed: int) -> None:
    script = sequence(seed) + STATE
    assert printed(observer, script) == printed(observer, ELSEWHERE + script), sequence(seed)
