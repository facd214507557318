"""External inputs are rewritten so that their files exist; inputs that cannot be are reported."""

from __future__ import annotations

import posixpath
import random
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shioenv.dataset.questions import question_of
from shioenv.errors import UsageError
from shioenv.grammar.library import load_grammars, names_of_grammars
from shioenv.grammar.system_tokens import FALLBACK, STAND_IN, SYSTEM_TOKENS, VOCABULARY
from shioenv.system.store import System
from shioenv_eval.adapting.adapt import Adapted, adapt_inputs, placeholder_table
from shioenv_eval.adapting.replacement_names import SystemNames
from shioenv_eval.adapting.roles import _WITHOUT_GRAMMAR, OF_OPERANDS, roles_of
from shioenv_eval.places import read_places
from support.nightly import LARGER, by_day, scaled
from support.paths import ROOT

HOME = "/home/ubuntu"
DOCS = ROOT / "docs/how-to/datasets.md"
TOKENS = {**FALLBACK, **VOCABULARY, **STAND_IN}
FILES = sorted(
    {name for token in TOKENS if token.endswith("File") for name in STAND_IN.get(token, ())}
)
RELATIVE = tuple(name for name in FILES if not name.startswith("/"))
THERE = {
    "/", "/etc", "/tmp", "/home", HOME, "/etc/passwd", "/var/log",
    *(posixpath.normpath(posixpath.join(HOME, name)) for name in (*FILES, *STAND_IN["Directory"])),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SystemNames(
        TOKENS, THERE.__contains__, RELATIVE, HOME, HOME, frozenset({"HOME", "USER", "PATH"})
    )
    monkeypatch.setattr(SystemNames, "of", classmethod(lambda cls, system, cwd: made))


def adapted(*texts: str, **options: Any) -> Adapted:
    questions = [
        question_of({"input": text}, number, "test") for number, text in enumerate(texts, 1)
    ]
    system = SimpleNamespace(declaration=SimpleNamespace(start_directory=HOME))
    return adapt_inputs(questions, cast("System", system), **options)


def one(text: str, seed: int = 0) -> str:
    """Return the rewritten input; `!` and the reason where it is set aside."""
    found = adapted(text, seed=seed)
    return found.questions[0].input if found.questions else f"! {found.aside[0][1]}"


def named(text: str) -> Iterator[str]:
    """Return the rewritten inputs for several seeds."""
    return (one(text, seed) for seed in range(12))


@pytest.mark.parametrize(
    "text",
    [
        "ls -la documents",
        "cat /etc/passwd | sort > sorted.txt",
        "find . -name '*.txt' -mtime +7 -size +10k",
        "grep -rn error logs",
        "chown root:users documents/notes.txt",
        "mkdir newdir && touch documents/x.txt",
        "for f in *.txt; do wc -l \"$f\"; done",
        "x=documents/notes.txt; cat $x",
        "echo some words file.txt",
        "cat <<< word | tr a-z A-Z",
        "awk '{print $1}' documents/notes.txt",
        "ps -p 1; echo $$ $?",
        "head -n 5 ~/documents/notes.txt",
        "basename /no/such/path.txt .txt",
        "echo 'never closed",
        "tar xf archives/archive.tar --wildcards '*.html'",
        "tail +3 documents/notes.txt",
    ],
)  # fmt: skip
def test_what_is_there_stays(text: str) -> None:
    if text.startswith("for"):  # a pattern that matches nothing here becomes one that does
        text = text.replace("*.txt", "documents/*.txt")
    assert one(text) == text


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("cat file.csv", r"cat data/(data|users)\.csv"),
        ("tar xf /path/to/some.tar.gz", r"tar xf archives/(archive|backup)\.tar(\.gz)?"),
        ("tar czf new.tar.gz mydir", r"tar czf new.tar.gz (\.|documents|data|logs|scripts)"),
        ("tar -czf new.tar.gz mydir", r"tar -czf new.tar.gz (\.|documents|data|logs|scripts)"),
        ("find /some/dir -type f", r"find (\.|documents|data|logs|scripts) -type f"),
        ("cd ~/projects", r"cd (\.|documents|data|logs|scripts)"),
        ("du -sh folder", r"du -sh (\.|documents|data|logs|scripts)"),
        ("chown bob:staff documents", r"chown (root|ubuntu):(root|users) documents"),
        ("chown --from=a:b root .", r"chown --from=(root|ubuntu):(root|users) root \."),
        ("find . -user jim -o -group devs", r"find . -user (root|ubuntu) -o -group (root|users)"),
        ("ping -c 1 example.com", r"ping -c 1 (localhost|ubuntu)"),
        ("ping -c 1 8.8.8.8", r"ping -c 1 127\.0\.0\.1"),
        ("wget http://example.com/x/y.txt", r"wget http://(localhost|ubuntu)/x/y\.txt"),
        ("ethtool enp3s0", r"ethtool (lo|eth0)"),
        ("ip addr show dev wlan0", r"ip addr show dev (lo|eth0)"),
        ("ps -p 24297", "ps -p 1"),
        ("cat < infile > out.txt", r"cat < documents/(notes|report)\.txt > out\.txt"),
        ("cat infile > /no/dir/out.txt", r"cat documents/\w+\.txt > [\w./]*out\.txt"),
        ("find . -name foo.csv", r"find . -name (data|users)\.csv"),
        ("find . -name \"*.mp3\"", r"find . -name '\*\.\w+'"),
        ("find . -type d -name src", r"find . -type d -name (documents|data|logs|scripts)"),
        ("cat $FILE", r"cat documents/(notes|report)\.txt"),
        ('cat "$FILE"', r'cat "documents/(notes|report)\.txt"'),
        ('cat "${FILE}"', r'cat "documents/(notes|report)\.txt"'),
        ("echo $variable", r"echo \$[A-Z]+"),
        ('echo "$variable"', r'echo "\$[A-Z]+"'),
        ('echo "${variable}"', r'echo "\$\{[A-Z]+\}"'),
        ("cat \"$dir/a.log\"", r'cat "logs/\w+\.log"'),
        ("echo ${filename} | rev", r"echo [^\s$]+ \| rev"),
        ("echo $FILE", r"echo [^\s$]+"),
        ("cat `echo $file`", r"cat `echo [^\s$]+`"),
        ("sort --output=/no/dir/x f", r"sort --output=[\w./]*x documents/\w+\.txt"),
        ("grep -f words text.txt", r"grep -f documents/\w+\.txt documents/\w+\.txt"),
        ("cp -r srcdir target", r"cp -r (\.|documents|data|logs|scripts) target"),
        ("while read l; do cat foo; done < list", r"while read l; do cat (\S+); done < (?!\1)\S+"),
        ("echo $(cat notes)", r"echo \$\(cat documents/\w+\.txt\)"),
        ("find . | xargs grep foo bar.txt", r"find . \| xargs grep foo documents/\w+\.txt"),
        ("find <path> -name '*.txt'", r"find \S+ -name '\*\.txt'"),
        ("chown User:Group 'File'", r"chown (root|ubuntu):(root|users) \S+/\S+"),
        ("cat File|cut -f Number;ls $(dirname Path)", r"cat \S+\|cut -f \d+;ls \$\(dirname \S+\)"),
        ("touch -d YYYY-MM-DD new.txt", r"touch -d 202\d-\d\d-\d\d new\.txt"),
    ],
)  # fmt: skip
def test_what_is_not_there_becomes_what_is(text: str, pattern: str) -> None:
    for made in named(text):
        assert re.fullmatch(pattern, made), made


