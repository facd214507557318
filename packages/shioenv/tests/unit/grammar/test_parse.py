"""Any Bash input parsed."""

import pytest

from shioenv.bash.words import split_words
from shioenv.errors import InputError
from shioenv.grammar.library import load_grammar, load_grammars
from shioenv.grammar.load import read_grammar
from shioenv.grammar.parse import InputParser

FINDER = r"""command finder
manual finder(1), Things 1.0
package things
volatile no
start finder <Directory> <test>*
options %no-clusters
  -name <n>
  -print
<n> = '*.txt'
<test> = <option> | {-exec <tool> {} \;} | {-size <n> <n>}
<tool> = {wc -l} | cat
"""
WRAPPER = """command wrap
manual wrap(1), Things 1.0
package things
volatile no
permutes no
start wrap <option>* echo -n
options
  -n <n>
<n> = 1
"""


@pytest.fixture(scope="module")
def parser() -> InputParser:
    extra = [
        read_grammar(FINDER, "finder.grammar").grammar,
        read_grammar(WRAPPER, "wrap.grammar").grammar,
    ]
    return InputParser([*load_grammars(["ls", "df", "echo", "cat"]), *extra])


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("ls -laT 32", ["ls", "-l<ns>", "<ns>a<ns>", "<ns>T 32"]),
        ("ls -l -a -T32", ["ls", "-l", "-a", "-T32"]),
        ("df -a --output=source -B 512K", ["df", "-a", "--output=source", "-B 512K"]),
        ("df --block-size 512K -B512K", ["df", "--block-size 512K", "-B512K"]),
        ("df --block 512K", ["df", "--block 512K"]),
        ("ls -Fl --classify auto", ["ls", "-F<ns>", "<ns>l", "--classify", "auto"]),
        ("ls -- -l", ["ls", "--", "-l"]),
        ("ls -lJ", ["ls", "-l<ns>", "<ns>J"]),
        ("ls -qJK", ["ls", "-q<ns>", "<ns>J<ns>", "<ns>K"]),
        ("df -print", ["df", "-print"]),
        ("ls -J5", ["ls", "-J5"]),
        ("ls -l5", ["ls", "-l<ns>", "<ns>5"]),
        ("ls -l/a", ["ls", "-l<ns>", "<ns>/<ns>", "<ns>a"]),
        ("ls -l'a'", ["ls", "-l'a'"]),
        ("ls -l$a", ["ls", "-l$a"]),
        ("ls -l%%a", ["ls", "-l%%a"]),
        ("ls -T", ["ls", "-T"]),
        ("ls - -l", ["ls", "-", "-l"]),
        ("/bin/ls -la", ["/bin/ls", "-l<ns>", "<ns>a"]),
        ("ls -I 'a b' $(pwd -P)", ["ls", "-I 'a b'", "$(pwd -P)"]),
        ("echo -ne a -n", ["echo", "-n<ns>", "<ns>e", "a", "-n"]),
        ("unknown -n 5 x", ["unknown", "-n", "5", "x"]),
        (
            "finder . -name '*.c' -exec grep -c x {} \\; -print",
            ["finder", ".", "-name '*.c'", "-exec grep -c x {} \\;", "-print"],
        ),
        ("finder . -size 1 2 -print", ["finder", ".", "-size 1 2", "-print"]),
        ("wrap -n 1 echo -n 5", ["wrap", "-n 1", "echo", "-n", "5"]),
    ],
)
def test_arguments_of_a_command(parser: InputParser, text: str, marked: list[str]) -> None:
    parsed = parser.parse(text)
    assert parsed.input_args == marked
    assert parsed.text == text


