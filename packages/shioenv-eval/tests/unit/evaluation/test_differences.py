"""Differences between answers and the machine, and their reduction, without a sandbox."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shioenv.domain.behavior import Behavior
from shioenv.domain.inputs import Input
from shioenv.domain.patch import ContextPatch
from shioenv.domain.predictor import PatchLevel
from shioenv.domain.runner import State
from shioenv.system.store import IndexEntry
from shioenv_eval.conform.cases import DrawnCase
from shioenv_eval.conform.comparison import predictor_of
from shioenv_eval.conform.findings import CaseFinding, findings_of
from shioenv_eval.conform.shrink import Files, Reduced, Sides, less_input, shrunk
from shioenv_eval.conform.truth import CaseInput, TruthCase
from shioenv_eval.conform.verdicts import CaseVerdict, classes_of
from shioenv_eval.metrics import PredictorAnswer, Status

MESSAGE = b"cat: x: No such file or directory\n"
MIXED = Behavior(1, b"one\n" + MESSAGE, stdout=b"one\n", stderr=MESSAGE)
PLAIN = Behavior(0, b"one\n", stdout=b"one\n", stderr=b"")
MADE = ContextPatch((("a", "/fs/new", {"perms": "-rw-r--r--", "size": 0}),))
OTHER = ContextPatch((("a", "/fs/new", {"perms": "-rwxr-xr-x", "size": 0}),))


@pytest.mark.parametrize(
    ("truth", "answer", "classes"),
    [
        (PLAIN, Behavior(0, b"one\r\n"), set()),
        (PLAIN, Behavior(0, b"one"), {"output"}),
        (PLAIN, Behavior(3, b"one\n"), {"exit code"}),
        (PLAIN, Behavior(0, b"one\nwarning\n"), {"output"}),
        (MIXED, Behavior(1, b"one\n"), {"standard error"}),
        (MIXED, Behavior(1, b"cat: x: not found\none\n"), {"standard error"}),
        (MIXED, Behavior(1, MESSAGE), {"output"}),
        (MIXED, Behavior(0, b"two\n" + MESSAGE), {"output", "exit code"}),
    ],
)
def test_a_difference_has_classes(truth: Behavior, answer: Behavior, classes: set[str]) -> None:
    assert set(classes_of(truth, PredictorAnswer(behavior=answer), PatchLevel.FILES)) == classes


@pytest.mark.parametrize("status", [one for one in Status if one is not Status.ANSWERED])
def test_what_is_no_answer_differs_in_that_alone(status: Status) -> None:
    assert set(classes_of(PLAIN, PredictorAnswer(status, PLAIN), PatchLevel.FULL)) == {"answer"}


def test_a_level_says_how_much_of_a_patch_is_compared() -> None:
    truth = Behavior(0, b"", MADE, {"new": "1"})
    nothing, mode = (
        PredictorAnswer(behavior=Behavior(0, b"")),
        PredictorAnswer(behavior=Behavior(0, b"", OTHER)),
    )
    content = PredictorAnswer(behavior=Behavior(0, b"", MADE, {"new": "2"}))
    for level, differing in (
        (PatchLevel.OUTPUT, ()),
        (PatchLevel.FILES, (nothing,)),
        (PatchLevel.FULL, (nothing, mode, content)),
    ):
        for said in (nothing, mode, content):
            expected = {"patch"} if said in differing else set()
            assert set(classes_of(truth, said, level)) == expected


def test_a_file_that_one_side_moves_needs_no_digest_on_the_other() -> None:
    entry = {"perms": "-rw-r--r--", "size": 3}
    move = ContextPatch((("m", "/fs/a b", "/fs/c~1d"),))
    apart = ContextPatch((("r", "/fs/a b"), ("a", "/fs/c~1d", entry)))
    moved, written = Behavior(0, b"", move), Behavior(0, b"", apart, {"c/d": "1"})
    appended = Behavior(0, b"", move, {"c/d": "2"})
    other = Behavior(0, b"", move, {"x": "2"})
    for truth, answer, expected in (
        (moved, written, set()),
        (written, moved, set()),
        (written, other, {"patch"}),
        (other, written, {"patch"}),
        (appended, written, {"patch"}),
        (written, appended, {"patch"}),
    ):
        found = classes_of(truth, PredictorAnswer(behavior=answer), PatchLevel.FULL)
        assert set(found) == expected, (truth, answer)


class Scripted:
    """A machine that prints nothing, and another side whose output `said` returns."""

    def __init__(self, said: Callable[[str, tuple[str, ...]], bytes]) -> None:
        self._said = said
        self.unsteady: set[str] = set()
        self.asked: list[object] = []

    def behaviors(
        self, tasks: Iterable[tuple[int, CaseInput]]
    ) -> Iterator[tuple[int, Behavior | None]]:
        for number, one in tasks:
            self.asked.append(one.key)
            yield number, None if one.input.text in self.unsteady else Behavior(0, b"")

    def said(
        self, tasks: Iterable[tuple[int, tuple[str, State]]]
    ) -> Iterator[tuple[int, PredictorAnswer]]:
        for number, (text, state) in tasks:
            yield number, PredictorAnswer(behavior=Behavior(0, self._said(text, state.history)))


def left_of(both: Any, *words: str, history: tuple[str, ...] = ()) -> CaseInput:
    """Return the reduced input; `both` is a `Scripted`."""
    sides = Sides(both, both, PatchLevel.FULL)
    asked = CaseInput("/", history, Input.from_marked(words))
    sides.compare([asked])
    compared = sides.known[asked.key]
    assert compared is not None
    (left,) = shrunk(sides, [(Reduced(asked), compared.classes)], less_input)
    assert len(both.asked) == len({*both.asked}), "something was executed twice"
    return left.asked


def test_arguments_are_left_out_until_none_can_go() -> None:
    def said(text: str, history: tuple[str, ...]) -> bytes:
        return b"!" if {"-x", "b"} <= {*text.split()} else b""

    assert left_of(Scripted(said), "ls", "-a", "-x", "a", "b", "c").input.text == "ls -x b"


def test_commands_and_redirections_are_left_out() -> None:
    def said(text: str, history: tuple[str, ...]) -> bytes:
        return b"!" if "sort" in text.split() else b""

    words = ("cat", "a", "|", "sort", "-r", ">", "out", "&&", "ls")
    assert left_of(Scripted(said), *words).input.text == "sort"


def test_a_command_in_the_middle_is_left_out() -> None:
    def said(text: str, history: tuple[str, ...]) -> bytes:
        return b"!" if {"first", "last"} <= {*text.split()} else b""

    assert left_of(Scripted(said), "first", ";", "second", ";", "last").input.text == "first ; last"
    assert left_of(Scripted(said), "last", "|", "first", "|", "second").input.text == "last | first"


def test_lines_before_are_left_out() -> None:
    def said(text: str, history: tuple[str, ...]) -> bytes:
        return b"!" if "b" in history else b""

    assert left_of(Scripted(said), "ls", history=("a", "b", "c")).history == ("b",)


def test_what_the_machine_itself_disagrees_about_is_never_left() -> None:
    both = Scripted(lambda text, history: b"!")
    both.unsteady = {"ls", "ls a"}
    assert left_of(both, "ls", "a", "b", "c").input.text == "ls b"


def test_a_difference_stays_in_its_class() -> None:
    """Without an argument the difference is another one, which does not count."""

    class Failing(Scripted):
        def said(
            self, tasks: Iterable[tuple[int, tuple[str, State]]]
        ) -> Iterator[tuple[int, PredictorAnswer]]:
            for number, (text, _) in tasks:
                fails = text == "ls"
                yield number, PredictorAnswer(behavior=Behavior(int(fails), b"" if fails else b"!"))

    assert left_of(Failing(lambda text, history: b""), "ls", "a", "b").input.text == "ls b"


def test_files_are_left_out_by_a_first_line() -> None:
    asked = CaseInput("/home/u", ("cd x",), Input.from_marked(("ls",)))
    whole = Reduced(asked, ("a", "b c")).whole
    assert whole.history == ("rm -rf -- a 'b c'", "cd x")
    assert Reduced(asked).whole == asked


class HomeTree:
    """A system with 5 directories of 20 files each below its start directory."""

    def __init__(self) -> None:
        self.index: dict[str, IndexEntry] = {}
        for place in range(5):
            self._add(f"/home/u/d{place}", stat.S_IFDIR)
            for number in range(20):
                self._add(f"/home/u/d{place}/f{number}", stat.S_IFREG)

    def _add(self, path: str, kind: int) -> None:
        self.index[path] = IndexEntry(path, kind | 0o644, 0, 0, 0, 1, 0, "")


@settings(max_examples=20)
@given(st.sets(st.integers(0, 99), max_size=12))
def test_the_files_that_count_are_left_and_found_in_few_tries(counting: set[int]) -> None:
    needed = {f"d{place // 20}/f{place % 20}" for place in counting}

    def said(text: str, history: tuple[str, ...]) -> bytes:
        gone = set(history[0].split()[3:]) if history else set()
        return b"" if any({one, one.partition("/")[0]} & gone for one in needed) else b"!"

    both, system = Scripted(said), HomeTree()
    files, asked = Files(cast("Any", system)), CaseInput("/home/u", (), Input.from_marked(("ls",)))
    sides = Sides(cast("Any", both), cast("Any", both), PatchLevel.FULL)
    sides.compare([asked])
    compared = sides.known[asked.key]
    assert compared is not None
    (left,) = shrunk(sides, [(Reduced(asked), compared.classes)], files.less)
    expected = needed | {one.partition("/")[0] for one in needed}
    assert {one.path.removeprefix("/home/u/") for one in files.left(left)} == expected
    assert len(both.asked) < 420, "each success began from the whole again"


def test_an_empty_start_directory_has_nothing_to_leave_out() -> None:
    files = Files(cast("Any", HomeTree()))
    assert list(files.less(Reduced(CaseInput("/srv", (), Input.from_marked(("ls",)))))) == []


class OneFile:
    """A start directory with one file."""

    def less(self, reduced: Reduced) -> Iterator[Reduced]:
        if not reduced.gone:
            yield replace(reduced, gone=("file",))


def found_without(said: Callable[[str, tuple[str, ...]], bytes]) -> CaseFinding:
    """Return the one finding of two cases, `wc -x file` and `wc -y file`, of another side."""
    both: Any = Scripted(said)
    sides = Sides(both, both, PatchLevel.FULL)
    verdicts = []
    for option in ("-x", "-y"):
        shell_input = Input.from_marked(("wc", option, "file"))
        case = TruthCase(DrawnCase("option", "wc", shell_input, "/"), Behavior(0, b""))
        answer = PredictorAnswer(behavior=Behavior(0, b"!"))
        assert case.behavior is not None
        classes = classes_of(case.behavior, answer, PatchLevel.FULL)
        verdicts.append(CaseVerdict(case, answer, classes))
    files: Any = OneFile()
    (finding,) = findings_of(sides, verdicts, files)
    assert finding.verdicts == tuple(verdicts)
    return finding


def test_arguments_are_left_out_once_more_where_files_are_gone() -> None:
    """Only then do two cases reduce to one finding."""

    def said(text: str, history: tuple[str, ...]) -> bytes:
        return b"!" if history or {"-x", "-y"} & {*text.split()} else b""

    finding = found_without(said)
    assert finding.reduced.asked.input.text == "wc"
    assert finding.reduced.gone == ("file",)
    assert finding.recurs


def test_files_that_the_other_side_does_not_remove_are_not_left_out() -> None:
    def said(text: str, history: tuple[str, ...]) -> bytes:
        return b"file\n" if text == "ls -d -- file" else b"!"

    finding = found_without(said)
    assert finding.reduced.asked.input.text == "wc"
    assert finding.reduced.gone == ()


def test_what_is_no_predictor_is_a_command() -> None:
    assert predictor_of("sandbox:x") == "sandbox:x"
    assert predictor_of("command:/bin/sh b") == "command:/bin/sh b"
    assert predictor_of("/bin/sh b") == "command:/bin/sh b"
