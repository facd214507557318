"""Tables as Markdown and as HTML, and the numbers in them."""

from __future__ import annotations

from shioenv.text import count, fixed, rounded, share
from shioenv_eval.report.markup import Table

TABLE = Table("Some", "A note.", ("name", "value"), [("a|b", "1"), ("<c>\x1b", "-")])


def test_columns_of_numbers_are_on_the_right() -> None:
    assert TABLE.markdown == (
        "## Some\n\nA note.\n\n| name | value |\n|---|---:|\n| a\\|b | 1 |\n| <c>\x1b | - |\n"
    )


def test_a_table_without_rows_is_its_note() -> None:
    assert Table("Some", "None.", ("name",), []).markdown == "## Some\n\nNone.\n"


def test_cells_are_text_in_html_and_the_first_names_its_row() -> None:
    assert "<caption>Some</caption>" in TABLE.html
    assert '<th scope="col">value</th>' in TABLE.html
    assert '<tr><th scope="row">&lt;c&gt;\\x1b</th><td>-</td></tr>' in TABLE.html


def test_numbers_have_as_many_digits_as_asked_for() -> None:
    assert (fixed(0.12345), fixed(0.5, 1), fixed(None)) == ("0.123", "0.5", "-")
    assert (rounded(0.123456), rounded(None), count(12345)) == (0.1235, None, "12,345")


def test_a_share_tells_little_from_nothing() -> None:
    assert (share(1, 8), share(1, 3, 0), share(0, 5), share(0, 0)) == ("12.5%", "33%", "0.0%", "-")
    assert (share(1, 10_000), share(1, 1000), share(1, 1000, 0)) == ("<0.1%", "0.1%", "<1%")
