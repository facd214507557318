"""Functions found from examples, with the real programs as the oracle of what commands mean."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from shioenv_model.bash.patterns import CLASSES
from shioenv_model.memory.explain import Inducer, Induction, known_inputs
from shioenv_model.memory.facts import Operand
from shioenv_model.memory.functions.characters import set_of
from shioenv_model.memory.functions.families import functions
from shioenv_model.memory.functions.lines import part_of
from shioenv_model.memory.functions.match import MOST_WORK
from shioenv_model.memory.functions.space import Given
from shioenv_model.memory.rewrite import Kept, Taken
from support.small_world import taken

PARTS = {"of": "lines", "which": "first"}
WORDS = (
    "one",
    "Two",
    "three",
    "10",
    "9",
    "2.5",
    "-3",
    "1K",
    "b c",
    "x:y:z",
    "a,b",
    "t\tu",
    "",
    "Jan",
)


def texts(seed: int, count: int) -> list[str]:
    """Texts of a few lines, drawn by the seed; one in three does not end its last line."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        lines = [
            " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 4)))
            for _ in range(rng.randint(4, 25))
        ]
        lines += rng.choices(lines, k=3) + [lines[0]] * 2
        made.append("\n".join(lines) + "\n" * (number % 3 > 0))
    return made


@cache
def told(command: str, text: str) -> Kept:
    """Return the real program's behavior with a text on its standard input."""
    done = subprocess.run(
        shlex.split(command),
        input=text.encode(),
        capture_output=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        check=False,
    )
    return Kept(done.returncode, done.stdout.decode("utf-8", "surrogateescape"), "[]")


def reading(command: str, text: str) -> Taken:
    """Return the command as one that gets a text as input."""
    made = taken(command)
    operands = (*made.operands, Operand("", "x", content=text.encode()))
    return Taken(made.form, operands)


FILTERS = (
    "md5sum", "sha256sum", "b2sum", "base64", "grep -l e", "grep -L Jan",
    "cat", "head", "head -n 3", "head -n -2", "head -c 20", "tail", "tail -n 2", "tail -n +3",
    "tail -c 15", "tac", "rev", "wc -l", "wc -w", "wc -c", "wc -m", "wc -L", "sort", "sort -n",
    "sort -r", "sort -n -r", "sort -u", "sort -h", "sort -g", "sort -f", "sort -d", "sort -M",
    "sort -k 2", "sort -k 2n", "sort -k 2,2 -t ' '", "sort -r -k 2", "sort -n -u", "uniq",
    "uniq -c", "uniq -d", "uniq -u", "uniq -i", "uniq -D", "uniq -f 1", "uniq -w 2", "cut -f 1",
    "cut -d : -f 1,3", "cut -d ' ' -f 2-", "cut -c 2-5", "cut -c -3", "cut -d ' ' -f 2 -s",
    "cut -d ' ' -f 2 --complement", "grep one", "grep -v one", "grep -i TWO", "grep -c o",
    "grep -n one", "grep -w one", "grep -o '[a-z]*'", "grep -E 'one|Two'", "grep '^1'",
    "grep -F .5", "grep -x ''", "grep -q Jan", "tr a-z A-Z", "tr -d e",
    "tr -s ' '", "tr -c '[:alnum:]' _", "tr -cd '[:digit:]'", "tr -t abc xy", "tr ' ' '\\n'",
    "fold -w 10", "fold -s -w 12", "nl", "nl -b a", "nl -w 3", "nl -s ') '", "nl -n rz",
    "cat -n", "cat -b", "cat -A", "cat -E", "cat -T", "cat -s", "paste -s", "paste -s -d ,",
    "expand", "expand -t 4", "od", "od -x", "od -c", "od -t x1", "od -A d -t u2", "od -A x -j 3",
    "od -N 7", "od -A n -t d1", "od -t o1",
)  # fmt: skip


@pytest.mark.parametrize("command", FILTERS)
def test_a_filter_is_found_from_what_it_did(command: str) -> None:
    seen, asked = texts(1, 8), texts(2, 12)
    neighbours = [(reading(command, text), told(command, text)) for text in seen]
    induction = Induction()
    for text in asked:
        found = induction.explain(reading(command, text), neighbours)
        assert found is not None, command
        real = told(command, text)
        assert (found.output, found.exit_code) == (real.output, real.exit_code), found.function.name


