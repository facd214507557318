"""Every metric against values computed by hand; a lie in one channel is caught by its metric."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shioenv.domain.behavior import Behavior
from shioenv.domain.predictor import PatchLevel
from shioenv_eval.metrics import PredictorAnswer, Status, mark
from shioenv_eval.suite import SuiteCase
from support.evaluation_fakes import ENTRY, added, case, did, said

TWO = (added("a"), added("b"))
GOLD = case(did("one\ntwo\n", *TWO, exit_code=1))


def wrong_in(answer: PredictorAnswer, level: PatchLevel = PatchLevel.FULL) -> set[str]:
    """Return the metrics that are not 1."""
    marks = mark(GOLD, answer, level).to_json()
    return {name for name, value in marks.items() if value not in (1.0, None)}


def test_the_right_answer_is_right_in_everything() -> None:
    assert wrong_in(said("one\ntwo\n", *TWO, exit_code=1)) == set()


def test_a_wrong_exit_code_is_seen_by_the_metrics_of_exit_codes_alone() -> None:
    assert wrong_in(said("one\ntwo\n", *TWO)) == {"exit_code", "em_exit"}


def test_a_wrong_output_is_seen_by_what_looks_at_outputs() -> None:
    joint = {"em", "em_masked", "em_exit", "em_files"}
    assert wrong_in(said("one\n", *TWO, exit_code=1)) == joint | {"em_output", "o_es"}


def test_a_wrong_owner_is_seen_by_full_patches_alone() -> None:
    other = (added("a", owner="alice"), TWO[1])
    found = wrong_in(said("one\ntwo\n", *other, exit_code=1))
    assert found == {"em", "em_masked", "em_exit", "em_patch", "djs", "djs_all", "djs_leaf"}
    assert wrong_in(said("one\ntwo\n", *other, exit_code=1), PatchLevel.FILES) == set()


def test_a_file_too_many_is_seen_by_everything_that_looks_at_patches() -> None:
    found = wrong_in(said("one\ntwo\n", *TWO, added("c"), exit_code=1))
    shares = {"djs", "djs_all", "djs_path", "djs_leaf", "djs_files"}
    assert found == {"em", "em_masked", "em_exit", "em_files", "em_patch"} | shares


def test_shares_of_patches_by_hand() -> None:
    # one of two operations is right, one has another owner: 1 of 3 as they are, 2 of 2 by path,
    # of 18 fields 17 are right: 17 of 19
    marks = mark(GOLD, said("", added("a", owner="alice"), TWO[1]))
    assert marks.djs == pytest.approx(1 / 3)
    assert marks.djs_path == 1
    assert marks.djs_leaf == pytest.approx(17 / 19)
    assert marks.djs_files == 1
    # one of the two is missing: 1 of 2, 9 of 18 fields
    marks = mark(GOLD, said("", TWO[1]))
    assert (marks.djs, marks.djs_path, marks.djs_leaf, marks.djs_files) == (0.5, 0.5, 0.5, 0.5)


def test_nothing_beside_nothing_has_no_share_and_counts_as_one_where_all_count() -> None:
    empty = case(did("x\n"))
    marks = mark(empty, said("x\n"))
    assert (marks.djs, marks.djs_all, marks.djs_path, marks.djs_files) == (None, 1.0, None, None)
    assert (marks.em, marks.em_patch) == (1, 1)
    marks = mark(empty, said("x\n", added("a")))
    assert (marks.djs, marks.djs_all, marks.em, marks.em_output) == (0, 0, 0, 1)


def test_similarity_of_outputs_by_hand() -> None:
    # "abcd" and "abd": 3 characters in common, 2 * 3 / 7; the higher of two gold runs counts
    assert mark(case(did("abcd")), said("abd")).o_es == pytest.approx(6 / 7)
    assert mark(case(did("abcd"), did("abd")), said("abd")).o_es == 1
    assert mark(case(did("")), said("")).o_es == 1
    assert mark(case(did("")), said("x")).o_es == 0


def test_lines_may_end_as_on_a_terminal_and_nothing_else_is_forgiven() -> None:
    gold = case(did("one\ntwo\n"))
    assert mark(gold, said("one\r\ntwo\r\n")).em == 1
    for output in ("one\ntwo", "one\ntwo\n\n", " one\ntwo\n", "One\ntwo\n"):
        assert mark(gold, said(output)).em == 0, output
    assert mark(case(did(b"\xff")), said(b"\xfe")).em == 0


def test_an_answer_is_right_if_it_is_that_of_one_run_never_of_two_halves() -> None:
    gold = case(did("1\n", exit_code=0), did("2\n", added("a"), exit_code=1))
    assert mark(gold, said("2\n", added("a"), exit_code=1)).em_exit == 1
    mixed = mark(gold, said("1\n", added("a"), exit_code=1))
    assert (mixed.em_output, mixed.em_patch, mixed.exit_code) == (1, 1, 1)
    assert (mixed.em, mixed.em_exit, mixed.em_files) == (0, 0, 0)


def test_a_move_is_a_removal_and_an_addition() -> None:
    gold = case(did("", ("m", "/fs/a", "/fs/b")), moved={"/fs/a": ENTRY})
    assert mark(gold, said("", ("m", "/fs/a", "/fs/b"))).em == 1
    assert mark(gold, said("", ("r", "/fs/a"), added("b"))).em == 1
    assert mark(gold, said("", ("r", "/fs/a"), added("b", size=9))).em == 0
    assert mark(gold, said("", ("r", "/fs/a"), added("b", size=9))).em_files == 1
    # a move of something else shares the addition's path alone: removals differ
    assert mark(gold, said("", ("m", "/fs/c", "/fs/b"))).djs == 0


def test_a_removal_and_an_addition_are_a_move() -> None:
    gold = case(did("", ("r", "/fs/a"), added("b")))
    assert mark(gold, said("", ("m", "/fs/a", "/fs/b"))).em == 1
    assert mark(gold, said("", ("m", "/fs/c", "/fs/b"))).em == 0
    assert mark(gold, said("", ("m", "/fs/a", "/fs/c"))).em == 0


def test_a_removal_of_something_else_is_no_source_of_a_move() -> None:
    gold = case(did("", ("r", "/fs/a"), ("r", "/fs/c"), added("b")))
    for answer in (
        said("", ("m", "/fs/c", "/fs/b"), ("r", "/fs/a")),
        said("", ("m", "/fs/a", "/fs/b"), ("r", "/fs/c")),  # unknown which of the two it was
    ):
        assert (mark(gold, answer).em_patch, mark(gold, answer).em_files) == (0, 1)
    variable = case(did("", ("r", "/fs/a"), ("r", "/env/X"), added("b")))
    assert mark(variable, said("", ("m", "/fs/a", "/fs/b"), ("r", "/env/X"))).em == 1


def test_several_moves_equal_removals_and_additions_of_equal_entries() -> None:
    removed = (("r", "/fs/a"), ("r", "/fs/c"))
    answer = said("", ("m", "/fs/a", "/fs/b"), ("m", "/fs/c", "/fs/d"))
    assert mark(case(did("", *removed, added("b"), added("d"))), answer).em == 1
    assert mark(case(did("", *removed, added("b"), added("d", size=9))), answer).em == 0


def test_a_move_is_compared_with_each_run_alone() -> None:
    runs = (did("", ("r", "/fs/a"), added("b", size=size)) for size in (1, 2))
    answer = said("", ("m", "/fs/a", "/fs/b"))
    assert mark(case(*runs), answer).djs == 1
    outputs = [did(f"{size}", ("r", "/fs/a"), added("b", size=size)) for size in (1, 2)]
    for output in ("1", "2"):
        assert mark(case(*outputs), said(output, ("m", "/fs/a", "/fs/b"))).em == 1


def test_an_operation_for_a_changed_content_counts_on_neither_side() -> None:
    told = ("=", "/fs/a", ENTRY)
    earlier = replace(did(""), content_digests={"a": "0" * 64})  # such runs lack the operation
    for gold, answer in (
        (did("", told), said("")),
        (did("", told), said("", told)),
        (earlier, said("", told)),
        (earlier, said("")),
    ):
        assert mark(case(gold), answer).em == 1
        assert mark(case(gold), answer).djs is None
        assert mark(case(gold), answer, PatchLevel.FILES).em == 1


def test_an_entry_replaced_that_is_another_or_unknown_counts() -> None:
    told = ("=", "/fs/a", ENTRY)
    other = ("=", "/fs/a", {**ENTRY, "size": 9})
    sized = replace(did("", ("=", "/fs/a/size", 9)), content_digests={"a": "0" * 64})
    for gold, answer in (
        (did(""), said("", told)),
        (did("", told), said("", other)),
        (did("", told), said("", told, ("=", "/fs/b", ENTRY))),
        (sized, said("", ("=", "/fs/a/size", 9), other)),
    ):
        marks = mark(case(gold), answer)
        assert (marks.em, marks.em_masked, marks.em_patch) == (0, 0, 0), answer
        assert marks.djs_all < 1
    assert mark(case(did("")), said("", told), PatchLevel.FILES).em_files == 0
    several = case(did("1", told), did("2", other))
    assert mark(several, said("1", other)).em == 1  # each entry is one that the machine had


def test_files_know_no_links_no_variables_and_no_working_directory() -> None:
    gold = case(did("", added("a"), ("=", "/fs/b/links", 2), ("=", "/cwd", "/tmp")))
    assert mark(gold, said("", added("a")), PatchLevel.FILES).em == 1
    assert mark(gold, said("", added("a"))).em == 0
    touched = case(did("", ("=", "/fs/b/time", "19:43"), ("=", "/fs/b/day", 16)))
    assert mark(touched, said("", ("=", "/fs/b/size", 1)), PatchLevel.FILES).em == 1
    assert mark(touched, said(""), PatchLevel.FILES).em == 0


@pytest.mark.parametrize("status", [Status.ABSTAINED, Status.CRASHED, Status.TIMED_OUT])
def test_no_answer_is_wrong_in_everything(status: Status) -> None:
    marks = mark(GOLD, PredictorAnswer(status)).to_json()
    assert set(marks.values()) == {0.0}
    nothing = mark(case(did("")), PredictorAnswer(status))
    assert (nothing.em, nothing.o_es, nothing.djs, nothing.exit_code) == (0, 0, None, 0)


def test_of_an_invalid_answer_what_was_received_counts_but_never_as_a_whole() -> None:
    received = Behavior(1, b"one\ntwo\n")
    marks = mark(GOLD, PredictorAnswer(Status.INVALID, received))
    assert (marks.em_output, marks.exit_code, marks.o_es) == (1, 1, 1)
    assert (marks.em, marks.em_masked, marks.em_patch, marks.em_files, marks.djs) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("level", [PatchLevel.FILES, PatchLevel.FULL])
@pytest.mark.parametrize("gold", [GOLD, case(did("x")), case(did("x"), did("x", added("f")))])
def test_every_answer_without_a_patch_counts_for_the_same_shares(
    gold: SuiteCase, level: PatchLevel
) -> None:
    missing = mark(gold, PredictorAnswer(Status.CRASHED), level)
    unread = mark(gold, PredictorAnswer(Status.INVALID), level)
    with_output = mark(gold, PredictorAnswer(Status.INVALID, Behavior(7, b"none of it")), level)
    assert missing == unread
    shares = ("djs", "djs_all", "djs_path", "djs_leaf", "djs_files", "em", "em_patch", "em_files")
    for name in shares:
        assert getattr(with_output, name) == getattr(missing, name), name
    assert missing.djs_all == 0


def test_what_varies_is_not_compared_where_it_is_masked() -> None:
    runs = [did(f"pid {n}\nfixed\n", added(f"tmp.{n}")) for n in (11, 22, 33)]
    gold = case(*runs)
    other = said("pid 4444\nfixed\n", added("tmp.44"))
    marks = mark(gold, other)
    assert (marks.em, marks.em_masked, marks.em_output) == (0, 1, 0)
    assert mark(gold, other, PatchLevel.FILES).em_masked == 1
    assert mark(gold, said("pid 4444\nother\n", added("tmp.44"))).em_masked == 0
    assert mark(gold, said("pid x\nfixed\n", added("tmp.44"))).em_masked == 0
    assert mark(gold, said("pid 4444\nfixed\n", added("elsewhere"))).em_masked == 0
    assert mark(gold, said("pid 11\nfixed\n", added("tmp.11"))).em == 1
