"""Questions for outputs are in English, and are complete or absent."""

from __future__ import annotations

import pytest

from shioenv.domain.inputs import Input
from shioenv_agents.tasks.output_requests import describe_output


def asked(text: str) -> str | None:
    words: list[str] = []
    for word in text.split(" "):  # a quoted word with blanks is one argument
        if words and words[-1].count("'") % 2:
            words[-1] += f" {word}"
        else:
            words.append(word)
    return describe_output(Input.from_marked(words))


STEPS = "the result of these steps: take "

SAID = {
    "cat a b": "the lines of `a`, then those of `b`.",
    "cat -n a": f"{STEPS}the lines of `a`; put its number and a space before each line.",
    "head --lin=5 a": f"{STEPS}the lines of `a`; keep only the first 5 lines.",
    "head -n 1 a": f"{STEPS}the lines of `a`; keep only the first line.",
    "head -n -2 a": f"{STEPS}the lines of `a`; drop the last 2 lines.",
    "sort -rn sizes.txt | head -n3": f"{STEPS}the lines of `sizes.txt`; sort the lines, as numbers,"
    " in reverse order; keep only the first 3 lines.",
    "sort -s -t: -k2,3 a": f"{STEPS}the lines of `a`; sort the lines by fields 2 to 3, with `:`"
    " between fields, leaving equal lines in their original order.",
    "sort --key 2n a": f"{STEPS}the lines of `a`; sort the lines by the text from field 2 to the"
    " end of the line, as numbers.",
    "tail -n +2 a | uniq -c": f"{STEPS}the lines of `a`; keep only the lines from line 2 on; merge"
    " adjacent equal lines into one, with the number of merged lines and a space before each.",
    "wc -l data/a.csv": "the number of lines in `data/a.csv`, then its name, on one line.",
    "wc -l -- -w": "the number of lines in `-w`, then its name, on one line.",
    "cat a | wc -lw": f"{STEPS}the lines of `a`; replace everything by the numbers of lines and"
    " words, on one line.",
    "cut -d, -f2 a.csv": f"{STEPS}the lines of `a.csv`; keep only field 2 of each line, with `,`"
    " between fields, leaving lines without it as they are.",
    "cut -d ' ' -s -f 2- a": f"{STEPS}the lines of `a`; keep only fields 2- of each line, with"
    " `' '` between fields, dropping lines without it.",
    "cut -c1-5 a": f"{STEPS}the lines of `a`; keep only characters 1-5 of each line.",
    "grep -ic 'a b' a.txt": f"{STEPS}the lines of `a.txt`; replace everything by the number of"
    " lines that match the basic regular expression `'a b'`, ignoring case.",
    "grep -Fv x a": f"{STEPS}the lines of `a`; keep only the lines that do not contain the text"
    " `x`.",
    "cat a | tr a-z A-Z": f"{STEPS}the lines of `a`; replace the characters of the set `a-z` by"
    " those of the set `A-Z`, in order.",
    "ls -S logs | head -n 3": f"{STEPS}the names of the entries of `logs`, excluding those that"
    " begin with a dot, one per line, the largest first; keep only the first 3 lines.",
    "ls -Ar": "the names of the entries of `.`, including those that begin with a dot, one per"
    " line, in reverse alphabetical order.",
    "find logs -type f -name '*.log'": "the paths of all regular files among `logs` and everything"
    " below it, whose names match the shell pattern `'*.log'`, each path beginning with `logs`,"
    " one per line, unsorted, in directory order.",
    "find -maxdepth 1 -user bob": "the paths of all files of any type among `.` and everything"
    " below it, at most 1 level below it, that belong to the user `bob`, each path beginning with"
    " `.`, one per line, unsorted, in directory order.",
    "basename -s .txt a/b.txt": "the last component of the path `a/b.txt`, without `.txt` at its"
    " end.",
    "basename -a a/b c/d": "the last component of each of the paths `a/b`, `c/d`, one per line.",
    "basename -s ' x' 'a x'": "the last component of the path `'a x'`, without `' x'` at its end.",
    "basename '' x": "the last component of the path `''`, without `x` at its end.",
    "dirname a/b c/d": "the paths `a/b`, `c/d` without their last components, one per line.",
    "readlink -m x": "the absolute path of `x`, which need not exist, with all symbolic links"
    " resolved.",
    "stat --format='%n %s' a": 'one line of the form "<name> <size in bytes>" for `a`.',
    "stat -c %U a b": 'one line of the form "<owner>" for each of `a`, `b`.',
    "whoami": "your user name.",
    "id -u": "your user ID.",
    "id -gn bob": "the name of the primary group of the user `bob`.",
    "printenv LANG": "the value of the environment variable `LANG`.",
    "uname -rs": "the name of the kernel and the release of the kernel, in this order on one line.",
    "comm -12 a b": "the lines of the sorted files `a` and `b` that are in both.",
    "du -sk a": "the total disk usage of `a`, in units of 1024 bytes, then its path, on one line.",
}  # fmt: skip


@pytest.mark.parametrize("text", SAID)
def test_an_output_is_described_completely(text: str) -> None:
    assert asked(text) == SAID[text]


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
        "cut -d '' -f1 a",  # a NUL
        "sort -r -k 2n a",  # the key does not inherit the order
        "wc -l -",
        "uname extra",
        "cowsay hello",
        "head -n 1 -n 2 a",
        "wc -l 'unclosed",
    ],
)
def test_what_cannot_be_told_whole_is_not_asked(text: str) -> None:
    assert asked(text) is None