@pytest.mark.parametrize(
    ("seen", "asked"),
    [
        (("head -n 2", "head -n 5", "head -n 1"), "head -n 4"),
        (("cut -d ' ' -f 1", "cut -d : -f 2", "cut -d , -f 1,2"), "cut -d ' ' -f 3"),
        (("grep one", "grep '^2'", "grep 'e.*o'", "grep 'a\\|b'"), "grep 'thre*'"),
        (("tr a-z A-Z", "tr ' ' _", "tr 0-9 a-j"), "tr abc ' '"),
        (("sort -k 1", "sort -k 2", "sort -k 3"), "sort -k 2,3"),
        (("fold -w 5", "fold -w 9", "fold -w 30"), "fold -w 7"),
        (("base64 -w 8", "base64 -w 0", "base64 -w 30"), "base64 -w 20"),
        (("grep -m 1 e", "grep -m 2 e", "grep -m 3 o"), "grep -m 2 o"),
        (("grep -A 1 one", "grep -A 2 t", "grep -A 0 e"), "grep -A 1 e"),
        (("grep -B 1 one", "grep -B 2 t", "grep -B 0 e"), "grep -B 1 t"),
        (("grep -n -C 1 one", "grep -n -C 2 t", "grep -n -C 0 e"), "grep -n -C 1 t"),
    ],
)
def test_words_play_the_roles_that_they_played(seen: tuple[str, ...], asked: str) -> None:
    neighbours = [
        (reading(command, text), told(command, text)) for command in seen for text in texts(3, 3)
    ]
    text = texts(4, 1)[0]
    found = Induction().explain(reading(asked, text), neighbours)
    assert found is not None
    assert found.output == told(asked, text).output


@pytest.mark.parametrize(
    "command",
    [
        "grep '[$]'", "grep '\\$5'", "grep 'a^b'", "grep -E '^(a|Z)'", "grep 'e$'", "grep '[]x]'",
        "grep '[^$a]'", "grep '[a-]'",
    ],
)  # fmt: skip
def test_patterns_are_read_as_grep_reads_them(command: str) -> None:
    text = "Z\ncosts $5\na^b\nabc\none\n]\n$\nx-y\n-\n"
    word = shlex.split(command)[-1]
    syntax = "extended" if "-E" in command else "basic"
    found = [
        function
        for function in functions(["1"], reads=True)
        if function.family.name == "lines"
        and function.flags["syntax"] == syntax
        and not any(function.flags[name] for name in ("case", "negated", "whole", "shown"))
    ]
    real = told(command, text)
    assert [each(Given(text, {"1": word})) for each in found] == [(real.output, real.exit_code)]


@pytest.mark.parametrize(
    ("command", "apart", "bare"),
    [
        ("sort -n -r", ("sort -n", "sort -r"), "sort"),
        ("sort -r -k 2", ("sort -r", "sort -k 2"), "sort"),
        ("uniq -c -i", ("uniq -c", "uniq -i"), "uniq"),
        ("grep -v -i one", ("grep -v one", "grep -i one"), "grep one"),
        ("nl -w 3 -n rz -s ')'", ("nl -w 3", "nl -n rz", "nl -s ')'"), "nl"),
        ("cut -d ' ' -f 2", ("cut -f 2", "cut -f 1"), "cut"),
    ],
)
def test_options_mean_together_what_they_mean_alone(
    command: str, apart: tuple[str, ...], bare: str
) -> None:
    def seen(each: str) -> list[tuple[Taken, Kept]]:
        return [(reading(each, text), told(each, text)) for text in texts(7, 8)]

    text = texts(8, 1)[0]
    alone = {taken(each).form.options: each for each in (*apart, bare)}

    def examples(part: Taken) -> list[tuple[Taken, Kept]]:
        return seen(alone[part.form.options]) if part.form.options in alone else []

    found = Induction().combine(reading(command, text), examples)
    if command.startswith("cut"):  # no record has -d alone
        assert found is None
        return
    assert found is not None
    assert found.output == told(command, text).output, found.function.name


def test_what_options_mean_alone_goes_before_two_records_of_all_of_them() -> None:
    """Two records of `-n -i -E` that fit any syntax do not hide the meaning of `-E`."""
    seen = {
        "grep -n -i -E one": 2, "grep -n one": 8, "grep -i TWO": 8, "grep -E 'one|Two'": 8,
        "grep one": 8,
    }  # fmt: skip
    records = [
        (reading(each, text), told(each, text)) for each, n in seen.items() for text in texts(7, n)
    ]

    def examples(ours: Taken, without: int) -> tuple[list[int], list[tuple[Taken, Kept]]]:
        same = [
            (number, pair)
            for number, pair in enumerate(records)
            if pair[0].form.options == ours.form.options
        ]
        return [number for number, _ in same], [pair for _, pair in same]

    text = texts(8, 1)[0]
    command = "grep -n -i -E 'ONE|b'"
    found = Inducer(examples, lambda *_: [], lambda *_: []).induce(reading(command, text), -1)
    assert found is not None
    assert found.kept.output == told(command, text).output, found.name


