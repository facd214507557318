"""Builtins behave by rule as in Bash, for every condition, format and expression."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from shioenv.bash.program import Verbatim
from shioenv.bash.read import read
from shioenv.bash.words import quoted
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.bash.work import answering
from shioenv_model.composition.call import Call
from shioenv_model.composition.directories import changed_directory
from shioenv_model.composition.program_evaluation import Walk
from shioenv_model.composition.reading import read_program
from shioenv_model.composition.ruled import RULES, ruled
from support.nightly import LARGER, scaled

MARK = "\x1e"


@pytest.fixture(scope="module")
def start(observer: SandboxRunner) -> State:
    return observer.state()


TEXTS = (
    "",
    "a",
    "b",
    "abc",
    "10",
    "9",
    "-1",
    "007",
    " 3 ",
    "1.5",
    "!",
    "(",
    ")",
    "-a",
    "-o",
    "-f",
    "-z",
    "=",
    "a b",
    "-",
    "--",
    "documents",
    "missing.txt",
    "*.txt",
    "-eq",
    "x",
    "9223372036854775808",
    "[",
    "]",
    "root",
    "HOME",
    "-n",
)
PATHS = (
    "documents",
    "documents/notes.txt",
    "documents/notes.txt/",
    "documents/",
    "missing.txt",
    "missing/x",
    ".",
    "..",
    "/",
    "/tmp",
    "/etc/passwd",
    "/bin",
    "/bin/ls",
    "scripts/backup.sh",
    "logs/archive",
    "logs/archive/",
    "config/current",
    "latest.log",
    "logs/pipe",
    "misc/noaccess",
    "README.md/..",
    "documents/../README.md",
    "/usr/bin/passwd",
    "data/empty",
    "/etc/shadow",
    "",
    "./README.md",
    "/usr/../etc",
    "documents//notes.txt",
    "/var/run",
    "misc",
    "/dev/null",
)
UNARY = [f"-{letter}" for letter in "abcdefghknoprstuvwxzGLNOSR"]
BINARY = [
    "=",
    "==",
    "!=",
    "<",
    ">",
    "-eq",
    "-ne",
    "-lt",
    "-le",
    "-gt",
    "-ge",
    "-nt",
    "-ot",
    "-ef",
    "-a",
    "-o",
]


def primary(random: Random) -> list[str]:
    kind = random.random()
    if kind < 0.35:
        return [random.choice(UNARY), random.choice(PATHS)]
    if kind < 0.6:
        return [random.choice(TEXTS), random.choice(BINARY), random.choice(TEXTS)]
    if kind < 0.7:
        return [random.choice(PATHS), random.choice(BINARY), random.choice(PATHS)]
    if kind < 0.8:
        return [random.choice(UNARY), random.choice(TEXTS)]
    return [random.choice(TEXTS) for _ in range(random.randrange(5))]


def condition(random: Random) -> list[str]:
    words = primary(random)
    while random.random() < 0.35:
        joined = random.choice((["-a"], ["-o"], ["!"], []))
        words = [*words, *joined, *primary(random)]
    if random.random() < 0.2:
        words = ["!", *words]
    if random.random() < 0.15:
        words = ["(", *words, ")"]
    return words


def command(random: Random) -> str:
    words = condition(random)
    if random.random() < 0.5:
        return " ".join(["[", *map(quoted, words), *(["]"] if random.random() < 0.97 else [])])
    return " ".join(["test", *map(quoted, words)])


def expression(random: Random, depth: int = 0) -> str:
    kind = random.random()
    if depth > 3 or kind < 0.3:
        return random.choice(("0", "1", "7", "42", "010", "0x1F", "x", "n", "-3", "2"))
    if kind < 0.85:
        operator = random.choice(
            [
                "+",
                "-",
                "*",
                "/",
                "%",
                "<<",
                ">>",
                "<",
                ">",
                "<=",
                ">=",
                "==",
                "!=",
                "&",
                "|",
                "^",
                "&&",
                "||",
                "**",
                ",",
            ]
        )
        return f"{expression(random, depth + 1)}{operator}{expression(random, depth + 1)}"
    if kind < 0.92:
        return f"({expression(random, depth + 1)})"
    return f"{random.choice('!~-')}{expression(random, depth + 1)}"


def conditional(random: Random) -> str:
    """A `[[ … ]]` that Bash reads, most of the time."""
    kind = random.random()
    text = random.choice(
        ("a", "abc", '"a b"', "'*'", '""', "$HOME", "$UNSET", "10", "~", "007", "documents/")
    )
    if kind < 0.35:
        part = f"{random.choice(UNARY)} {random.choice([p for p in PATHS if p])}"
    elif kind < 0.6:
        other = random.choice(
            ("a", "a*", "?", '"a*"', "[a-c]bc", "*", "10", "[!a]*", "/root", "\\*")
        )
        part = f"{text} {random.choice(('=', '==', '!=', '<', '>'))} {other}"
    elif kind < 0.8:
        ops = ("-eq", "-ne", "-lt", "-le", "-gt", "-ge")
        left = random.choice(("1", "2", "n", "1+1", "010", "x"))
        part = f"{left} {random.choice(ops)} {random.choice(('2', '8', 'n*2', '0'))}"
    else:
        part = text
    if random.random() < 0.2:
        part = f"! {part}"
    if random.random() < 0.35:
        part = f"{part} {random.choice(('&&', '||'))} {conditional(random)}"
    if random.random() < 0.15:
        part = f"( {part} )"
    return part


FORMATS = (
    "%s",
    "%d",
    "%5d",
    "%-5d|",
    "%05d",
    "%+d",
    "% d",
    "%x",
    "%X",
    "%o",
    "%u",
    "%.2f",
    "%f",
    "%8.3f|",
    "%c",
    "%10s|",
    "%-10s|",
    "%.2s",
    "%%",
    "%b",
    "%q",
    "%i",
    "\\n",
    "\\t",
    "\\x41",
    "\\101",
    "\\\\",
    "a",
    " ",
    "-",
    "é",
    "%e",
    "%03x",
    "\\e",
    "\\z",
    "%5.1s",
    "%z",
    "\\c",
    "%-05d",
    "%+.1f",
    "%08.2f",
)
VALUES = (
    "a",
    "hello world",
    "",
    "5",
    "-7",
    "42",
    "0x1F",
    "010",
    "3.14159",
    "2.5",
    "0.125",
    "abc",
    "'A",
    "+3",
    "1e3",
    "é",
    "99999999999",
)


def printf(random: Random) -> str:
    shape = "".join(random.choice(FORMATS) for _ in range(random.randrange(1, 5)))
    values = [random.choice(VALUES) for _ in range(random.randrange(5))]
    return " ".join(["printf", *map(quoted, [shape, *values])])


OPTION_WORDS = (
    *("-a", "-b", "-c", "-x", "-ab", "-ba", "-bx", "-cb", "-axb", "-abc", "-bvalue", "-a-", "-:"),
    *("--", "-", "", "word", "two words", "--long", "-b", "-ab", "-?", "+a"),
)
SHOWN = 'echo "$?:$o:$OPTIND:${OPTARG-unset}:${OPTARG+set}"'


def options(random: Random) -> str:
    """A loop of `getopts`, or a few calls, over parameters or given words."""
    letters = random.choice(("ab:c", ":ab:c", "a", ":", "b:", ":b:", "abcx", "a:b:", "?a", "ab-"))
    words = [quoted(random.choice(OPTION_WORDS)) for _ in range(random.randrange(5))]
    given = " ".join(words)
    silent = random.choice(("", "", "OPTERR=0; "))
    if random.random() < 0.5:
        asked, parameters = f"getopts {quoted(letters)} o", f"set -- {given}; "
    else:
        asked, parameters = f"getopts {quoted(letters)} o {given}", "set -- -c; "
    between = random.choice(("", "OPTIND=1; ", "OPTIND=2; ", "unset OPTARG; "))
    kind = random.randrange(4)
    if kind == 0:
        body = f"{asked}; {SHOWN}; {between}{asked}; {SHOWN}; {asked}; {SHOWN}"
    elif kind == 1:
        function = f"f() {{ local OPTIND o; while {asked}; do {SHOWN}; done; echo $OPTIND; }}"
        body = f"{function}; f {given}; f -a -c; echo $OPTIND"
    else:
        body = f'while {asked}; do {SHOWN}; done; {SHOWN}; shift $((OPTIND - 1)); echo $# "$@"'
        if kind == 3:
            body += f"; OPTIND=1; set -- -c -a; while {asked}; do {SHOWN}; done"
    return f"{silent}{parameters}{body}"


def by_bash(
    observer: SandboxRunner, texts: list[str], before: str = ""
) -> Iterator[tuple[int, str]]:
    """Return Bash's output for each command, each in a subshell; one execution runs many
    commands."""
    for start in range(0, len(texts), 250):
        part = texts[start : start + 250]
        script = "".join(
            f"( eval {quoted(text)} ) 2>&1; printf '%s' \"{MARK}$?{MARK}\"; " for text in part
        )
        said = os.fsdecode(observer.run(before + script).output).split(MARK)
        assert len(said) == 2 * len(part) + 1, said[-2:]
        yield from ((int(said[at + 1]), said[at]) for at in range(0, 2 * len(part), 2))


def decided(text: str, state: State) -> Behavior | None:
    return ruled(Call(text), state)


def walked(text: str, state: State) -> Behavior | None:
    """Return the behavior derived without any runner; None where a runner is needed."""
    try:
        return Walk(Nobody(), state, text).answer(read_program(text)).behavior
    except Abstained:
        return None


@pytest.mark.parametrize(
    ("make", "least", "seed"),
    [
        (command, 850, 1),
        (printf, 300, 3),
        (lambda random: f"let {quoted(expression(random))}", 850, 4),
        (lambda random: f"echo $(( {expression(random)} ))", 0, 6),
    ],
    ids=["test", "printf", "let", "expanded"],
)
def test_what_is_decided_is_what_bash_does(
    observer: SandboxRunner, start: State, make: Callable[[Random], str], least: int, seed: int
) -> None:
    random = Random(seed)
    texts = [make(random) for _ in range(1000)]
    ours = [decided(text, start) or walked(text, start) for text in texts]
    wrong = [
        (text, (said.exit_code, os.fsdecode(said.output)), right)
        for text, said, right in zip(texts, ours, by_bash(observer, texts), strict=True)
        if said is not None and (said.exit_code, os.fsdecode(said.output)) != right
    ]
    assert wrong == []
    assert sum(said is not None for said in ours) >= least


class Nobody:
    """A runner that declines every input."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        raise Abstained("it knows nothing")


