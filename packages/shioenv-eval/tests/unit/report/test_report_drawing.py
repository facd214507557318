"""Panels of pictures, drawn: what is in them, and how they look."""

from __future__ import annotations

import re

import altair as alt

from shioenv_eval.report.chart_style import PAGE, PICTURE, STYLES, picture, svg_element
from shioenv_eval.report.panels import bars, chart, count_axis, means, score_axis, styled, titled

ROWS = [
    {"n": n, "mean": n / 4, "low": n / 4 - 0.1, "high": n / 4 + 0.1, "s": name}
    for n in (1, 2, 3)
    for name in ("a", "b")
]


def lines() -> alt.LayerChart:
    x, series = alt.X("n:Q", title="n"), styled("s", ("a", "b"), "series")
    return means(ROWS, x, lambda field: alt.Y(**score_axis(field)), series, interval="band")


def texts(svg: str) -> list[str]:
    return re.findall(r"<text [^>]*>([^<]+)</text>", svg)


def test_no_two_series_look_the_same_without_colours() -> None:
    assert len({style.shape for style in STYLES}) == len(STYLES)
    svg = picture(lines())[0].decode()
    assert {"series", "a", "b"} <= set(texts(svg))
    dashes = set(re.findall(r'stroke-dasharray="([^"]+)"', svg))
    assert dashes == {"1,0", "6,3"}
    for style in STYLES[:2]:
        assert f'fill="{style.colour}"' in svg


def test_means_have_axes_titles_and_an_interval_for_each_series() -> None:
    svg = picture(titled(lines(), "A picture", "of something"))[0].decode()
    said = texts(svg)
    assert {"A picture", "of something", "n", "irreducibility (0 to 1)"} <= set(said)
    assert svg.count('aria-roledescription="area mark"') == 2
    assert svg.count('aria-roledescription="line mark"') == 2
    assert svg.count('aria-roledescription="point"') == len(ROWS)


def test_bars_keep_the_order_of_their_rows() -> None:
    rows = [{"label": label, "records": number} for label, number in (("z", 1), ("a", 5))]
    svg = svg_element(bars(rows, alt.X(**count_axis("records")), step=18), "spoken <&", 200)
    assert [text for text in texts(svg) if text in "az"] == ["z", "a"]
    assert 'role="img" aria-label="spoken &lt;&amp;"' in svg


def test_pages_and_pictures_share_one_theme() -> None:
    differ = {name for name in {**PAGE, **PICTURE} if PAGE.get(name) != PICTURE.get(name)}
    assert differ == {"autosize", "padding", "background"}


def test_a_chart_may_be_empty() -> None:
    assert picture(chart([]).mark_bar())[1].startswith(b"\x89PNG")