SEVERAL = (
    "cat", "sort", "wc", "wc -l", "wc -c", "head -n 2", "tail -n 1", "paste", "paste -d ,",
    "paste -d '+-'", "grep one", "grep -c o", "grep -n -i TWO", "grep -v one", "cut -c 1-3", "rev",
)  # fmt: skip


@pytest.mark.parametrize("command", SEVERAL)
def test_several_texts_are_read_one_by_one_or_as_one(command: str, tmp_path: Path) -> None:
    def asked(number: int, count: int) -> tuple[Taken, Kept]:
        contents = [f"{text.rstrip()}\n" for text in texts(number, count)]
        names = [f"{number}.{place}" for place in range(count)]
        for name, text in zip(names, contents, strict=True):
            (tmp_path / name).write_text(text)
        made = taken(command)
        files = [
            Operand(name, "f", f"/{name}", name, None, text.encode())
            for name, text in zip(names, contents, strict=True)
        ]
        done = subprocess.run(
            [*shlex.split(command), *names],
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            check=False,
        )
        told = Kept(done.returncode, done.stdout.decode(), "[]")
        return Taken(made.form, (*made.operands, *files)), told

    neighbours = [asked(number, 2 + number % 2) for number in range(20, 26)]
    for number in (30, 31, 32):
        ours, real = asked(number, 2 + number % 3)
        found = Induction().explain(ours, neighbours)
        assert found is not None
        assert (found.output, found.exit_code) == (real.output, real.exit_code), found.function.name


def from_file(command: str, text: str, place: Path) -> tuple[Taken, Kept]:
    """Return the command with a file of this text behind `<`, and the real program's result."""
    place.write_text(text)
    with place.open("rb") as file:
        output = subprocess.run(
            shlex.split(command),
            stdin=file,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            check=True,
        ).stdout
    return replace(reading(command, text), from_file=True), Kept(0, output.decode(), "[]")


@pytest.mark.parametrize("command", ["wc", "wc -lw", "wc -wc", "wc -lwc", "wc -lL"])
def test_what_is_shown_of_a_file_is_as_wide_as_the_file_but_not_behind_a_pipe(
    command: str, tmp_path: Path
) -> None:
    neighbours = [from_file(command, text, tmp_path / "file") for text in texts(3, 6)]
    for text in texts(40, 3):
        for ours, real in (
            (reading(command, text), told(command, text)),
            from_file(command, text, tmp_path / "other"),
        ):
            found = Induction().explain(ours, neighbours)
            assert found is not None
            assert found.output == real.output


def test_options_that_ask_for_a_figure_each_ask_for_both(tmp_path: Path) -> None:
    def examples(part: Taken) -> list[tuple[Taken, Kept]]:
        command = " ".join(("wc", *(name for name, _ in part.form.options)))
        return [from_file(command, text, tmp_path / "file") for text in texts(3, 6)]

    (text,) = texts(41, 1)
    for command in ("wc -w -l", "wc -l -l", "wc -L -c -l"):
        found = Induction().combine(reading(command, text), examples)
        assert found is not None
        assert found.output == told(command, text).output


def test_what_no_function_explains_is_not_explained() -> None:
    command = "cksum"
    neighbours = [(reading(command, text), told(command, text)) for text in texts(5, 6)]
    assert Induction().explain(reading(command, "x\n"), neighbours) is None


def test_silence_tells_nothing() -> None:
    neighbours = [
        (reading("grep nowhere", text), told("grep nowhere", text)) for text in texts(5, 6)
    ]
    assert Induction().explain(reading("grep nowhere", "x\n"), neighbours) is None


def test_an_error_is_no_example() -> None:
    errors = [(reading("sort", text), Kept(2, "sort: no\n", "[]", is_error=True)) for text in "abc"]
    assert Induction().explain(reading("sort", "x\n"), errors) is None


def test_one_of_many_examples_may_be_another_thing() -> None:
    good = [(reading("rev", text), told("rev", text)) for text in texts(6, 5)]
    odd = [(reading("rev", "odd\n"), Kept(0, "odd\n", "[]"))]
    found = Induction().explain(reading("rev", "abc\n"), [*odd, *good])
    assert found is not None
    assert (found.output, found.agreed) == ("cba\n", 5)
    assert Induction().explain(reading("rev", "abc\n"), [*odd, *good[:2]]) is None


def test_words_alone_are_joined_however_many_there_are() -> None:
    neighbours = [
        (taken("echo a b"), Kept(0, "a b\n", "[]")),
        (taken("echo d"), Kept(0, "d\n", "[]")),
    ]
    found = Induction().explain(taken("echo +1 e  f 'g  h'"), neighbours)
    assert found is not None
    assert found.output == "+1 e f g  h\n"