class ByRule:
    """A runner with the rules for single commands, and nothing else."""

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        said = ruled(Call(shell_input), state) if state else None
        if said is None:
            raise Abstained("no rule knows it")
        return said


@LARGER
def test_getopts_takes_the_options_that_bash_takes(observer: SandboxRunner, start: State) -> None:
    random = Random(7)
    texts = [options(random) for _ in range(scaled(250, 1000))]
    found = 0
    for text, right in zip(texts, by_bash(observer, texts), strict=True):
        with suppress(Abstained):
            said = Walk(ByRule(), start, text).answer(read_program(text)).behavior
            assert (said.exit_code, os.fsdecode(said.output)) == right, text
            found += 1
    assert found >= 0.8 * len(texts)


def test_conditional_expressions_are_decided(observer: SandboxRunner, start: State) -> None:
    random = Random(5)
    texts = [f"[[ {conditional(random)} ]]" for _ in range(700)]
    texts += [f"(( {expression(random)} ))" for _ in range(300)]
    found = 0
    for text, right in zip(texts, by_bash(observer, texts), strict=True):
        said = walked(text, start)
        if said is None:
            continue
        found += 1
        assert (said.exit_code, os.fsdecode(said.output)) == right, text
    assert found >= 800


@pytest.mark.parametrize(
    "text",
    [
        "set -e",
        "set -eu",
        "set -o pipefail",
        "set +B",
        "set -e -o noclobber +h",
        "unset LANG",
        "unset TERM NOSUCH",
        "unset -v SHELL",
        "let x=5",
        "let x=2+3 y=x*2",
        "let 'z = 0'",
        "umask",
        "umask -S",
        "umask -p",
        "umask -p -S",
        "umask 077",
        "umask 22",
        "umask 0",
        "type cd",
        "type ls",
        "type if",
        "type nosuch",
        "type -t ls cd if",
        "type -t nosuch",
        "type -t ls nosuch",
        "type cat ls",
        "command -v ls",
        "command -V ls",
        "type -a ls",
        "umask 999",
        "test -o nosuchoption",
        "command -v cd",
        "command -v nosuch",
        "command -v while",
        "true",
        "false x",
        ":",
        "let x=0",
        "unset UNSET",
        "type awk",
        "type python3",
        "printf '%s\\n' a b",
        "[ $UID -eq 0 ]",
        'printf "%s" "$EUID"',
        "[ -z $1 ]",
        "let LANG=5",
        "let 'x=1/0'",
        "printf -v x a",
        "unset PATH",
        "umask u=rwx",
        "umask g-w,o=",
        "type f nosuch",
        "alias ll='ls -l'",
        "unalias nosuch",
        "echo -e 'a\\tb' -n",
        "echo -n -E '\\n'",
    ],
)
def test_all_of_it_is_what_bash_does(observer: SandboxRunner, start: State, text: str) -> None:
    said, right = decided(text, start) or walked(text, start), observer.run(text)
    assert said is not None
    assert (said.exit_code, said.output, said.patch) == (right.exit_code, right.output, right.patch)