@pytest.mark.parametrize(
    ("text", "marked", "n_arguments"),
    [
        ("ls -l|cat -n>x", ["ls", "-l", "|", "cat", "-n", ">", "x"], 2),
        ("ls && df || echo a; cat f", ["ls", "&&", "df", "||", "echo", "a", ";", "cat", "f"], 2),
        ("ls > out -l", ["ls", "-l", ">", "out"], 1),
        ("ls 2>/dev/null -a 2>&1", ["ls", "-a", "2>", "/dev/null", "2>&1"], 1),
        ("cat a 3>&- b", ["cat", "a", "b", "3>&-"], 2),
        ("ls -l; cat -0# x #y", ["ls", "-l", ";", "cat", "-0#", "x"], 3),
        ("cat < in | ls", ["cat", "<", "in", "|", "ls"], 0),
        ("cat <<< 'a b'", ["cat", "<<<", "'a b'"], 0),
        ("LC_ALL=C ls -l", ["LC_ALL=C ls", "-l"], 1),
        ("a\nb # why\n", ["a", ";", "b"], 0),
        ("ls &", ["ls", "&"], 0),
        ("[ -f x ] && ls", ["[", "-f", "x", "]", "&&", "ls"], 3),
        ("echo $((1 << 2))", ["echo", "$((1 << 2))"], 1),
        ("for i in a; do ls; done", ["for i in a; do ls; done"], 0),
        ("(ls; df) | cat -n", ["(ls; df)", "|", "cat", "-n"], 1),
        ("cat <<E\nhi\nE", ["cat <<E\nhi\nE"], 0),
        ("ls 'unclosed", ["ls", "'unclosed"], 1),
        ("ls )", ["ls", ")"], 1),
        ("", [" "], 0),
    ],
)
def test_operators_and_redirections(
    parser: InputParser, text: str, marked: list[str], n_arguments: int
) -> None:
    parsed = parser.parse(text)
    assert parsed.input_args == marked
    assert parsed.n_arguments == n_arguments


def test_bytes_that_are_no_text_survive() -> None:
    assert InputParser([]).parse("ls \udcff").text == "ls \udcff"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        (r"a\ b 'c d' \'", [r"a\ b", "'c d'", r"\'"]),
        ('"a $(b "c d") e" f', ['"a $(b "c d") e"', "f"]),
        ("${x:-a b} `c d` <(e f)", ["${x:-a b}", "`c d`", "<(e f)"]),
        (r"$'a\' b' c", [r"$'a\' b'", "c"]),
        ("'never closed x", ["'never closed x"]),
    ],
)
def test_words_keep_their_quotes(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("xargs -n 1 head -n 5", ["xargs", "-n 1", "head", "-n 5"]),
        ("xargs ls -la", ["xargs", "ls", "-l<ns>", "<ns>a"]),
        ("xargs cp -t /tmp --", ["xargs", "cp", "-t /tmp", "--"]),
        ("xargs -- head -n 5", ["xargs", "--", "head", "-n 5"]),
        ("env A=1 LANG=C head -n 5", ["env", "A=1", "LANG=C", "head", "-n 5"]),
        ("env - head -n 5", ["env", "-", "head", "-n 5"]),
        ("xargs env A=1 head -n 5", ["xargs", "env", "A=1", "head", "-n 5"]),
        ("env env env head -n 5", ["env", "env", "env", "head", "-n", "5"]),
        ("xargs nosuch -n 5 x", ["xargs", "nosuch", "-n", "5", "x"]),
        ("env A=1", ["env", "A=1"]),
        ("timeout -k 1 5 head -n 5", ["timeout", "-k 1", "5", "head", "-n 5"]),
        ("timeout -- 5 head -n 5", ["timeout", "--", "5", "head", "-n 5"]),
        ("timeout 5", ["timeout", "5"]),
    ],
)
def test_what_a_command_runs_is_taken_apart_by_its_own_grammar(
    text: str, marked: list[str]
) -> None:
    shell_input = InputParser(load_grammars(["xargs", "env", "head", "ls", "cp", "timeout"])).parse(
        text
    )
    assert shell_input.input_args == marked
    assert shell_input.text == text


def test_commands_that_run_commands_without_end_are_taken_apart() -> None:
    text = "env " * 5000 + "ls -la"
    assert InputParser(load_grammars(["env", "ls"])).parse(text).text == text


def test_a_text_without_bytes_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be encoded"):
        InputParser([]).parse("echo \ud800")
    assert InputParser([]).parse("echo \udcff").text == "echo \udcff"


def test_commands_of_find_that_never_end_are_looked_for_once() -> None:
    text = "find ." + " -exec a" * 5_000
    assert len(InputParser([load_grammar("find")]).parse(text).tokens) > 5_000


def test_thousands_of_redirections_are_read() -> None:
    assert len(InputParser([]).parse("a" + " 2>b" * 5_000).tokens) == 10_001
