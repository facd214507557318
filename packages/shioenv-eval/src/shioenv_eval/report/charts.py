"""The page's charts, each with its label and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from itertools import count as count_from
from typing import Any

import altair as alt

from shioenv.text import count, fixed, share, visible
from shioenv_eval.report.chart_style import ACCENT, PADDING, SOFT, svg_element
from shioenv_eval.report.markup import Table
from shioenv_eval.report.panels import bars, chart, count_axis, histogram, score_axis
from shioenv_eval.report.statistics import BINS, GroupStatistics, Scores, Statistics

WIDTH = 400
"""Width of every chart in pixels, including axes: text has one size, and charts fit a phone."""
HEIGHT = 250
ROW = 18
"""Height of one bar of a ranking in pixels."""
RANKED = 24
"""Maximum number of bars of a ranking; its table has more rows."""
LABEL = 140
"""Maximum width of a ranking's labels in pixels; longer ones are cut."""
TABLED = 500
"""Maximum number of rows of a table."""

EXITS = {
    0: "done",
    1: "failed",
    2: "wrong usage",
    124: "timed out",
    126: "not executable",
    127: "not found",
    130: "interrupted",
    137: "killed",
    139: "memory fault",
    141: "broken pipe",
    143: "terminated",
}

_GAP, _OVERHANG = 18, 10
"""Pixels between two plots, and pixels by which an axis's last number extends beyond its end."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart and its table, whose note explains the chart and possible misreadings."""

    name: str
    """The id of the figure in the page."""
    spoken: str
    """The chart in one sentence, for screen readers."""
    chart: alt.TopLevelMixin
    table: Table

    @property
    def svg(self) -> str:
        """The chart as an `<svg>` element that adapts to the width of the page."""
        return svg_element(self.chart, self.spoken, WIDTH)


def dataset_figures(statistics: Statistics) -> dict[str, Figure]:
    """Return every figure of the page by its id; empty figures are left out."""
    total, commands = statistics.records, statistics.by_command
    exits = statistics.by_exit_code.items()
    changed = [(name, records) for name, records in statistics.effects.items() if records]
    drawn = (
        _distribution(statistics.irreducibility),
        _by_arguments(statistics.by_arguments),
        _arguments(statistics),
        _scored_ranking(
            "composition",
            "composition",
            "Composition of inputs",
            "Every input is counted once, by its kinds of operators. And-or means && or ||; "
            "sequence means & or a semicolon.",
            statistics.by_composition,
            total,
            most=9,
        ),
        _scored_ranking(
            "commands",
            "command",
            "Commands",
            f"By an input's first command. The {min(RANKED, len(commands))} most frequent of "
            f"{count(len(commands))}; the table has "
            + ("all." if len(commands) <= TABLED else f"the first {TABLED}."),
            commands,
            total,
        ),
        _ranking(
            "exits",
            "exit code",
            [(f"{code} ({EXITS[code]})" if code in EXITS else str(code), n) for code, n in exits],
            total,
            "Exit codes",
            "Exit code of the last command. Codes from 129 on are mostly 128 plus the number of "
            "the signal that ended it.",
        ),
        _ranking(
            "effects",
            "effect",
            sorted(changed, key=lambda item: -item[1]),
            total,
            "Effects of inputs",
            "From the context patches. An input with several effects is counted in each.",
        ),
        _sizes(statistics),
    )
    return {figure.name: figure for figure in drawn if figure.table.rows}


def _distribution(scores: Scores) -> Figure:
    parts = [f"{index / BINS:.2f} to {(index + 1) / BINS:.2f}" for index in range(BINS)]
    rows = _shares(zip(parts, scores.bins, strict=True), scores.scored)
    bar = histogram(scores.bins, "irreducibility (0 to 1)", count_axis("value"))
    return Figure(
        "distribution",
        f"Histogram of irreducibility from 0 to 1: mean {fixed(scores.mean, 2)}, "
        f"{share(scores.one, scores.scored)} exactly 1, {share(scores.zero, scores.scored)} "
        "exactly 0.",
        bar.properties(width=WIDTH, height=HEIGHT),
        Table(
            "Distribution of irreducibility",
            f"Records in each twentieth of the scale. {count(scores.one)} are exactly 1: every "
            f"removal changes the behavior. {count(scores.zero)} are exactly 0: no removal changes "
            "it.",
            ("irreducibility", "records", "share"),
            rows if scores.scored else (),
        ),
    )