@pytest.mark.parametrize(
    "text",
    [
        "test -N README.md",
        "[ -e /proc/self/fd ]",
        "[ -v RANDOM ]",
        "set -n",
        "set a b",
        "let BASH_ARGV=1",
        "test $RANDOM -gt 5",
        "let x=RANDOM",
        "printf %s $PPID",
        "printf '%(%s)T'",
        "let",
        "test $(pwd) = /",
        "test $? -eq 0",
    ],
)
def test_what_no_context_tells_is_left_to_who_knows(start: State, text: str) -> None:
    assert decided(text, start) is None


def test_the_parts_of_a_conditional_expression_are_its_words_and_operators() -> None:
    text = '[[ ! ( -f a && "b c" == d* ) || $x =~ ^(a|b)$ ]]'
    (job,) = read(text).program
    command = job.pipelines[0][1].stages[0]
    assert isinstance(command, Verbatim)
    assert command.parts == (
        "!",
        "(",
        "-f",
        "a",
        "&&",
        '"b c"',
        "==",
        "d*",
        ")",
        "||",
        "$x",
        "=~",
        "^(a|b)$",
    )


def test_a_rule_is_of_a_builtin(observer: SandboxRunner) -> None:
    known = observer.run("compgen -b").text.split()
    assert set(RULES) <= set(known)