@pytest.mark.parametrize(
    "text",
    [
        "mkdir -p a/b && touch a/b/c && ls -R a",
        "echo x > out.csv; sort out.csv",
        "cp data/users.csv b; mv b c; rm c",
        "ln -s data d; ls d/ids.txt",
        "for n in one two; do mkdir dir_$n; done; ls -d dir_*; rmdir dir_one",
        "touch r1.x r2.x; ls r?.x",
        "wget http://localhost/x.sh; chmod 777 x.sh",
        "dd if=documents/notes.txt of=copy bs=8; wc -c copy",
        "cd data; wc -l users.csv",
        "(cd /tmp && ls)",
        "find . -type d -name logs",
        "find . -type d -path logs",
    ],
)
def test_what_an_input_makes_and_where_it_goes_stays(text: str) -> None:
    assert one(text) == text


def test_names_hold_wherever_an_input_goes() -> None:
    for made in named("cd /tmp; cat nothing.csv; ls *.zzz"):
        match = re.fullmatch(r"cd /tmp; cat (\S+); ls (\S+)", made)
        assert match, made
        assert match[1] in (f"{HOME}/data/data.csv", f"{HOME}/data/users.csv")
        assert match[2].startswith(f"{HOME}/")
    for made in named("dd if=nothing.csv of=/no/dir/x"):
        assert re.fullmatch(r"dd if=data/(data|users)\.csv of=[\w./]*x", made), made