def test_a_brace_may_stand_for_many_words() -> None:
    neighbours = [(taken("echo a b"), Kept(0, "a b\n", "[]"))]
    found = Induction().explain(taken("echo {1..700}"), neighbours)
    assert found is not None
    assert found.output == " ".join(map(str, range(1, 701))) + "\n"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_class_of_characters_is_what_it_is_in_posix(name: str) -> None:
    text = "".join(f"{code:03}:{chr(code)}\n" for code in range(1, 128) if code != 10)
    pattern = f":[[:{name}:]]$"
    done = subprocess.run(
        ["grep", pattern],
        input=text.encode(),
        capture_output=True,
        env={**os.environ, "LC_ALL": "C"},
        check=True,
    )
    shown = done.stdout.decode()
    given = Given(text, {"1": pattern})
    basic = [
        function(given)
        for function in functions(["1"], reads=True)
        if function.name == "lines(pattern 1, basic)"
    ]
    assert basic == [(shown, 0)]


@pytest.mark.parametrize("count", ["-1", "-2", "-3", "-4", "-5", "-9", "0", "2"])
def test_more_lines_left_out_than_there_are_leave_none(count: str) -> None:
    text = "a\nb\nc\n"
    done = subprocess.run(
        ["head", "-n", count], input=text.encode(), capture_output=True, check=True
    )
    assert part_of(Given(text, {}), {"count": count}, PARTS) == done.stdout.decode()


@pytest.mark.parametrize(
    "word", [r"\141-\143", r"a-\143", r"\060-9x", r"\400", r"!-\\057", r"\\a", r"\t-\r", r"\1-\12"]
)
def test_sets_are_read_as_tr_reads_them(word: str) -> None:
    text = "".join(map(chr, range(1, 128)))
    done = subprocess.run(["tr", "-d", word], input=text.encode(), capture_output=True, check=True)
    assert "".join(one for one in text if one not in set_of(word)) == done.stdout.decode()


def test_a_set_that_tr_warns_of_is_declined() -> None:
    with pytest.raises(IndexError):
        set_of("a\\")


def test_escapes_are_what_bash_makes_of_them() -> None:
    seen = [r"a\tb", r"x\n\\y", r"\x41\0102c", r"end\c never"]
    asked = [r"one\ttwo", r"\x62\x69\x6e", r"\e[0m\a", r"no escapes", r"cut\c here", r"caf\xc3\xa9"]
    texts_of = {text: _bash(f"echo -e '{text}'") for text in (*seen, *asked)}
    neighbours = [(taken(f"echo -e '{text}'"), Kept(0, texts_of[text], "[]")) for text in seen]
    for text in asked:
        found = Induction().explain(taken(f"echo -e '{text}'"), neighbours)
        assert found is not None
        assert found.output == texts_of[text], text


def _bash(text: str) -> str:
    done = subprocess.run(["bash", "-c", text], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape")


def test_behind_the_first_word_echo_has_no_options() -> None:
    assert taken("echo total -rw-r--r-- -n").form.operands == ("total", "-rw-r--r--", "-n")


@pytest.mark.parametrize(
    "pattern",
    ["(a*)*b", "(.*)*(.*)*x", "a*a*a*a*a*a*a*b", "(a|aa)+b", "(a?){29}a{29}", "a?" * 29 + "a" * 29],
)
def test_a_hostile_pattern_is_given_up_before_it_is_tried(pattern: str) -> None:
    text = "a" * 3000 + "\n"
    assert len(text) ** 3 > MOST_WORK
    made = [
        function(Given(text, {"1": pattern}))
        for function in functions(["1"], reads=True)
        if function.family.name == "lines" and function.flags["syntax"] == "extended"
    ]
    assert set(made) == {None}


def test_what_changes_a_text_tells_more_than_what_does_not() -> None:
    same = [f"no tab in text {number}\n" for number in range(20)]
    texts = [*same, "a\tb\nc\td\n", "1\t2\t3\n", "x\ty\n"]
    neighbours = [(reading("cut -f1", text), told("cut -f1", text)) for text in texts]
    found = Induction().explain(reading("cut -f1", "left\tright\n"), neighbours)
    assert found is not None
    assert found.output == "left\n"


def test_a_pattern_with_the_name_of_a_file_is_not_read() -> None:
    shown, ours, nothing = (
        known_inputs(taken(text)) for text in ("cat b.txt", "grep a.txt b.txt", "grep a.txt gone")
    )
    assert shown is not None
    assert ours is not None
    assert nothing is not None
    assert (ours.words["1"], ours.text) == ("a.txt", shown.text)
    assert nothing.text is None