def _by_arguments(groups: Mapping[int, GroupStatistics]) -> Figure:
    scored = {n: group for n, group in groups.items() if group.scored}
    rows = [
        {
            "arguments": n,
            "mean": group.mean_irreducibility,
            "lower": group.quartiles[0],
            "upper": group.quartiles[2],
            "records": group.scored,
        }
        for n, group in scored.items()
    ]
    means = [f"{fixed(scored[n].mean_irreducibility, 2)} with {n}" for n in scored]
    whole = chart(rows).encode(x=_arguments_axis(scored))
    middle = whole.mark_rule(strokeWidth=7, strokeCap="round", color=SOFT).encode(
        y=alt.Y(**score_axis("lower")), y2="upper:Q"
    )
    points = whole.mark_point(filled=True, color=ACCENT, opacity=1).encode(
        y=alt.Y(**score_axis("mean")),
        size=alt.condition("datum.records < 10", alt.value(18), alt.value(60)),
    )
    return Figure(
        "by-arguments",
        f"Mean irreducibility by number of arguments: {', '.join(means[:1] + means[1:][-1:])}.",
        alt.layer(middle, points).properties(width=WIDTH, height=HEIGHT),
        Table.of(
            "Irreducibility by number of arguments",
            "Points: mean. Bars: the middle half of the records (lower to upper quartile). Small "
            "points: fewer than ten records. Necessary: the mean share of arguments whose "
            "omission alone changes the behavior.",
            {
                "arguments": lambda item: str(item[0]),
                "records": lambda item: count(item[1].records),
                "mean": lambda item: fixed(item[1].mean_irreducibility, 2),
                "lower quartile": lambda item: fixed(item[1].quartiles[0], 2),
                "median": lambda item: fixed(item[1].quartiles[1], 2),
                "upper quartile": lambda item: fixed(item[1].quartiles[2], 2),
                "necessary": lambda item: fixed(item[1].mean_necessary, 2),
            },
            scored.items(),
        ),
    )


def _arguments(statistics: Statistics) -> Figure:
    groups = {n: group.records for n, group in statistics.by_arguments.items()}
    common = max(groups, key=groups.__getitem__, default=0)
    return _columns(
        "arguments",
        f"Records by number of arguments, from {min(groups, default=0)} to "
        f"{max(groups, default=0)}; the most frequent is {common}.",
        _arguments_axis(groups),
        list(groups.items()),
        Table(
            "Arguments of inputs",
            "Number of removable arguments, over all commands of an input.",
            ("arguments", "records", "share"),
            _shares(groups.items(), statistics.records),
        ),
    )


def _columns(
    name: str, spoken: str, x: alt.X, numbers: Sequence[tuple[int | str, int]], table: Table
) -> Figure:
    """Draw vertical bars; `numbers` has the place of each on the x axis, and its height."""
    rows = ({table.headers[0]: place, "records": records} for place, records in numbers)
    bar = chart(rows).mark_bar().encode(x=x, y=alt.Y(**count_axis("records")))
    return Figure(name, spoken, bar.properties(width=WIDTH, height=HEIGHT), table)


def _arguments_axis(groups: Collection[int]) -> alt.X:
    """Return an axis of argument counts; unused counts are shown as gaps if all are below 64."""
    last = max(groups, default=0)
    shown = range(min(groups, default=0), last + 1) if last < 64 else groups
    axis = alt.Axis(labelOverlap="parity", labelSeparation=5)
    scale = alt.Scale(domain=list(shown))
    return alt.X("arguments:O", title="removable arguments", scale=scale, axis=axis)


