"""A search through several files prints the combined output of a search in each file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from random import Random

import pytest

from shioenv.bash.words import split_words
from shioenv.behavior.observe import SandboxRunner
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import FileEntry
from shioenv.domain.runner import Answer, State
from shioenv_model.composition.call import Call
from shioenv_model.memory.facts import Tree
from shioenv_model.memory.forms import Forms
from shioenv_model.memory.functions.match import matching_lines
from shioenv_model.memory.functions.space import Given
from shioenv_model.rules.file_by_file import searched
from support.nightly import by_day

FORMS = Forms()

PLACES = (
    *("documents", "config/", "data", "scripts", "logs/app.log", "README.md", "misc/latin1.txt"),
    *("documents/notes.txt", "empty.txt", "missing", "archives", "config/current", "latest.log"),
    *("misc", ".", "data/empty", "/etc/hosts", "/etc/skel"),
)
PATTERNS = (
    "root",
    "the",
    "ERROR",
    "x",
    "a.c",
    "^#",
    "apple\\|banana",
    "nothing-of-it",
    "TODO",
    "e",
)
OPTIONS = ("-i", "-n", "-v", "-c", "-l", "-L", "-w", "-o", "-q", "-s", "-h", "-H", "-x", "-m 2")
CHOOSING = ("--include=*.txt", "--exclude=*.txt", "--exclude-dir=old", "--include=*.s?")


def command(random: Random) -> str:
    options = random.sample(OPTIONS, random.choice((0, 1, 1, 2)))
    if random.random() < 0.6:
        options += ["-r", *random.sample(CHOOSING, random.choice((0, 0, 1)))]
    count = random.choice((1, 2, 2, 3)) if "-r" not in options else random.choice((0, 1, 1, 2))
    places = random.sample(PLACES, count)
    return " ".join(["grep", *map(_word, options), _word(random.choice(PATTERNS)), *places])


def _word(word: str) -> str:
    return word if word.startswith("-m") else shlex.quote(word)


def told(text: str, observer: SandboxRunner, state: State) -> Behavior | None:
    form = FORMS.form(split_words(text), state)
    assert form is not None

    def ask(call: Call, here: State) -> Answer:
        return Answer(observer.execute(call.text, here, separate=True), 1.0)

    def walked(path: str) -> Sequence[tuple[str, FileEntry]] | None:
        return Tree(path, state).entries

    found = searched(form.utility, form.options, form.operands, state, walked, ask)
    return None if found is None else found.behavior


@pytest.mark.parametrize("seed", by_day(range(6), 3))
def test_a_search_of_several_files_is_the_searches_of_each(
    seed: int, observer: SandboxRunner
) -> None:
    random, state, count = Random(seed), observer.state(), 0
    for text in dict.fromkeys(command(random) for _ in range(25)):
        said = told(text, observer, state)
        if said is None:
            continue
        count += 1
        right = observer.run(f"{text}; (exit $?)", state)
        assert (said.output, said.exit_code) == (right.output, right.exit_code), text
    assert count > 12


@pytest.mark.parametrize("shown", ["", "numbered", "count", "name", "nothing"])
def test_a_file_that_is_no_text_is_searched_as_on_the_machine(
    shown: str, observer: SandboxRunner
) -> None:
    """Bytes that are no characters, and NUL, before and behind what is found."""
    option = {"": "", "numbered": "-n ", "count": "-c ", "name": "-l ", "nothing": "-q "}[shown]
    for content in (
        b"one\ntwo \xe9\nthree one\n", b"\xe9\none\n", b"one\n\xe9 one\none\n", b"a\0one\n\none\n",
        b"\0\0", b"one\n\0",
    ):  # fmt: skip
        written = "".join(f"\\{byte:03o}" for byte in content)
        right = observer.run(f"printf '{written}' > f; grep {option}one f; (exit $?)")
        text = content.decode("utf-8", "surrogateescape")
        flags = {"syntax": "basic", "case": "", "whole": "", "negated": "", "shown": shown}
        said = matching_lines(Given(text, {}, ("f",)), {"pattern": "one"}, flags)
        assert said == (right.output.decode(), right.exit_code), content
