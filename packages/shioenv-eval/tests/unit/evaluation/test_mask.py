"""Values that vary between runs: fields, numbers, lines, and the remainder to compare."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from shioenv_eval.mask import Mask
from shioenv_eval.patches import operations
from support.evaluation_fakes import added, did


def mask(*outputs: str) -> Mask:
    return Mask.of([did(text) for text in outputs])


def fits(made: Mask, output: str) -> bool:
    return Mask.from_json(json.loads(json.dumps(made.to_json()))).fits(output.encode())


@pytest.mark.parametrize(
    ("runs", "same", "others"),
    [
        (("time=0.05 ms\n", "time=0.1 ms\n"), "time=12 ms\n", ["time=x ms\n", "time=0.05\n"]),
        (("a 1 z\n", "a 22 z\n"), "a   333 z\n", ["b 1 z\n", "a 1 y\n", "a  z\n", "a 1 z\n\n"]),
        (("tmp.aXb\n", "tmp.Qrs\n"), "tmp.123\n", ["two words\n", "tmp.aXb", ""]),
        (("9 MB/s\n", "1 MB/s\n"), "2.5 GB/s\n", ["2.5 lines\n", "x MB/s\n"]),
        (
            ("a\n1 x\nb\n", "a\n1 2 3\nb\n"),
            "a\nanything at all\nb\n",
            ["a\nx\ny\nb\n", "a\nx\nc\n"],
        ),
        (
            ("a\nx\nb\n", "a\nb\n", "a\ny\nz\nb\n"),
            "a\n1\n2\n3\nb\n",
            ["a\n1\n", "1\nb\n", "a\nb\nc\n"],
        ),
        (("a\n", "a\nb\n"), "a\nc\nd\n", ["b\n", "c\na\n"]),
    ],
)
def test_what_varies_may_be_anything_of_its_kind(
    runs: tuple[str, ...], same: str, others: list[str]
) -> None:
    made = mask(*runs)
    assert made.volatile
    assert made.channels == ("output",)
    assert fits(made, same)
    assert all(fits(made, run) for run in runs)
    for other in others:
        assert not fits(made, other), other


def test_runs_that_agree_leave_nothing_out() -> None:
    made = mask("a\n", "a\n", "a\r\n")
    assert (made.volatile, made.channels, made.lines) == (False, (), None)
    assert not made.fits(b"a\n"), "then the runs themselves are compared"


def test_numbers_that_stay_are_compared() -> None:
    made = mask("1 of 10 a\n", "2 of 10 a\n")
    assert fits(made, "7 of 10 a\n")
    assert not fits(made, "7 of 11 a\n")


def test_a_line_that_stayed_by_chance_varies_as_most_lines_of_its_kind() -> None:
    made = mask(
        "pass 1/4 (a0)\npass 2/4 (b1)\npass 3/4 (c2)\nend 4/4 (d3)\n",
        "pass 1/4 (b1)\npass 2/4 (b1)\npass 3/4 (a0)\nend 4/4 (d3)\n",
    )
    assert fits(made, "pass 1/4 (a0)\npass 2/4 (c2)\npass 3/4 (b1)\nend 4/4 (d3)\n")
    for line in ("pass 9/4 (c2)", "pass 2/4 two words", "past 2/4 (c2)"):
        assert not fits(made, f"pass 1/4 (a0)\n{line}\npass 3/4 (b1)\nend 4/4 (d3)\n"), line
    assert not fits(made, "pass 1/4 (a0)\npass 2/4 (c2)\npass 3/4 (b1)\nend 4/4 (x)\n")


def test_lines_of_one_kind_vary_in_the_same() -> None:
    made = mask("(1)\n(a1)\n", "(2)\n(b1)\n")
    assert fits(made, "(c1)\n(3)\n"), "numbers by chance, where others of its kind are words"
    made = mask("a (1)\nb (a1)\n", "a (2)\nb (b1)\n")
    assert not fits(made, "a (c1)\nb (3)\n"), "of another kind"


def test_thousands_of_lines_of_one_kind_vary_in_the_same() -> None:
    runs = ["".join(f"{number * factor} seen\n" for number in range(4_000)) for factor in (3, 7)]
    mask = Mask.of([did(text) for text in runs])
    assert mask.fits("".join(f"{number} seen\n" for number in range(4_000)).encode())
    assert not mask.fits("".join(f"{number} lost\n" for number in range(4_000)).encode())


def test_a_line_that_stayed_as_most_of_its_kind_is_compared() -> None:
    made = mask("a 1 x\nb 5 x\nc 6 x\n", "a 2 x\nb 5 x\nc 6 x\n")
    assert not fits(made, "a 3 x\nb 4 x\nc 6 x\n")
    made = mask("f 1 x\nf 5 x\nf 6 x\n", "f 2 x\nf 5 x\nf 6 x\n")
    assert fits(made, "f 3 x\nf 5 x\nf 6 x\n")
    assert not fits(made, "f 3 x\nf 4 x\nf 6 x\n")


def test_a_line_that_looks_like_a_pattern_is_none() -> None:
    made = mask("[a-z]+ 1\n.*\n", "[a-z]+ 2\n.*\n")
    assert fits(made, "[a-z]+ 3\n.*\n")
    assert not fits(made, "abc 3\n.*\n")
    assert not fits(made, "[a-z]+ 3\nxx\n")


def test_a_single_line_is_told_to_be_as_it_may() -> None:
    made = mask("a 1\nb\n", "a 2\nb\n")
    assert [made.line_fits(number, line) for number, line in enumerate(("a 7", "c", ""))] == [
        True,
        False,
        True,
    ]
    assert not mask("a\n", "a\nb\n").line_fits(0, "a")


def test_exit_codes_and_files_vary_by_themselves() -> None:
    runs = [did("", ("a", f"/fs/x{n}", 1), ("r", "/fs/y"), exit_code=n) for n in (1, 2)]
    made = Mask.of(runs)
    assert made.channels == ("exit_code", "patch")
    assert made.operations(operations(runs[0].patch)) == {("r", "/fs/y", "")}
    assert made.changes(frozenset({("added", "x7"), ("removed", "y")})) == {("removed", "y")}
    assert Mask.from_json(made.to_json()) == made


def test_the_size_of_a_file_whose_content_varies_is_not_compared() -> None:
    runs = [replace(did("", added("x")), content_digests={"x": digest}) for digest in "ab"]
    made = Mask.of(runs)
    assert made.operations(operations(did("", added("x", size=9), ("r", "/fs/y")).patch)) == {
        ("r", "/fs/y", "")
    }
    assert not made.files, "that there is a file is compared"
    assert not Mask.of([runs[0], runs[0]]).volatile