def test_what_a_history_made_is_there() -> None:
    line = {"input": "cat a/x b.csv", "history": ["mkdir a", "cd a", "touch x"], "id": "x"}
    system = cast("System", SimpleNamespace(declaration=SimpleNamespace(start_directory=HOME)))
    (made,) = adapt_inputs([question_of(line, 1, "test")], system).questions
    assert made.history == tuple(line["history"])
    assert re.fullmatch(rf"cat a/x {HOME}/data/\w+\.csv", made.input), made.input


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sudo rm documents/notes.txt", "rm documents/notes.txt"),
        ("sudo -u root -E ls | sudo tee x", "ls | tee x"),
        ("find . -exec sudo rm {} \\;", "find . -exec rm {} \\;"),
        ("ls | xargs -0 sudo chmod 644", "ls | xargs -0 chmod 644"),
        ("echo sudo make me a sandwich", "echo sudo make me a sandwich"),
        ("sudo", "! empty"),
    ],
)
def test_sudo_is_taken_off(text: str, expected: str) -> None:
    assert one(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rm -rf /", "dangerous: it removes the system"),
        ("sudo rm -rf / --no-preserve-root", "dangerous: it removes the system"),
        ("find / -delete", "dangerous: it removes the system"),
        ("chmod -R 777 /", "dangerous: it changes the whole system"),
        ("dd if=/dev/zero of=/dev/sda bs=1M count=1", "dangerous: it writes to a disk"),
        ("cat x > /dev/sdb", "dangerous: it writes to a disk"),
        ("mkfs.ext4 /dev/sdb1", "dangerous: it writes to a disk"),
        ("ls; shutdown -h now", "dangerous: it shuts the machine down"),
        (":(){ :|:& };:", "dangerous: a fork bomb"),
        ("ping localhost", "endless: ping without a count"),
        ("yes | rm -i x", "endless: yes"),
        ("tail -f logs/app.log", "endless: tail follows a file"),
        ("while true; do date; done", "endless: a loop"),
        ("watch df -h", "endless: watch"),
        ("cat /dev/urandom | tr -dc a-z", "endless: it reads a device"),
        ("sleep 1m", "endless: it sleeps for more than 5 seconds"),
        ("cat $KEY_FILES_OF_MINE_$x y | echo $z", "unresolved: a variable that is never set"),
        ("find . -size +Size", "unresolved: a placeholder inside a word"),
        ("tar cf a.tar ...", "unresolved: an ellipsis"),
        ("mail <address of yours>", "unresolved: words in angle brackets"),
        ("cat " + "x" * 5000, "too long"),
        ("bomb() { bomb | bomb & }; bomb", "dangerous: a fork bomb"),
        ("cut '-f Number' x", "unresolved: a placeholder inside a word"),
    ],
)
def test_what_is_set_aside_has_a_reason(text: str, reason: str) -> None:
    assert one(text) == f"! {reason}"


@pytest.mark.parametrize(
    "text",
    [
        "ping -c 3 localhost",
        "yes | head -n 3",
        "head -c 10 /dev/urandom | od",
        "tail -n 3 logs/app.log",
        "dd if=/dev/zero of=x bs=1 count=3",
        "while true; do break; done",
        "sleep 0.5",
        "sleep 1.2.3",  # an invalid time for sleep
        "rm -rf documents",
        "ls -l /dev/zero",
    ],
)
def test_what_ends_and_harms_nothing_is_kept(text: str) -> None:
    assert one(text) == text


def test_equal_words_become_equal_ones_and_others_others() -> None:
    for made in named("cp a.csv /tmp/; sort a.csv | diff - b.csv"):
        match = re.fullmatch(r"cp (\S+) /tmp/; sort (\S+) \| diff - (\S+)", made)
        assert match, made
        assert match[1] == match[2] != match[3]