@pytest.mark.parametrize(
    "text",
    [
        f"[ 1{'0' * 5000} -eq 1 ]",
        f"[ {'0' * 5000}1 -eq 1 ]",
        f"[ -9223372036854775808 -lt -{'0' * 30}1 ]",
        f"[ -{'9' * 19} -lt 1 ]",
        f"[[ 1{'0' * 5000} -eq 1 ]]",
        f"let x=1{'0' * 5000}",
        f"printf %d 1{'0' * 5000}",
        f"printf %d 0{'0' * 5000}7",
        f"printf %x 0x{'f' * 5000}",
        "printf '%.30f' 0.1",
        "printf '%.20f' 123456789012.1",
        "printf '%.12f' 999999999999.999999999999",
        "printf '%.0f' 100000000000.500000000001",
        "printf '%.17f %.6f %.18f' 0.1 999999999999.999999 0.123456789012",
        "printf '%d %s%%|' 1 a 2 b 3",
        "printf '%d%d\\n' 1 2 3",
        "printf 'plain' 1 2",
    ],
)  # fmt: skip
def test_no_number_is_too_long(observer: SandboxRunner, start: State, text: str) -> None:
    right = next(by_bash(observer, [text]))
    said = decided(text, start)
    assert said is None or (said.exit_code, os.fsdecode(said.output)) == right
    said = walked(text, start)
    assert said is None or (said.exit_code, os.fsdecode(said.output)) == right