def _scored_ranking(
    name: str,
    what: str,
    title: str,
    note: str,
    groups: Mapping[str, GroupStatistics],
    total: int,
    most: int = RANKED,
) -> Figure:
    """Draw horizontal bars of records next to the mean irreducibility of the same groups."""
    first = list(groups.values())[:most]
    labels = _labels(list(groups)[:most])
    gutter = _gutter(labels)
    room = WIDTH - 2 * PADDING - gutter - _GAP - _OVERHANG
    rows: list[dict[str, Any]] = [
        {"label": label, "records": group.records, "mean": group.mean_irreducibility}
        for label, group in zip(labels, first, strict=True)
    ]
    spoken = [f"{row['label']} {share(row['records'], total)}" for row in rows[:3]]
    left = bars(rows, _few_ticks(), step=ROW, **_label_axis(gutter))
    points = chart(rows).mark_point(filled=True, color=ACCENT, size=55, opacity=1)
    right = points.encode(
        y=alt.Y("label:N", sort=None, title=None, axis=alt.Axis(labels=False, grid=True)),
        x=alt.X(**score_axis("mean", "mean irreducibility", grid=True, values=[0, 0.5, 1])),
    )
    return Figure(
        name,
        f"Bars of records and points of mean irreducibility by {what}; the most frequent: "
        f"{', '.join(spoken)}.",
        alt.hconcat(
            left.properties(width=0.55 * room),
            right.properties(width=0.45 * room, height=alt.Step(ROW)),
            spacing=_GAP,
        ).properties(autosize="pad"),
        Table.of(
            title,
            note,
            {
                what: lambda item: _label(item[0]) or f"(no {what})",
                "records": lambda item: count(item[1].records),
                "share": lambda item: share(item[1].records, total),
                "scored": lambda item: count(item[1].scored),
                "mean irreducibility": lambda item: fixed(item[1].mean_irreducibility, 2),
                "median": lambda item: fixed(next(iter(item[1].quartiles[1:]), None), 2),
                "necessary": lambda item: fixed(item[1].mean_necessary, 2),
            },
            islice(groups.items(), TABLED),
        ),
    )


def _sizes(statistics: Statistics) -> Figure:
    sizes, total = statistics.output_sizes, statistics.records
    bounds = [0]
    while bounds[-1] < max(sizes, default=0):
        bounds.append(bounds[-1] * 4 or 1)
    named = [(_sized(bound), sizes.get(bound, 0)) for bound in bounds]
    axis = alt.Axis(labelOverlap=False, labelFontSize=11)
    return _columns(
        "sizes",
        f"Records by size of the output; {share(sizes.get(0, 0), total)} have no output.",
        alt.X("output from:O", sort=None, title="size of the output in bytes, at least", axis=axis),
        named,
        Table(
            "Size of outputs",
            "Standard output and error together; each class is four times as wide as the previous "
            "one.",
            ("output from", "records", "share"),
            _shares(named, total),
        ),
    )


def _sized(bound: int) -> str:
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if bound >= size:
            return f"{bound // size}{unit}"
    return str(bound)


def _ranking(
    name: str, what: str, named: Sequence[tuple[str, int]], total: int, title: str, note: str
) -> Figure:
    """Draw horizontal bars of records, each with its share at its end."""
    first = named[:RANKED]
    labels = _labels(name for name, _ in first)
    gutter = _gutter(labels)
    rows = [
        {"label": label, "records": records, "share": share(records, total)}
        for label, (_, records) in zip(labels, first, strict=True)
    ]
    spoken = [f"{row['label']} {row['share']}" for row in rows[:4]]
    most = max((records for _, records in first), default=1)
    x = _few_ticks().scale(domainMax=1.2 * most)
    bar = bars(rows, x, step=ROW + 3, **_label_axis(gutter))
    return Figure(
        name,
        f"Records by {what}: {', '.join(spoken)}.",
        alt.layer(bar, bar.mark_text(align="left", dx=5).encode(text="share:N")).properties(
            autosize="pad", width=WIDTH - 2 * PADDING - gutter - _OVERHANG
        ),
        Table(title, note, (what, "records", "share"), _shares(named[:TABLED], total)),
    )


def _shares(named: Iterable[tuple[object, int]], total: int) -> list[tuple[str, str, str]]:
    return [(str(name), count(records), share(records, total)) for name, records in named]


def _few_ticks() -> alt.X:
    return alt.X(**count_axis("records", ticks=3, grid=True))


def _label_axis(gutter: float) -> dict[str, float]:
    return {"labelLimit": gutter - 6, "minExtent": gutter, "maxExtent": gutter}


def _gutter(labels: Sequence[str]) -> float:
    """Return the width of a chart's labels in pixels, with room for any font."""
    return min(LABEL, 7.4 * max(map(len, labels), default=0)) + 10


def _label(text: str) -> str:
    shown = visible(text).replace("\n", "\\n").replace("\t", "\\t")
    return shown if len(shown) <= 40 else f"{shown[:39]}…"


def _labels(texts: Iterable[str]) -> list[str]:
    """Return a chart's labels: shortened texts that are still distinct."""
    labels: list[str] = []
    for text in texts:
        short = _label(text) or "(none)"
        others = (f"{short} ({extra})" for extra in count_from(2))
        labels.append(next(label for label in chain([short], others) if label not in labels))
    return labels