def test_a_history_has_the_same_words() -> None:
    line = {"input": "cat foo.csv", "history": ["sudo head foo.csv"], "id": "x", "kind": "mine"}
    system = cast("System", SimpleNamespace(declaration=SimpleNamespace(start_directory=HOME)))
    (made,) = adapt_inputs([question_of(line, 1, "test")], system).questions
    assert made.history == (made.input.replace("cat", "head"),)
    assert (made.cwd, made.kind, made.extra) == (HOME, "mine", {"template": "x"})


def test_several_of_one_template_differ_and_there_are_no_more_than_choices() -> None:
    found = adapted("ls -a", "cat a.csv b.csv", count=5)
    assert [each.id for each in found.questions] == ["1", "2", "2+1"]
    assert {each.input for each in found.questions} == {
        "ls -a", "cat data/data.csv data/users.csv", "cat data/users.csv data/data.csv",
    }  # fmt: skip
    assert len(adapted("ls -a", "ls", count=1).questions) == 1
    with pytest.raises(UsageError, match="count 0: expected at least 1"):
        adapted("ls", count=0)


def test_equal_inputs_are_made_once() -> None:
    found = adapted("ls -a", "sudo ls -a", "  ")
    assert len(found.questions) == 1
    assert found.reasons == {"duplicate of an earlier input": 1, "empty": 1}


def test_names_depend_on_seed_and_id_alone() -> None:
    assert [each.input for each in adapted("ls", "cat foo").questions][1] == (
        adapted("#x\nls", "cat foo").questions[-1].input
    )
    assert len(set(named("cat foo bar baz"))) > 1


def test_values_are_quoted_as_shell_text(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**TOKENS, "File": ("a b.txt", "-x", "new\nline", "it's")}
    odd = SystemNames(files, THERE.__contains__, RELATIVE, HOME, HOME)
    monkeypatch.setattr(SystemNames, "of", classmethod(lambda cls, system, cwd: odd))
    assert set(named("cat File")) == {"cat 'a b.txt'", "cat ./-x", "cat 'it'\"'\"'s'"}


def test_any_text_is_adapted_or_set_aside() -> None:
    signs = ["'", '"', "$", "(", ")", "{", "}", "<", ">", "|", "&", ";", "\\", "\n", "é", "\udcff",
             " ", "*", "sudo ", "cat ", "x.txt", "$f", "[File]", "<file>", "for "]  # fmt: skip
    draw = random.Random(7)
    for _ in range(300):
        text = "".join(draw.choices(signs, k=draw.randint(1, 12)))
        found = adapted(text)
        assert len(found.questions) + len(found.aside) == 1


LONG = (
    "a",
    "cat ",
    '"',
    "$",
    "$(",
    "(",
    "x ",
    "cat x|",
    "<a ",
    "script",
    "a:",
    "a/",
    "*a",
    "sudo ",
)


@pytest.mark.parametrize("text", by_day(LONG, 4))
def test_an_input_as_long_as_may_be_is_done_soon(text: str) -> None:
    for before in ("", "chown ", "ethtool eth1"):
        long = (before + text * 4096)[:4096]
        found = adapted(long)
        assert len(found.questions) + len(found.aside) == 1


def test_places_are_where_the_words_are() -> None:
    text = 'e=1 sudo -u x cat "$f" é.txt >out 2>&1; for i in a b; do tail $i; done'
    places = read_places(text)
    assert [text[word.start : word.end] for word in places.words] == [
        word.text for word in places.words
    ]
    assert {word.text: word.sign for word in places.words}["out"] == ">"
    assert {name for name, _ in places.uses} == {"f", "i"}
    assert places.sets == {"e", "i"}
    assert [text[start:end] for start, end in places.sudo] == ["sudo -u x "]


def test_the_tables_name_what_exists_and_are_documented() -> None:
    page = DOCS.read_text()
    for name, entry in placeholder_table().items():
        assert set(entry) <= {"about", "also", "tokens", "values"}
        assert bool(entry.get("tokens")) != bool(entry.get("values")), name
        assert set(entry.get("tokens", ())) <= set(SYSTEM_TOKENS), name
        assert f"| `{name}` | {entry['about']} |" in page
    names = SystemNames(TOKENS, THERE.__contains__, RELATIVE, HOME, HOME)
    for role in OF_OPERANDS - {"output", "target"}:
        assert names.fits(role, "-")
        assert not names.fits(role, "$x")


