"""Questions for outputs are in English, and are complete or absent."""

from __future__ import annotations

import pytest

from shioenv.domain.inputs import Input
from shioenv_agents.tasks.question_templates import asks


def asked(text: str) -> str | None:
    words: list[str] = []
    for word in text.split(" "):  # a quoted word with blanks is one argument
        if words and words[-1].count("'") % 2:
            words[-1] += f" {word}"
        else:
            words.append(word)
    return asks(Input.from_marked(words))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wc -l data/a.csv", "how many lines there are in `data/a.csv`: "),
        (
            "sort -rn sizes.txt | head -n3",
            "the lines of `sizes.txt`; of these in order, as n",
        ),
        (
            "ls -S logs | head -n 3",
            "`logs`, a line each, the largest first; of these only the",
        ),
        ("cut -d, -f2 a.csv", "the lines of `a.csv`; of these only the fields 2, which are sep"),
        (
            "grep -ic 'a b' a.txt",
            "expression `a b`, in capitals or small letters, and of them",
        ),
        ("find logs -type f -name '*.log'", "paths of all regular files in `logs` and below"),
        ("basename -s .txt a/b.txt", "the last part of the path `a/b.txt`, without `.txt`"),
        ("stat --format='%n %s' a", "`a` a line each of this form: `<name> <size in bytes>`."),
        ("tail -n +2 a | uniq -c", "from line 2 on; of these neighbours that are equal only once"),
        ("cat a b", "the lines of `a`, then those of `b`."),
        ("cut -d' ' -f2 a", "separated by ` `"),
        ("cut -d ' ' -f 2 a", "separated by ` `"),
        ("cut -f2 -d, -d , a", "separated by `,`"),
        ("head --lin=5 a", "of `a`; of these only the first 5 lines"),
        ("basename -s ' x' 'a x'", "the path `a x`, without ` x` at its end"),
        ("basename '' x", "the last part of the path ``, without `x`"),
        ("cut -d '' -f1 a", "separated by ``"),
        ("wc -l -- -w", "how many lines there are in `-w`"),
        ("sort --reverse --key 2n a", "by the fields 2 to the last one, as numbers"),
    ],
)
def test_what_is_printed_is_told(text: str, said: str) -> None:
    told = asked(text)
    assert told is not None
    assert said in told


@pytest.mark.parametrize(
    "text",
    [
        "wc --files0-from=x",  # an option no template has
        "sort --parallel=2 a",
        "wc $HOME/a",  # who asks would have to expand it
        "ls *.txt",
        "cat ~/a",
        "cat a > b",  # nothing is printed
        "cat a ; cat b",
        "head -n 3 a b",  # its headings are not in the question
        "head -n 0 a",
        "cat",  # reads an input that does not exist
        "grep x",
        "cat a | cat b",
        "cut -f1 -c2 a",
        "uname extra",
        "cowsay hello",
        "head -n 1 -n 2 a",
        "wc -l 'unclosed",
    ],
)
def test_what_cannot_be_told_whole_is_not_asked(text: str) -> None:
    assert asked(text) is None