def test_fractions_are_rounded_as_bash_rounds(observer: SandboxRunner, start: State) -> None:
    random, texts = Random(6), []
    for _ in range(500):
        whole = random.choice(("0", "9" * random.randrange(1, 13), str(random.randrange(10**12))))
        rest = "".join(random.choice("0459") for _ in range(random.randrange(1, 13)))
        texts.append(f"printf '%.{random.randrange(30)}f' {whole}.{rest}")
    found = 0
    for text, right in zip(texts, by_bash(observer, texts), strict=True):
        said = decided(text, start)
        if said is not None:
            found += 1
            assert (said.exit_code, os.fsdecode(said.output)) == right, text
    assert found >= 100


@pytest.mark.parametrize("shape", ["%999s", "%0999d", "%s" + "x" * 999])
def test_what_is_printed_counts_as_work(start: State, shape: str) -> None:
    text = f"printf '{shape}' {'1 ' * 20_000}"
    with pytest.raises(Abstained, match="more work"), answering(text):
        decided(text, start)


@pytest.mark.parametrize(
    ("before", "decides"),
    [
        ("echo enabled", True),
        ("systemctl enable ssh", True),
        ("cat enable.txt", True),
        ("enable -n test", False),
        ("true; enable -n test", False),
        ("x=1 builtin enable -n test", False),
        ("eval 'enable -n test'", False),
        ("if true; then enable -n test; fi", False),
    ],
)
def test_a_builtin_is_decided_unless_it_may_be_disabled(
    start: State, before: str, *, decides: bool
) -> None:
    said = decided("test a", replace(start, history=(before,)))
    assert (said is not None) is decides


@pytest.mark.parametrize("user", [None, 'declare -ir EUID="1000"'])
def test_only_what_root_may_do_is_decided(start: State, user: str | None) -> None:
    document = copy.deepcopy(start.before.document)
    document["settings"].pop("EUID")
    if user:
        document["settings"]["EUID"] = user
    other = replace(start, context=Context(document))
    assert decided("[ -r documents ]", start) is not None
    assert decided("[ -r documents ]", other) is None
    assert changed_directory(Call("cd documents"), start) is not None
    assert changed_directory(Call("cd documents"), other) is None


@pytest.mark.parametrize(
    "text",
    [
        "cd documents data", "cd -P documents data", "cd -PL a b c", "cd data/*.csv logs",
        "cd //etc", "cd ///etc", "cd README.md/x", "cd /etc/passwd/x/y", "cd latest.log/x",
        "cd empty.txt", "cd nosuch", "cd data/../logs", "cd", "cd ~", "cd //",
    ],
)  # fmt: skip
def test_cd_of_the_pristine_machine_is_that_of_bash(
    observer: SandboxRunner, start: State, text: str
) -> None:
    said = changed_directory(Call.parse(text), start)
    right = observer.run(text)
    assert said is not None
    assert (said.exit_code, said.output, said.patch) == (
        right.exit_code, right.output, right.patch
    )  # fmt: skip
