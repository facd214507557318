"""The parts of a memory: canonical forms, facts, rewriting, the on-disk index, the trees."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shioenv.bash.words import split_words
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.patch import ContextPatch
from shioenv.domain.runner import State
from shioenv.errors import ModelError
from shioenv.grammar.library import load_grammar, names_of_grammars
from shioenv.grammar.parse import InputParser
from shioenv_model.memory.facts import format_bytes, operand
from shioenv_model.memory.forms import UNKNOWN, UNKNOWN_LONG, Form, Forms
from shioenv_model.memory.index import ROW, Index
from shioenv_model.memory.index_writer import write_index
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.rank import (
    FEATURES,
    PAIR,
    WEIGHTS,
    Ranker,
    command_difference,
    contradicts,
    load_ranker,
    untrained,
)
from shioenv_model.memory.rewrite import CONTENTS, Kept, Taken, fillings, replace_words
from shioenv_model.memory.world import World
from shioenv_model.training.memory_training import (
    _Asked,
    _keep_files,
    _take_files,
    arrays_of,
    learn,
)
from support.small_world import HOME, entry, small_memory, small_world, taken

FORMS = Forms()


def form_of(text: str, state: State) -> Form | None:
    return FORMS.form(split_words(text), state)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ls -la", "ls -a --all -l"),
        ("ls -l a", "ls a -l"),
        ("head -n5 a.txt", "head --lines=5 a.txt"),
        ("head -n 5 a.txt", "head --lin 5 'a.txt'"),
        ("wc -l *.txt", "wc --lines a.txt b.txt"),
        ("cat ~/x", 'cat "$HOME/x"'),
        ("echo {1..3}", "echo 1 2 3"),
        ("cut -d: -f1 a.txt", "cut -d : -f 1 a.txt"),
        ("cut -d' ' -f2 a.txt", "cut -d ' ' --fields=2 a.txt"),
        ("sort -k2 a.txt", "sort --key=2 a.txt"),
        ("od -An -tx1 a.txt", "od -A n -t x1 a.txt"),
        ("paste -d '' a.txt", "paste --delimiters= a.txt"),
    ],
)
def test_two_spellings_have_one_form(first: str, second: str) -> None:
    state = small_world().state()
    forms = [form_of(text, state) for text in (first, second)]
    assert forms[0] is not None
    assert forms[1] is not None
    assert set(forms[0].options) == set(forms[1].options)
    assert forms[0].operands == forms[1].operands
    assert forms[0].utility == forms[1].utility


@pytest.mark.parametrize("name", sorted(names_of_grammars()))
def test_a_value_is_one_whether_it_stands_by_itself(name: str) -> None:
    """Also where a production of the grammar writes both as one word."""
    grammar = load_grammar(name)
    splitter = InputParser([grammar]).splitter(grammar)
    state = small_world().state()
    for word in splitter.literals:
        spec = splitter.shorts.get(word[1:2])
        short = len(word) > 2 and word[1] != "-" and word[1:] not in splitter.words
        if not short or spec is None or spec.value != "required" or not word[2:].isalnum():
            continue
        forms = [
            form_of(f"{name.partition('-')[0]} {text}", state)
            for text in (word, f"{word[:2]} {word[2:]}")
        ]
        assert forms[0] == forms[1], word


def test_what_a_program_does_not_have_is_no_option_of_its_own() -> None:
    state = small_world().state()
    for text, option in (
        ("ls -y", (UNKNOWN, "y")),
        ("ls --nosuch", (UNKNOWN_LONG, "--nosuch")),
    ):
        form = form_of(text, state)
        assert form is not None
        assert form.options == (option,)


def test_nothing_is_run_to_know_a_word() -> None:
    form = form_of("echo $(date) `id` <(ls)", small_world().state())
    assert form is not None
    assert form.operands == ("$(date)", "`id`", "<(ls)")


def test_an_empty_word_is_an_operand() -> None:
    form = form_of("ls '' a.txt", small_world().state())
    assert form is not None
    assert form.operands == ("", "a.txt")


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("a.txt", "f"),
        ("sub", "d"),
        ("sub/", "d"),
        ("link", "l"),
        ("gone.txt", "m"),
        ("sub/gone", "m"),
        ("nowhere/gone", "M"),
        ("12", "N"),
        ("*.c", "G"),
        ("http://h/x", "U"),
        ("10.0.0.1", "H"),
        ("a b!", "W"),
        ("", "W"),
    ],
)
def test_operands_have_the_class_that_they_have_in_the_state(word: str, kind: str) -> None:
    assert operand(word, small_world().state()).kind == kind


@pytest.mark.parametrize("cwd", [HOME, "/", f"{HOME}/sub", "/usr/bin"])
def test_a_directory_holds_the_same_wherever_names_are_told_from(cwd: str) -> None:
    untouched = small_world().state(cwd)
    state = replace(untouched, context=untouched.before)
    for path in ("/", "/home", HOME, f"{HOME}/sub", "/usr", "/tmp", f"{HOME}/a.txt", "/nowhere"):
        assert state.names(path) == untouched.names(path)
    assert state.names(HOME) == [
        *("a.txt", "b.txt", "link", "other", "run.sh", "sub"),
    ]
    assert state.names("/home") == ["ubuntu"]
    assert state.names("/") == ["home", "tmp", "usr"]


def test_what_an_earlier_input_made_is_there() -> None:
    made = ContextPatch((("a", "/fs/gone.txt", entry(3)),))
    state = small_world().state().after("touch gone.txt", Behavior(0, b"", made))
    assert operand("gone.txt", state).kind == "f"
    assert form_of("ls g*", state).operands == ("gone.txt",)  # type: ignore[union-attr]


def filled(ours: str, theirs: str, kept: Kept, state: State | None = None) -> dict[int, Kept]:
    state = state or small_world().state()
    before = state.before.document["fs"]
    was = small_world().state().before.document["fs"]
    return dict(fillings(taken(ours, state), taken(theirs), kept, before, was))


def test_words_paths_and_facts_change_places() -> None:
    kept = Kept(0, "-rw-r--r-- 1 root root 6 Oct 16 19:43 a.txt\n", "[]")
    found = filled("ls -l b.txt", "ls -l a.txt", kept)
    assert found[0].output == "-rw-r--r-- 1 root root 6 Oct 16 19:43 b.txt\n"
    assert found[1].output == "-rw-r--r-- 1 root root 9 Oct 16 19:43 b.txt\n"


def test_a_word_is_exchanged_as_a_word_and_once() -> None:
    kept = Kept(0, "a b ab a.b\n", "[]")
    assert filled("echo b a", "echo a b", kept)[0].output == "b a ab a.b\n"


@given(
    st.text(alphabet="ab./-~ \n'é", max_size=40),
    st.dictionaries(st.text(alphabet="ab./-é", min_size=1, max_size=3), st.text("xy", max_size=3)),
)
def test_words_are_exchanged_as_one_pattern_would_do_it(text: str, changed: dict[str, str]) -> None:
    def word(old: str) -> str:
        begin = r"(?<![\w.\-/~@%+])" if re.match(r"[\w.\-/~@%+]", old) else ""
        end = r"(?![\w@%+]|[.\-/]\w)" if re.search(r"[\w.\-/~@%+]$", old) else ""
        return f"{begin}{re.escape(old)}{end}"

    pattern = "|".join(map(word, sorted(changed, key=len, reverse=True))) or "(?!)"
    assert replace_words(text, changed) == re.sub(pattern, lambda match: changed[match[0]], text)


def test_a_mistaken_option_is_named() -> None:
    kept = Kept(2, "ls: invalid option -- 'y'\n", "[]")
    assert filled("ls -Y a.txt", "ls -y", kept)[0].output == kept.output.replace("y", "Y")
    kept = Kept(2, "ls: unrecognized option '--nosuch'\n", "[]")
    assert "--other" in filled("ls --other", "ls --nosuch", kept)[0].output


def test_words_that_are_printed_are_ours() -> None:
    found = filled("echo one two three", "echo hi", Kept(0, "hi\n", "[]"))
    assert found[0].output == "one two three\n"


def test_a_patch_is_of_our_files() -> None:
    kept = Kept(0, "", json.dumps([["a", "/fs/sub~1a.txt", entry(6)], ["r", "/fs/a.txt"]]))
    found = filled("mv b.txt other", "mv a.txt sub", kept)[0]
    operations = json.loads(found.patch)
    assert operations[0][:2] == ["a", "/fs/other~1b.txt"]
    assert operations[0][2]["size"] == 9
    assert operations[1] == ["r", "/fs/b.txt"]


def test_a_number_may_name_a_file() -> None:
    made = Kept(0, "", json.dumps([["a", "/fs/gone", entry(4096, "drwxr-xr-x")]]))
    (kept,) = filled("mkdir 7", "mkdir gone", made).values()
    assert json.loads(kept.patch) == [["a", "/fs/7", entry(4096, "drwxr-xr-x")]]


def test_missing_directories_above_are_ours_too() -> None:
    operations = [["a", f"/fs/{name}", entry(4096, "drwxr-xr-x")] for name in ("x", "x~1y")]
    kept = filled("mkdir -p p/q", "mkdir -p x/y", Kept(0, "", json.dumps(operations)))[0]
    assert [each[1] for each in json.loads(kept.patch)] == ["/fs/p", "/fs/p~1q"]


def test_a_directory_goes_with_what_is_in_it() -> None:
    made = [("a", path, entry(1)) for path in ("/fs/other~1x", "/fs/sub~1deep")]
    state = small_world().state().after("", Behavior(0, b"", ContextPatch(tuple(made))))
    gone = Kept(0, "", '[["r","/fs/other"],["r","/fs/other~1x"]]')
    told = filled("rm -r sub", "rm -r other", gone, state)[0]
    assert sorted(each[1] for each in json.loads(told.patch)) == [
        *("/fs/sub", "/fs/sub~1deep", "/fs/sub~1inner.txt"),
    ]
    empty = filled("rmdir sub", "rmdir other", Kept(0, "", '[["r","/fs/other"]]'), state)[0]
    assert empty.patch == '[["r","/fs/sub"]]'


def test_what_is_set_of_a_whole_directory_is_set_of_all_of_ours() -> None:
    files = {**small_world().state().before.document["fs"], "other/y": entry(2, owner="bob")}
    state = small_world().state()
    operations = [["=", f"/fs/{name}/owner", "bob"] for name in ("other", "other~1x")]
    kept = Kept(0, "", json.dumps(operations))
    ours, theirs = taken("chown -R alice sub", state), taken("chown -R bob other", state)
    told = dict(fillings(ours, theirs, kept, files, files))[0]
    assert sorted(json.loads(told.patch)) == [
        ["=", "/fs/sub/owner", "alice"],
        ["=", "/fs/sub~1inner.txt/owner", "alice"],
    ]
    # another entry of the recorded directory keeps its owner: the change was not recursive
    partly = {**files, "other/y": entry(2)}
    told = dict(fillings(ours, theirs, kept, partly, partly))[0]
    assert ["=", "/fs/sub~1inner.txt/owner", "alice"] not in json.loads(told.patch)


def test_the_parts_of_a_word_change_places() -> None:
    operations = [["=", "/fs/a.txt/group", "users"], ["=", "/fs/a.txt/owner", "bob"]]
    kept = Kept(0, "", json.dumps(operations))
    told = filled("chown ann:staff b.txt", "chown bob:users a.txt", kept)[0]
    assert json.loads(told.patch) == [
        ["=", "/fs/b.txt/group", "staff"],
        ["=", "/fs/b.txt/owner", "ann"],
    ]


def test_a_file_that_takes_the_place_of_another_one_stays_what_it_is() -> None:
    """As with `mv`: the recorded files differ only in size, the new ones in owner and time."""
    files = dict(small_world().state().before.document["fs"])
    size = files["a.txt"]["size"]
    files["b.txt"] = {**files["b.txt"], "size": size + 1}
    kept = Kept(0, "", json.dumps([["=", "/fs/b.txt/size", size], ["r", "/fs/a.txt"]]))
    files["run.sh"] = entry(6, "-rwxr-xr-x", owner="bob", time="08:00")
    document = {**small_world().state().before.document, "fs": files}
    state = World(Context(document), small_world().contents).state()
    ours, theirs = taken("mv run.sh sub/inner.txt", state), taken("mv a.txt b.txt", state)
    files["sub/inner.txt"] = entry(3)
    told = dict(fillings(ours, theirs, kept, files, files))[0]
    assert json.loads(told.patch) == [
        ["=", "/fs/sub~1inner.txt/perms", "-rwxr-xr-x"],
        ["=", "/fs/sub~1inner.txt/owner", "bob"],
        ["=", "/fs/sub~1inner.txt/size", 6],
        ["=", "/fs/sub~1inner.txt/time", "08:00"],
        ["r", "/fs/run.sh"],
    ]


def test_a_pipe_that_has_a_name_is_a_file() -> None:
    state = replace(small_world().state(), written={"/dev/fd/63": b"from a pipe\n"})
    found = operand("/dev/fd/63", state)
    assert (found.kind, found.content) == ("f", b"from a pipe\n")
    assert operand("/dev/fd/63", small_world().state()).kind in "mM"


def test_what_cannot_be_known_of_a_word_is_told() -> None:
    state = small_world().state()
    for text, guessed in (("echo ${HOME@z}", True), ("echo $HOME '$x' *.none", False)):
        form = form_of(text, state)
        assert form is not None
        assert form.guessed == guessed


def test_a_file_that_an_option_names_is_what_others_are_made_like() -> None:
    made = Kept(0, "", '[["=","/fs/b.txt/perms","-rwxr-xr-x"]]')
    patch = ContextPatch((("=", "/fs/sub/perms", "drwx--x--x"),))
    state = small_world().state().after("", Behavior(0, b"", patch))
    told = filled("chmod --reference=sub a.txt", "chmod --reference=run.sh b.txt", made, state)
    assert json.loads(told[0].patch) == [["=", "/fs/a.txt/perms", "-rwx--x--x"]]


def test_what_changed_of_a_file_is_told_of_it_now() -> None:
    patch = ContextPatch((("=", "/fs/a.txt/perms", "----------"),))
    state = small_world().state().after("chmod 0 a.txt", Behavior(0, b"", patch))
    kept = Kept(0, "-rw-r--r-- 1 root root 6 Oct 16 19:43 a.txt\n", "[]")
    assert filled("ls -l a.txt", "ls -l a.txt", kept, state)[1].output.startswith("---------- 1")


def test_a_size_is_shown_to_people_as_programs_round_it() -> None:
    sizes = (0, 1023, 1024, 1025, 10_240, 35_149, 1_048_576)
    assert [format_bytes(size, 1024) for size in sizes] == [
        *("0", "1023", "1.0K", "1.1K", "10K", "35K", "1.0M"),
    ]
    assert [format_bytes(size, 1000) for size in sizes] == [
        *("0", "1.1k", "1.1k", "1.1k", "11k", "36k", "1.1M"),
    ]


def test_bash_names_the_first_letter_of_what_is_no_option() -> None:
    said = "bash: line 1: cd: -Y: invalid option\n"
    told = filled("cd -r/R", "cd -Y", Kept(2, said, "[]", is_error=True))
    assert told[0].output == said.replace("-Y", "-r")


def test_addresses_of_one_host_are_alike() -> None:
    ours = taken("curl http://h/a")
    others = ("curl http://h/b", "curl http://h", "curl http://g/a", "curl https://h/a")
    near = [command_difference(ours, taken(each))[PAIR.index("other addresses")] for each in others]
    assert near == [0.25, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "said", "wrong"),
    [
        ("cat a.txt", "cat: a.txt: No such file or directory\n", True),
        ("cat gone", "cat: gone: No such file or directory\n", False),
        ("cat a.txt", "cat: b/a.txt: No such file or directory\n", False),
        ("mkdir gone", "mkdir: cannot create directory \u2018gone\u2019: File exists\n", True),
        ("mkdir sub", "mkdir: cannot create directory \u2018sub\u2019: File exists\n", False),
        ("cat a.txt", "cat: a.txt: Is a directory\n", True),
        ("cat sub", "cat: sub: Is a directory\n", False),
        ("cd sub", "bash: line 1: cd: sub: Not a directory\n", True),
        ("tar -C sub", "tar: sub: Cannot open: No such file or directory\n", True),
        ("cat a.txt", "a.txt: No such file or directory is what it holds\n", False),
    ],
)
def test_what_the_tree_shows_to_be_wrong(text: str, said: str, wrong: bool) -> None:
    state = small_world().state()
    assert contradicts(Kept(1, said, "[]"), taken(text, state), state) == wrong


def test_standard_input_is_never_missing() -> None:
    state = replace(small_world().state(), stdin=b"a\nb\n")
    ours = taken("sort - a.txt", state)
    said = "sort: cannot read: -: No such file or directory\n"
    assert contradicts(Kept(2, said, "[]", is_error=True), ours, state)
    said = said.replace("-:", "a-:")
    assert not contradicts(Kept(2, said, "[]", is_error=True), ours, state)


def test_what_is_so_already_is_no_change() -> None:
    kept = Kept(0, "", '[["=","/fs/a.txt/perms","-rwxr-xr-x"]]')
    assert json.loads(filled("chmod 755 run.sh", "chmod 755 a.txt", kept)[0].patch) == []
    assert json.loads(filled("chmod 755 b.txt", "chmod 755 a.txt", kept)[0].patch) != []


def test_lines_of_their_file_are_lines_of_ours() -> None:
    found = filled("head -n 2 b.txt", "head -n 1 a.txt", Kept(0, "one\n", "[]"))
    assert found[CONTENTS].output == "x\ny\n"
    found = filled("grep z b.txt", "grep o a.txt", Kept(0, "one\ntwo\n", "[]"))
    assert CONTENTS not in found or found[CONTENTS].output == "z one\n"


def test_standard_input_stands_for_a_file() -> None:
    from dataclasses import replace

    state = replace(small_world().state(), stdin=b"1\n2\n3\n")
    found = filled("tail -n 1", "tail -n 1 b.txt", Kept(0, "z one", "[]"), state)
    assert found[CONTENTS].output == "3\n"
    found = filled("wc -l", "wc -l b.txt", Kept(0, "3 b.txt\n", "[]"), state)
    assert found[0].output == "3\n"


def test_a_hyphen_names_standard_input() -> None:
    state = replace(small_world().state(), stdin=b"mine\n")
    kinds = [each.kind for each in taken("cat - a.txt", state).operands]
    assert kinds == ["x", "f"]
    assert [each.kind for each in taken("cat - a.txt").operands] != kinds


def test_a_row_is_small_and_finds_the_very_input(tmp_path: Path) -> None:
    assert ROW.itemsize <= 60 - 16  # what is left is for the places of behaviors
    kept = Kept(1, "é\udcff\n", "[]", ("é", "\udcff\n"))
    rows: list[tuple[str, str, Taken | None, Kept]]
    rows = [(HOME, text, taken(text), kept) for text in ("ls a.txt", "ls -l sub", "wc a.txt")]
    rows.append((HOME, "ls | wc", None, Kept(0, "5\n", "[]")))
    write_index(tmp_path, rows)
    index = Index(tmp_path)
    assert len(index) == 4
    assert [each.text for each in index.exact(HOME, "ls | wc")] == ["ls | wc"]
    assert index.exact("/tmp", "ls | wc") == []
    assert index.behavior(index.exact(HOME, "ls a.txt")[0].behavior) == kept
    near = [index.entry(number).text for number in index.near(taken("ls b.txt"), 5)]
    assert near == ["ls a.txt", "ls -l sub"]
    assert index.near(taken("df"), 5) == []


def test_large_behaviors_are_compressed_and_small_ones_are_not(tmp_path: Path) -> None:
    made = [Kept(0, f"{number} " * 400, "[]") for number in range(40)] + [Kept(0, "small\n", "[]")]
    rows: list[tuple[str, str, Taken | None, Kept]]
    rows = [(HOME, f"echo {n}", taken(f"echo {n}"), kept) for n, kept in enumerate(made)]
    write_index(tmp_path, rows)
    index = Index(tmp_path)
    assert [index.behavior(number) for number in range(41)] == made
    stored = (tmp_path / "behaviors.zst").read_bytes()
    assert b"small\n" in stored
    assert len(stored) < sum(map(len, index.behaviors())) / 4
    (tmp_path / "behaviors.zst").write_bytes(stored[:9] + b"\xff" * 9 + stored[18:])
    with pytest.raises(ModelError, match=r"behaviors\.zst is damaged"):
        Index(tmp_path).behavior(0)


def test_records_are_added_to_an_index_without_parsing_it_again(tmp_path: Path) -> None:
    old, new = ["ls a.txt", "wc a.txt", "ls -l"], ["cat a.txt", "ls sub", "ls -l"]
    rows = [
        [(HOME, text, taken(text), Kept(0, f"{when} {text} " * 40, "[]")) for text in texts]
        for when, texts in (("old", old), ("new", new))
    ]
    rows[1].append(("/tmp", "ls -l", taken("ls -l"), Kept(0, "elsewhere\n", "[]")))
    write_index(tmp_path / "base", rows[0])
    write_index(tmp_path / "more", rows[1], Index(tmp_path / "base"))
    write_index(tmp_path / "whole", [*rows[0], *rows[1]])
    more, whole = Index(tmp_path / "more"), Index(tmp_path / "whole")
    assert [*more.texts()] == [*whole.texts()]
    for index in (more, whole):
        found = index.exact(HOME, "ls -l")
        assert [index.behavior(each.behavior).output[:6] for each in found] == ["old ls"]
    for number in range(len(whole)):
        one, other = more.entry(number), whole.entry(number)
        assert more.behavior(one.behavior) == whole.behavior(other.behavior)
    assert more.near(taken("ls b.txt"), 5) == whole.near(taken("ls b.txt"), 5)


def test_a_first_look_counts_options_and_operands(tmp_path: Path) -> None:
    texts = ["ls", "ls -l", "ls -la", "ls -la a.txt", "ls -la a.txt b.txt", "ls -R sub", "ls sub"]
    done = Kept(0, "", "[]")
    write_index(tmp_path, [(HOME, text, taken(text), done) for text in texts])
    index = Index(tmp_path)

    def near(text: str) -> list[str]:
        return [index.entry(number).text for number in index.near(taken(text), 3)]

    assert near("ls -l") == ["ls -l", "ls", "ls -la"]
    assert near("ls -al b.txt") == ["ls -la a.txt", "ls -la", "ls -la a.txt b.txt"]
    assert near("ls other")[:2] == ["ls sub", "ls -R sub"]


def test_an_index_of_other_forms_is_refused(tmp_path: Path) -> None:
    small_memory(tmp_path)
    head = json.loads((tmp_path / "index.json").read_text())
    (tmp_path / "index.json").write_text(json.dumps({**head, "forms": head["forms"] - 1}))
    with pytest.raises(ModelError, match="parses commands differently"):
        Memory(tmp_path)


def test_a_directory_without_a_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        Index(tmp_path)
    with pytest.raises(ModelError):
        Memory(tmp_path)


def test_a_world_is_what_was_written_down() -> None:
    world = World.from_json(small_world().to_json())
    assert world.read(f"{HOME}/a.txt") == b"one\ntw"
    assert world.state().names("sub") == ["inner.txt"]
    elsewhere = world.state("/tmp")
    assert elsewhere.before.document["cwd"] == "/tmp"
    assert elsewhere.entry(f"{HOME}/a.txt") is not None
    assert elsewhere.names(HOME) == world.state().names(".")


def test_a_distance_is_nothing_to_oneself_and_says_what_differs() -> None:
    assert not any(command_difference(taken("ls -l a.txt"), taken("ls -l a.txt")))
    differing = command_difference(taken("ls -l a.txt"), taken("ls -y b.txt sub"))
    named = {name for name, value in zip(PAIR, differing, strict=True) if value}
    assert {"operands more or fewer", "other files", "a mistaken option on one side"} <= named
    assert len(WEIGHTS) == len(PAIR)


def test_the_trees_are_those_that_were_learned(tmp_path: Path) -> None:
    from sklearn import ensemble

    rng = np.random.default_rng(7)
    rows = rng.normal(size=(400, 6)).round(1)
    right = (rows[:, 0] + rows[:, 1] * rows[:, 2] > 0.3) ^ (rng.random(400) < 0.1)
    trees = ensemble.HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(rows, right)
    none = np.zeros(0)
    Ranker(np.array(WEIGHTS), arrays_of(trees), none, none).save(tmp_path / "ranker.npz")
    ranker = load_ranker(tmp_path / "ranker.npz")
    expected = trees.predict_proba(rows)[:, 1]
    assert np.allclose(ranker.probability(rows), expected, atol=1e-5)
    assert expected.std() > 0.05


def test_the_trees_are_asked_node_by_node() -> None:
    leaf, none = -1, np.zeros(0)
    trees = {  # of the first the root looks at number 1, and what is left of it at number 0
        "feature": np.array([[1, 0, leaf, leaf, leaf], [leaf] * 5], dtype=np.int16),
        "threshold": np.array([[0.5, 2.0, 0.0, 0.0, 0.0], [0.0] * 5]),
        "left": np.array([[1, 3, 0, 0, 0], [0] * 5], dtype=np.int16),
        "right": np.array([[2, 4, 0, 0, 0], [0] * 5], dtype=np.int16),
        "value": np.array([[0, 0, 1, 2, 3], [0.25, 0, 0, 0, 0]], dtype=np.float32),
        "start": np.array([-1.0]),
    }
    rows = np.array([[9.0, 0.6], [2.0, 0.5], [2.1, 0.5]])
    made = Ranker(np.array(WEIGHTS), trees, none, none).probability(rows)
    assert made == pytest.approx(1 / (1 + np.exp(-(np.array([1, 2, 3]) + 0.25 - 1))))


@pytest.mark.parametrize("place", ["first", "last"])
def test_too_few_records_that_are_alike_leave_the_weights_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    memory = small_memory(tmp_path / "model")
    drawn = np.random.default_rng(3).permutation(len(memory.index)).tolist()
    asked = [number for number in drawn if memory.taken(number) is not None]
    alike = asked[0 if place == "first" else -1]

    def found(memory: Memory, number: int) -> _Asked:
        rows = int(number == alike)
        pairs, numbers = np.zeros((rows, len(PAIR))), np.zeros((rows, len(FEATURES)))
        return _Asked(pairs, numbers, np.ones(rows, dtype=bool))

    monkeypatch.setenv("SHIOENV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("shioenv_model.training.memory_training._asked", found)
    figures = learn(tmp_path / "model", len(asked), 3)
    assert (figures["questions"], figures["held_back"]) == (len(asked), 0)
    assert not (tmp_path / "model" / "ranker.npz").exists()


def test_what_another_release_learned_is_refused(tmp_path: Path) -> None:
    none = np.zeros(0)
    Ranker(np.zeros(3), untrained().trees, none, none).save(tmp_path / "ranker.npz")
    with pytest.raises(ModelError):
        load_ranker(tmp_path / "ranker.npz")


def test_a_confidence_is_what_such_answers_were_worth() -> None:
    ranker = Ranker(np.array(WEIGHTS), {}, np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.2, 0.9]))
    assert ranker.confidence(0.5) == pytest.approx(0.2)
    assert ranker.confidence(0.75) == pytest.approx(0.55)


def test_a_memory_answers_neighbours_with_their_facts(tmp_path: Path) -> None:
    memory = small_memory(tmp_path)
    answer = memory.answer("cat nothere")
    assert answer.behavior.output == b"cat: nothere: No such file or directory\n"
    assert answer.behavior.exit_code == 1
    assert memory.answer("cat  gone").behavior == memory.answer("cat gone").behavior
    assert memory.answer("cat gone").confidence > answer.confidence > 0
    found = memory.find("cat nothere")
    assert found.nearest[0][0] == "cat gone"


def test_an_answer_fits_its_state(tmp_path: Path) -> None:
    memory = small_memory(tmp_path)
    state = memory.world.state()
    removed = memory.answer("rm b.txt", state).behavior
    after = state.after("rm b.txt", removed)
    assert after.entry("b.txt") is None
    again = memory.answer("rm b.txt", after).behavior
    again.patch.apply(after.before.document)  # what does not fit raises


def test_kept_files_are_taken_whole_or_not_at_all(tmp_path: Path) -> None:
    made, kept_files, taken = tmp_path / "made", tmp_path / "kept", tmp_path / "taken"
    made.mkdir()
    taken.mkdir()
    (made / "index").write_bytes(b"content")
    assert not _take_files(kept_files, taken)
    _keep_files(made, kept_files)
    assert _take_files(kept_files, taken)
    assert (taken / "index").read_bytes() == b"content"
    (kept_files / "index").write_bytes(b"another")
    (taken / "index").unlink()
    assert not _take_files(kept_files, taken)
    assert not list(taken.iterdir())
