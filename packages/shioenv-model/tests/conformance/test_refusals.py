"""A model's answers for arguments that programs reject match the programs' own errors."""

from __future__ import annotations

import shlex
from random import Random

import pytest

from shioenv.bash.words import split_words
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv_model.memory.forms import Forms
from shioenv_model.rules.usage_errors import REFUSALS, usage_error

FORMS = Forms()
REFUSED = r"""
head -n 5kb README.md
tail -n+x README.md
split --lines=0 README.md
nl -b x README.md
cut --delimiter=ab -f1 README.md
cut -f 1-a,2 README.md
cut -f3-1 README.md
cut -f1 -c1 README.md
cut -c1 -d, README.md
cut -d, README.md
sort -t '' README.md
sort -k 1,0 README.md
sort -k 1q README.md
grep -C1x a README.md
xargs -n 1x echo
chmod 999 README.md
chmod README.md 644
chmod -R u+q data
mkdir -p -m x a/b
chown nouser README.md
chown ubuntu:nogroupp README.md
chown nouser: README.md
chown -R nouser:x data
chown --from=nouser ubuntu README.md
chgrp -R no data
find . -size 5q
find . -mmin x
find . -type ff
find . -type f,x
find . -name
find . -maxdepth -1
find . -perm 999
find . -user nouser
find . -group nogroupp
find . -exec echo {}
find . -name a -o
find . -name a b
find config -not empty -ls
find . -o -name a
find . -name '*.txt' \)
touch -t 202513010000 f
touch -d 'foo bar' f
date -d nonsense
date foo
date +%Y x
passwd nouser
su - nouser
su nouser -c ls
seq 1 2 3 4
seq 1 0 5
sleep 1 x
dd if=missing
dd count=x if=README.md
grep -f missing README.md
grep -ivf data README.md
gunzip missing
unzip missing
tar -xf missing
tar -tzf missing
cp README.md nodir/x
mv README.md nodir/x
touch nodir/x
ln README.md nodir/x
ln -s README.md nodir/x
ps -u nouser
ps -p x
""".strip().split("\n")
TAKEN = r"""
head -n +3 README.md
head -n -2 README.md
tail -c +1K README.md
cut -f 2-,1 README.md
cut -d '' -f 1 README.md
sort -k 1.2b,2r README.md
chmod 00755 README.md
chmod +111 README.md
chmod -w README.md
chmod =0750 data
chmod u=g,o+X README.md
chown +1010 README.md
chown ubuntu: README.md
chown ubuntu.ubuntu README.md
find . -size +5k -perm /u+w -type f,d
find -- data -newer README.md
find . ! -name a -a \( -name b -o -name c \)
grep -f data/numbers.txt data/numbers.txt
touch -t 2510011200.30 f
touch -d 'last monday' f
date -d 'next year'
date -u +%s
su
su - ubuntu
seq 1 -1 0
sleep 0.01s
dd if=README.md bs=1k count=1
cp README.md data/x
touch data/x
tar -cf x.tar README.md
mkdir -m 0700 d1
ps -u root
""".strip().split("\n")
VALUE = (
    "x",
    "5x",
    "-1",
    "+2",
    "0",
    "00",
    "1,2",
    "",
    "1.5",
    " 3",
    "a b",
    "12K",
    "9" * 30,
    "é",
    "?",
    "foo",
)
VALUES = {
    command: [
        option
        for row in REFUSALS
        if row.value and command in row.commands.split()
        for option in row.options.split()
    ]
    for row in REFUSALS
    if row.value
    for command in row.commands.split()
}
"""The options of each command whose values are judged."""
OPERANDS = {"dd": "", "mkdir": "d1", "nice": "true", "xargs": "echo"}


def said_by_rule(text: str, observer: SandboxRunner) -> Behavior | None:
    """Return a rule's answer to an input, after checking that it is right."""
    state = observer.state()
    form = FORMS.form(split_words(text), state)
    said = None if form is None else usage_error(form, state)
    if said is not None:
        right = observer.run(f"{text}; (exit $?)")
        assert (said.output, said.exit_code) == (right.output, right.exit_code), text
        assert not right.patch, text
    return said


@pytest.mark.parametrize("text", REFUSED)
def test_words_that_are_refused(text: str, observer: SandboxRunner) -> None:
    assert said_by_rule(text, observer) is not None


@pytest.mark.parametrize("text", TAKEN)
def test_words_that_are_taken(text: str, observer: SandboxRunner) -> None:
    assert said_by_rule(text, observer) is None
    assert observer.run(text).exit_code == 0


@pytest.mark.parametrize("name", VALUES)
def test_values_of_options(name: str, observer: SandboxRunner) -> None:
    told = 0
    for option in VALUES[name]:
        sign = "=" if option.startswith("--") else " "
        operands = OPERANDS.get(name, "README.md")
        before = "a " if name == "grep" else ""
        for value in VALUE:
            text = f"{name} {option}{sign}{shlex.quote(value)} {before}{operands}"
            told += said_by_rule(text, observer) is not None
    assert told >= len(VALUES[name])


def test_rows_name_the_programs_of_the_system(observer: SandboxRunner) -> None:
    names = sorted({row.program.split()[0] for row in REFUSALS})
    listed = observer.run(f"dpkg-query -W {' '.join(names)}").text
    installed = dict(line.split("\t") for line in listed.splitlines())
    for row in REFUSALS:
        name, version = row.program.split()
        assert installed[name].rpartition(":")[2].startswith(version), row
        assert (row.value is None) == (row.words is not None) == (not row.options), row


@pytest.mark.parametrize("seed", range(3))
def test_lists_and_keys_drawn_at_random(seed: int, observer: SandboxRunner) -> None:
    random = Random(seed)
    told = 0
    for name, option, characters in (("cut", "-f", "0123,-- a"), ("sort", "-k", "012.,,nrbx-")):
        for _ in range(40):
            value = "".join(random.choice(characters) for _ in range(random.randrange(1, 6)))
            text = f"{name} {option} {shlex.quote(value)} README.md"
            told += said_by_rule(text, observer) is not None
    assert told > 30


SHORT = [
    (name, option) for name, options in VALUES.items() for option in options if len(option) == 2
]


@pytest.mark.parametrize(("name", "option"), SHORT)
def test_an_option_without_its_value(name: str, option: str, observer: SandboxRunner) -> None:
    assert said_by_rule(f"{name} {option}", observer) is not None


@pytest.mark.parametrize("text", ["cut -f2 -d", "head -qn", "nl -b a -w", "sort -rk"])
def test_a_last_option_without_its_value(text: str, observer: SandboxRunner) -> None:
    assert said_by_rule(text, observer) is not None


@pytest.mark.parametrize("text", ["head --lines", "grep -m 1 README.md"])
def test_no_value_is_missed_by_rule(text: str, observer: SandboxRunner) -> None:
    assert said_by_rule(text, observer) is None