def test_programs_without_a_grammar_are_told_like_those_with_one() -> None:
    assert set(_WITHOUT_GRAMMAR).isdisjoint(names_of_grammars())
    for text, roles in {
        "egrep x f g": {"f": "path", "g": "path"},
        "sed -n p f": {"f": "file"},
        "cp -t d a b": {"d": "directory", "a": "path", "b": "path"},
        "cp -r a b": {"a": "tree", "b": "new"},
        "mkdir -p a/b": {"a/b": "made"},
        "dd if=a of=b bs=1": {"a": "file", "b": "new"},
        "chmod --reference=a b": {"a": "path", "b": "path"},
        "truncate -s 0 a": {"a": "new"},
        "env A=b cat f": {"f": "file"},
        "find d -name x | xargs rm": {"d": "directory"},
        "frobnicate a b": {},
    }.items():
        found = roles_of(read_places(text))
        assert {word: role for word, role in found.items() if role not in ("glob", "text")} == roles


@pytest.mark.parametrize(
    "text",
    [
        "printf -v name '%s' x; echo $name", "printf -vname x; echo $name",
        "printf -v 'name[1]' x; echo ${name[1]}", "read -a name <<< 'a b'; echo $name",
        "read -r -p 'who? ' name <<< x; echo $name", "mapfile -t lines < notes.txt",
        "getopts ab: opt -a; echo $opt", "declare -n other=name; name=1; echo $other",
        "unset -v name", "export -n name", "printf -v",
    ],
)  # fmt: skip
def test_names_of_variables_stay(text: str) -> None:
    assert one(text).replace("documents/", "").startswith(text.split("<")[0])


@pytest.mark.parametrize(
    "text",
    [
        "command read name <<< x; echo \"$name\"",
        "builtin printf -v name x; echo $name",
        "\"printf\" -v 'name' x; echo $name",
        "let n=1+2 m++; echo $n $m",
        "(( n = 3 )); echo $n",
        "(( i++ || --n )); echo $i $n",
        "for ((i=0; i<3; i++)); do echo $i; done",
        "echo $((n += 3)); echo $n",
        "exec {file}> out.txt; echo x >&$file",
        "coproc cat; echo $COPROC_PID",
        "coproc name { cat; }; echo $name_PID",
        "echo ${file:=x}; echo $file",
        "echo ${dir=x}; echo $dir",
        "sleep 0.1 & wait -n -p pid; echo $pid",
        "[[ ab =~ (a) ]]; echo $BASH_REMATCH",
        "mapfile < documents/notes.txt; echo $MAPFILE",
        "select file in a b; do echo $file; done <<< 1",
        "find . -type f | while read File; do echo \"$File\"; done",
        "for Word in a b; do echo $Word; done",
        "Date=$(date); echo $Date",
        "read -r Type Size <<< 'a b'; echo $Type $Size",
        "file=x; cat <<EOF\n$file\nEOF",
        "cat <<'EOF'\n$file\nEOF",
        "cat <<EOF\n\\$file\nEOF",
    ],
)  # fmt: skip
def test_variables_that_an_input_sets_in_any_way_stay(text: str) -> None:
    assert list(named(text)) == [text] * 12


@pytest.mark.parametrize(
    "text",
    ["(( n == 3 )); echo $x", "let n; echo $x", "cat <<EOF\n$x\nEOF", "printf '%s' -v x; echo $x"],
)
def test_variables_that_nothing_sets_are_left_over(text: str) -> None:
    assert one(text) == "! unresolved: a variable that is never set"


@LARGER
def test_every_role_of_an_operand_or_a_value_is_adapted_without_a_fault() -> None:
    """There is an input for each option with a value, and for each grammar's operands."""
    texts = []
    for name in names_of_grammars()[:: scaled(12, 1)]:
        for grammar in load_grammars([name]):
            command = grammar.command_tokens[0]
            values = [option for option in grammar.options if option.value is not None]
            texts += [f"{command} {option.names[0]} some_value word other" for option in values]
            texts.append(f"{command} one two three")
    found = adapted(*dict.fromkeys(texts))
    assert len(found.questions) + len(found.aside) == len(set(texts)) > scaled(40, 500)
