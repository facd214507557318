"""Building blocks of pictures: recurring kinds of charts, and their axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import altair as alt

from shioenv_eval.report.chart_style import ACCENT, INK, STYLES, Style

PAPER = ACCENT
"""The colour of the paper's numbers; only they are drawn as diamonds."""

Rows = Iterable[Mapping[str, Any]]
Panel = TypeVar(
    "Panel", alt.Chart, alt.LayerChart, alt.ConcatChart, alt.HConcatChart, alt.FacetChart
)


def chart(rows: Rows) -> alt.Chart:
    """Return a chart of rows, without a mark."""
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def titled(panel: Panel, text: str, *lines: str) -> Panel:
    """Add a title, and lines of text below it, to a picture."""
    return panel.properties(title=alt.TitleParams(text, subtitle=list(lines)))


def sized(panel: Panel, title: str, width: int, height: int) -> Panel:
    """Set a panel's title, and its size in pixels."""
    heading = alt.TitleParams(title, fontSize=13, offset=6)
    return panel.properties(title=heading, width=width, height=height)


def score_axis(
    field: str, title: str | None = "irreducibility (0 to 1)", **axis: Any
) -> dict[str, Any]:
    """Return the arguments of an axis from 0 to 1 (`alt.X`, `alt.Y`) for a field of scores."""
    return {
        "shorthand": f"{field}:Q",
        "title": title,
        "scale": alt.Scale(domain=[0, 1]),
        "axis": alt.Axis(**{"tickCount": 5, **axis}),
    }


def count_axis(field: str, title: str = "records", ticks: int = 4, **axis: Any) -> dict[str, Any]:
    """Return the arguments of an axis of whole numbers (`alt.X`, `alt.Y`) for a field of counts."""
    shown = alt.Axis(tickCount=ticks, tickMinStep=1, format="~s", **axis)
    return {"shorthand": f"{field}:Q", "title": title, "axis": shown}


def lengths_axis(lengths: Sequence[int], field: str = "arguments") -> alt.X:
    """Return an x axis of argument counts, with room on both sides."""
    scale = alt.Scale(domain=[min(lengths) - 0.4, max(lengths) + 0.4], nice=False)
    axis = alt.Axis(values=list(lengths), format="d")
    return alt.X(f"{field}:Q", title="removable arguments", scale=scale, axis=axis)


def styled(
    field: str,
    names: Sequence[str],
    title: str | None,
    styles: Sequence[Style] = STYLES,
    **legend: Any,
) -> dict[str, Any]:
    """Return encodings of colour, dashes and shape that share one legend."""

    def common(values: list[Any]) -> dict[str, Any]:
        scale = alt.Scale(domain=list(names), range=values[: len(names)])
        shown = alt.Legend(symbolStrokeWidth=0, **legend)
        return {"shorthand": f"{field}:N", "title": title, "scale": scale, "legend": shown}

    return {
        "color": alt.Color(**common([style.colour for style in styles])),
        "strokeDash": alt.StrokeDash(**common([list(style.dash) for style in styles])),
        "shape": alt.Shape(**common([style.shape for style in styles])),
    }


def alone(style: Style) -> dict[str, Any]:
    """Return encodings of a single series without a legend."""
    values = {"color": style.colour, "strokeDash": list(style.dash), "shape": style.shape}
    return {channel: alt.value(value) for channel, value in values.items()}


def means(
    rows: Rows,
    x: alt.X,
    y: Callable[[str], alt.Y],
    series: Mapping[str, Any],
    *,
    interval: Literal["band", "rule"] | None = None,
    line: bool = True,
) -> alt.LayerChart:
    """Draw points of `mean` along x, with a line through the points of a series.

    `interval` adds a band or a rule from `low` to `high`. `series` are encodings from `styled`,
    with an optional `detail`. `y` creates the axis of a field.
    """
    whole = chart(rows).encode(x=x, color=series["color"])
    ends = {"y": y("low"), "y2": "high:Q"}
    layers = []
    if interval == "band":
        layers.append(whole.mark_area(opacity=0.15).encode(**ends))
    if interval == "rule":
        layers.append(whole.mark_rule(strokeWidth=1.4, opacity=0.8).encode(**ends))
    if line:
        dashed = {name: series[name] for name in ("strokeDash", "detail") if name in series}
        layers.append(whole.mark_line(strokeWidth=2.2).encode(y=y("mean"), **dashed))
    formed = {name: series[name] for name in ("shape",) if name in series}
    point = whole.mark_point(filled=True, size=42, opacity=1)
    layers.append(point.encode(y=y("mean"), **formed))
    return alt.LayerChart(layer=layers)


def draw_paper_points(rows: Rows, x: alt.X, y: alt.Y, **text: Any) -> alt.LayerChart:
    """Draw the paper's numbers as points, each with its `label`, which `text` positions."""
    whole = chart(rows).encode(x=x, y=y)
    point = whole.mark_point(shape="diamond", filled=True, size=80, opacity=1, color=PAPER)
    label = whole.mark_text(color=PAPER, **text).encode(text="label:N")
    return alt.LayerChart(layer=[point, label])


def bars(rows: Rows, x: alt.X, *, step: int, **labels: Any) -> alt.Chart:
    """Draw a horizontal bar for each row, named by its `label`; rows are `step` pixels high."""
    y = alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labelColor=INK, **labels))
    bar = chart(rows).mark_bar(height=alt.RelativeBandSize(band=0.7)).encode(x=x, y=y)
    return bar.properties(height=alt.Step(step))


def histogram(values: Sequence[float], x_title: str | None, y: Mapping[str, Any]) -> alt.Chart:
    """Draw a bar for each value, over equal parts of 0 to 1; `y` is the axis of `value`."""
    rows = (
        {"from": place / len(values), "to": (place + 1) / len(values), "value": value}
        for place, value in enumerate(values)
    )
    x = alt.X(**score_axis("from", x_title, format=".1f"), bin=alt.BinParams(binned=True))
    return chart(rows).mark_bar(binSpacing=1.5).encode(x=x, x2="to:Q", y=alt.Y(**y))
