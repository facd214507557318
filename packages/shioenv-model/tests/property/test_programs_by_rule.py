"""The output of programs, derived by rule, matches the machine."""

from __future__ import annotations

import shlex
from dataclasses import replace
from random import Random

import pytest

from shioenv.behavior.observe import SandboxRunner
from shioenv_model.composition.call import Call
from shioenv_model.rules.programs import printed

PATHS = (
    *("README.md", "data/ids.txt", "/", "//", "///a//", "a//b//", ".", "..", "x.txt", "", ".txt"),
    *("latest.log", "config/current", "logs/archive", "/bin", "/etc/mtab", "bin/backup", "no/file"),
    *("data/", "latest.log/", "logs/archive/x", "-x"),
)
NUMBERS = ("0", "1", "-1", "7", "12", "-30", "007", "123456789012345678901")
TEXTS = ("a", "hello", "", "-", "naïve", "0x1f")
VARIABLES = ("HOME", "USER", "OLDPWD", "PWD", "NOPE", "LANG", "_")
USERS = (
    "root",
    "alice",
    "bob",
    "daemon",
    "33",
    "nobody",
    "ghost",
    "0",
    "sshd",
    "www-data",
    "games",
)
PROGRAMS = ("ls", "/bin/ls", "cd", "nosuch", "python3", "./bin/hello", "bin/hello", "awk", "which")
WHOLES = ("1", "2", "3", "7", "10", "42", "999", "1000000", "123456789")


def expression(random: Random, depth: int = 0) -> list[str]:
    """Arguments of `expr`."""
    kind = random.randrange(8)
    if depth > 2 or kind < 3:
        return [random.choice(NUMBERS if kind else TEXTS)]
    if kind == 3:
        return ["(", *expression(random, depth + 1), ")"]
    if kind == 4:
        name = random.choice(("length", "index", "substr"))
        count = {"length": 1, "index": 2, "substr": 3}[name]
        return [name, *(random.choice((*TEXTS, "2", "3")) for _ in range(count))]
    operator = random.choice(["+", "-", "*", "/", "%", "<", "<=", "=", "!=", ">=", ">", "|", "&"])
    return [*expression(random, depth + 1), operator, *expression(random, depth + 1)]


def sum_of(random: Random, depth: int = 0) -> str:
    """An expression of `bc`, of whole numbers for the most part."""
    kind = random.randrange(12)
    if depth > 1 or kind < 4:
        return random.choice(WHOLES)
    if kind == 4:
        return f"({sum_of(random, depth + 1)})"
    if kind == 5:
        return random.choice((f"-{random.choice(WHOLES)}", "2^3", "0.5", "x", "sqrt(4)"))
    operator = random.choice(("+", "-", "*", "/", "%", " < ", "==", " >= "))
    return f"{sum_of(random, depth + 1)}{operator}{sum_of(random, depth + 1)}"


def statements(random: Random) -> str:
    return random.choice(("\n", "; ")).join(sum_of(random) for _ in range(random.choice((1, 1, 2))))


def command(random: Random) -> list[str]:
    name = random.choice(
        (
            "expr",
            "expr",
            "basename",
            "dirname",
            "readlink",
            "printenv",
            "id",
            "groups",
            "which",
            "seq",
            "seq",
        )
    )
    if name == "expr":
        return [name, *expression(random)]
    if name == "seq":
        given = random.choice(
            ((), (), ("-w",), ("-s", ", "), ("-s",), ("-s:",), ("--separator=",), ("-ws-",))
        )
        bounds = ("0", "1", "3", "-2", "08", "-11", "10", "120", "x", "1.5", "+4")
        return [name, *given, *random.choices(bounds, k=random.choice((1, 2, 2, 3, 3, 4)))]
    if name == "printenv":
        return [name, *random.sample(VARIABLES, random.randrange(4))]
    if name == "id":
        options = random.choice(("", "-u", "-g", "-G", "-un", "-gn", "-Gn"))
        return [name, *filter(None, [options]), *random.sample(USERS, random.choice((1, 1, 2)))]
    if name == "groups":
        return [name, *random.sample(USERS, random.choice((1, 1, 2)))]
    if name == "which":
        return [
            name,
            *random.choice(((), ("-a",))),
            *random.sample(PROGRAMS, random.choice((1, 2))),
        ]
    known = {"basename": ("-a",), "dirname": ("--",), "readlink": ("-f", "-e")}[name]
    given = random.choice(((), (), (random.choice(known),)))
    return [name, *given, *random.choices(PATHS, k=random.choice((1, 1, 2)))]


@pytest.mark.parametrize("seed", range(12))
def test_a_program_prints_what_the_rule_says(seed: int, observer: SandboxRunner) -> None:
    random, state, told = Random(seed), observer.state(), 0
    for _ in range(60):
        text = shlex.join(command(random))
        said = printed(Call.parse(text), state)
        if said is None:
            continue
        told += 1
        right = observer.run(f"{text}; (exit $?)", state)  # a program that does not replace Bash
        assert (said.output, said.exit_code) == (right.output, right.exit_code), text
    assert told > 20


@pytest.mark.parametrize("seed", range(12))
def test_bc_computes_what_the_rule_says(seed: int, observer: SandboxRunner) -> None:
    random, told = Random(seed), 0
    for _ in range(50):
        text, words = f"{statements(random)}\n", random.choice(("bc", "bc", "bc -q", "bc -l"))
        state = observer.state()
        said = printed(Call.parse(words), replace(state, stdin=text.encode()))
        if said is None:
            continue
        told += 1
        right = observer.run(f"printf %s {shlex.quote(text)} | {words}", state)
        assert (said.output, said.exit_code) == (right.output, right.exit_code), text
    assert told > 8
