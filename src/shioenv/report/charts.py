"""The page's charts: Vega-Lite specifications, drawn here as SVG that needs nothing to be shown.

Vega-Lite through `vl-convert` because one specification gives SVG, PNG and PDF, text stays text
(so it can be read aloud, searched and restyled), marks and axes carry labels for screen readers,
and it is one dependency without a browser, a display or a network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

from shioenv.report.stats import BINS, Group, Statistics
from shioenv.report.text import visible

Spec: TypeAlias = dict[str, Any]

INK, MUTED, GRID = "#1b2430", "#566270", "#dfe4ea"
MAIN, SOFT, ACCENT = "#1f6fb2", "#a9cce8", "#b4500b"
DARK = {
    INK: "#e8edf2",
    MUTED: "#a3afbc",
    GRID: "#2f3944",
    MAIN: "#5aa9e6",
    SOFT: "#2c5777",
    ACCENT: "#f2995a",
}
"""The colour that stands for each of the charts' on a dark page. Blue and orange are told apart
with every common colour blindness; where both meet, form tells them apart in grey as well."""

WIDTH = 400
"""Of every chart in pixels, axes included: text is as large in all, and readable on a phone."""
HEIGHT = 250
ROW = 18
"""Height of one bar of a ranking in pixels."""
RANKED = 24
"""Bars of a ranking at most; the table beside it has more."""
LABEL = 140
"""Width of a ranking's labels in pixels at most; longer ones are cut."""
TABLED = 500
"""Rows of a table at most."""

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

_PADDING, _GAP, _OVERHANG = 5, 18, 10
"""Around a chart, between two plots, and of the last number of an axis."""

_CONFIG: Spec = {
    "autosize": {"type": "fit", "contains": "padding"},
    "padding": _PADDING,
    "background": None,
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": INK,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 600,
        "titlePadding": 8,
        "labelPadding": 5,
        "gridColor": GRID,
        "domainColor": MUTED,
        "ticks": False,
        "domain": False,
    },
    "axisX": {"domain": True, "labelFlush": False},
    "text": {"color": MUTED, "fontSize": 12},
    "bar": {"color": MAIN},
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with what stands around it, and the same numbers as a table."""

    name: str
    """Its id in the page."""
    title: str
    note: str
    """What is shown, and what may be misread."""
    spoken: str
    """The chart in one sentence, for who does not see it."""
    spec: Spec
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def svg(self) -> str:
        """The chart drawn, as an element that takes the width it is given."""
        return draw(self.spec, self.spoken)


def draw(spec: Spec, label: str) -> str:
    """A Vega-Lite specification as an `<svg>` element with the page's look and a spoken label."""
    import vl_convert

    svg = vl_convert.vegalite_to_svg({"config": _CONFIG, **spec})
    match = re.match(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"[^>]*>', svg)
    if match is None:
        raise ValueError(f"an SVG begins with {svg[:80]!r}")
    width, height = map(float, match.groups())
    box = f"0 0 {max(width, WIDTH):g} {height:g}"
    head = f'<svg viewBox="{box}" role="img" aria-label="{escape(label)}">'
    return head + svg[match.end() :]


def figures(found: Statistics) -> dict[str, Figure]:
    """Every chart of the page by its id; those without anything to show are left out."""
    made = (
        _distribution(found),
        _by_arguments(found),
        _arguments(found),
        _composition(found),
        _commands(found),
        _exits(found),
        _effects(found),
        _sizes(found),
    )
    return {figure.name: figure for figure in made if figure.rows}


def number(value: float | None, digits: int = 2) -> str:
    """`0.75`, or a dash for nothing."""
    return "-" if value is None else f"{value:.{digits}f}"


def count(value: int) -> str:
    """`12,345`."""
    return f"{value:,}"


def share(part: int, whole: int) -> str:
    """`12.5%`; below a thousandth `<0.1%`."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    return "<0.1%" if 0 < percent < 0.05 else f"{percent:.1f}%"


def _distribution(found: Statistics) -> Figure:
    scores = found.irreducibility
    values = [
        {"from": index / BINS, "to": (index + 1) / BINS, "records": records}
        for index, records in enumerate(scores.bins)
    ]
    return Figure(
        "distribution",
        "How irreducible the inputs are",
        f"Records in each twentieth of the scale. {count(scores.one)} are exactly 1: every "
        f"removal changes something. {count(scores.zero)} are exactly 0: leaving arguments out "
        "changes nothing.",
        f"Histogram of irreducibility from 0 to 1: mean {number(scores.mean)}, "
        f"{share(scores.one, scores.scored)} exactly 1, {share(scores.zero, scores.scored)} "
        "exactly 0.",
        {
            "data": {"values": values},
            "width": WIDTH,
            "height": HEIGHT,
            "mark": {"type": "bar", "binSpacing": 1.5},
            "encoding": {
                "x": {
                    "field": "from",
                    "type": "quantitative",
                    "bin": {"binned": True},
                    "axis": {"title": "irreducibility (0 to 1)", "grid": False, "format": ".1f"},
                    "scale": {"domain": [0, 1]},
                },
                "x2": {"field": "to"},
                "y": _counted("records"),
            },
        },
        ("irreducibility", "records", "share"),
        tuple(
            (
                f"{index / BINS:.2f} to {(index + 1) / BINS:.2f}",
                count(records),
                share(records, scores.scored),
            )
            for index, records in enumerate(scores.bins)
        )
        if scores.scored
        else (),
    )


def _by_arguments(found: Statistics) -> Figure:
    scored = {n: one for n, one in found.by_arguments.items() if one.scored and one.quartiles}
    values = [
        {
            "arguments": n,
            "mean": one.mean_irreducibility,
            "lower": one.quartiles[0] if one.quartiles else None,
            "upper": one.quartiles[2] if one.quartiles else None,
            "records": one.scored,
        }
        for n, one in scored.items()
    ]
    y: Spec = {
        "type": "quantitative",
        "scale": {"domain": [0, 1]},
        "axis": {"title": "irreducibility (0 to 1)", "tickCount": 5},
    }
    few, many = min(scored, default=0), max(scored, default=0)
    return Figure(
        "by-arguments",
        "Irreducibility by number of arguments",
        "Points: mean. Bars: the middle half of the records (lower to upper quartile). Small "
        "points stand for fewer than ten records.",
        "Mean irreducibility by number of arguments: "
        + (f"{number(scored[few].mean_irreducibility)} with {few}, " if scored else "")
        + (f"{number(scored[many].mean_irreducibility)} with {many}." if scored else ""),
        {
            "data": {"values": values},
            "width": WIDTH,
            "height": HEIGHT,
            "encoding": {"x": _arguments_axis(scored)},
            "layer": [
                {
                    "mark": {"type": "rule", "strokeWidth": 7, "strokeCap": "round", "color": SOFT},
                    "encoding": {"y": {**y, "field": "lower"}, "y2": {"field": "upper"}},
                },
                {
                    "mark": {"type": "point", "filled": True, "color": ACCENT, "opacity": 1},
                    "encoding": {
                        "y": {**y, "field": "mean"},
                        "size": {
                            "condition": {"test": "datum.records < 10", "value": 18},
                            "value": 60,
                        },
                    },
                },
            ],
        },
        ("arguments", "records", "mean", "lower quartile", "median", "upper quartile"),
        tuple(
            (
                str(n),
                count(one.records),
                number(one.mean_irreducibility),
                *map(number, one.quartiles),
            )
            for n, one in scored.items()
        ),
    )


def _arguments(found: Statistics) -> Figure:
    groups = found.by_arguments
    total = found.records
    common = max(groups, key=lambda n: groups[n].records, default=0)
    return Figure(
        "arguments",
        "How many arguments inputs have",
        "Arguments that can be removed, over all commands of an input.",
        f"Records by number of arguments, from {min(groups, default=0)} to "
        f"{max(groups, default=0)}; the most have {common}.",
        {
            "data": {
                "values": [{"arguments": n, "records": one.records} for n, one in groups.items()]
            },
            "width": WIDTH,
            "height": HEIGHT,
            "mark": "bar",
            "encoding": {
                "x": _arguments_axis(groups),
                "y": _counted("records"),
            },
        },
        ("arguments", "records", "share"),
        tuple((str(n), count(one.records), share(one.records, total)) for n, one in groups.items()),
    )


def _arguments_axis(groups: Mapping[int, Group]) -> Spec:
    """Numbers of arguments; those that no input has are gaps, unless there are too many."""
    last = max(groups, default=0)
    return {
        "field": "arguments",
        "type": "ordinal",
        "scale": {"domain": list(range(min(groups, default=0), last + 1) if last < 64 else groups)},
        "axis": {
            "title": "removable arguments",
            "labelAngle": 0,
            "labelOverlap": "parity",
            "labelSeparation": 5,
        },
    }


def _composition(found: Statistics) -> Figure:
    return _scored_ranking(
        "composition",
        "How inputs are composed",
        "Every input is counted once, by the kinds of operators it holds. And-or: && or ||; "
        "sequence: ; or &.",
        "composition",
        found.by_composition,
        found.records,
        most=9,
    )


def _commands(found: Statistics) -> Figure:
    shown = min(RANKED, len(found.by_command))
    return _scored_ranking(
        "commands",
        "Commands",
        f"By an input's first command. The {shown} most frequent of "
        f"{count(len(found.by_command))}; the table has "
        + ("all." if len(found.by_command) <= TABLED else f"the first {TABLED}."),
        "command",
        found.by_command,
        found.records,
    )


def _scored_ranking(
    name: str,
    title: str,
    note: str,
    what: str,
    groups: Mapping[str, Group],
    total: int,
    most: int = RANKED,
) -> Figure:
    """Bars of records, and beside them the mean irreducibility of the same groups."""
    first = list(groups.items())[:most]
    labels = _labels(one for one, _ in first)
    gutter = _gutter(labels)
    room = WIDTH - 2 * _PADDING - gutter - _GAP - _OVERHANG
    values = [
        {"label": label, "records": one.records, "mean": one.mean_irreducibility}
        for label, (_, one) in zip(labels, first, strict=True)
    ]
    y = {"field": "label", "type": "nominal", "sort": None}
    spoken = ", ".join(
        f"{label} {share(one.records, total)}"
        for label, (_, one) in zip(labels[:3], first[:3], strict=True)
    )
    return Figure(
        name,
        title,
        note,
        f"Bars of records and points of mean irreducibility by {what}; the most frequent: "
        f"{spoken}.",
        {
            "autosize": "pad",
            "data": {"values": values},
            "spacing": _GAP,
            "hconcat": [
                {
                    "width": 0.55 * room,
                    "height": {"step": ROW},
                    "mark": {"type": "bar", "height": {"band": 0.7}},
                    "encoding": {
                        "y": {**y, "axis": _label_axis(gutter)},
                        "x": {**_counted("records"), "axis": _few_ticks("records")},
                    },
                },
                {
                    "width": 0.45 * room,
                    "height": {"step": ROW},
                    "mark": {
                        "type": "point",
                        "filled": True,
                        "color": ACCENT,
                        "size": 55,
                        "opacity": 1,
                    },
                    "encoding": {
                        "y": {**y, "axis": {"labels": False, "title": None, "grid": True}},
                        "x": {
                            "field": "mean",
                            "type": "quantitative",
                            "scale": {"domain": [0, 1]},
                            "axis": {"title": "mean irreducibility", "values": [0, 0.5, 1]},
                        },
                    },
                },
            ],
        },
        (what, "records", "share", "scored", "mean irreducibility", "median"),
        tuple(
            (
                _label(one) if one else f"(no {what})",
                count(group.records),
                share(group.records, total),
                count(group.scored),
                number(group.mean_irreducibility),
                number(group.quartiles[1] if group.quartiles else None),
            )
            for one, group in list(groups.items())[:TABLED]
        ),
    )


def _exits(found: Statistics) -> Figure:
    total = found.records
    named = [
        (f"{code} ({EXITS[code]})" if code in EXITS else str(code), records)
        for code, records in found.by_exit_code.items()
    ]
    return _ranking(
        "exits",
        "Exit codes",
        "Of the last command; a failure is data like any other. From 129 on mostly the number of "
        "the signal that ended it, plus 128.",
        "exit code",
        named,
        total,
    )


def _effects(found: Statistics) -> Figure:
    changed = sorted(
        ((name, records) for name, records in found.effects.items() if records),
        key=lambda item: -item[1],
    )
    return _ranking(
        "effects",
        "What inputs change",
        "From the context patches. An input that does several of these is counted in each.",
        "effect",
        changed,
        found.records,
    )


def _sizes(found: Statistics) -> Figure:
    total = found.records
    last = max(found.output_sizes, default=0)
    bounds = [0]
    while bounds[-1] < last:
        bounds.append(bounds[-1] * 4 or 1)
    named = [(_sized(bound), found.output_sizes.get(bound, 0)) for bound in bounds]
    return Figure(
        "sizes",
        "How much inputs print",
        "Standard output and error together; each class is four times as wide as the one before.",
        f"Records by size of the output; {share(found.output_sizes.get(0, 0), total)} print "
        "nothing.",
        {
            "data": {"values": [{"size": name, "records": records} for name, records in named]},
            "width": WIDTH,
            "height": HEIGHT,
            "mark": "bar",
            "encoding": {
                "x": {
                    "field": "size",
                    "type": "ordinal",
                    "sort": None,
                    "axis": {
                        "title": "output, from … bytes on",
                        "labelAngle": 0,
                        "labelOverlap": False,
                        "labelFontSize": 11,
                    },
                },
                "y": _counted("records"),
            },
        },
        ("output from", "records", "share"),
        tuple((name, count(records), share(records, total)) for name, records in named),
    )


def _sized(bound: int) -> str:
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if bound >= size:
            return f"{bound // size}{unit}"
    return str(bound)


def _ranking(
    name: str, title: str, note: str, what: str, named: Sequence[tuple[str, int]], total: int
) -> Figure:
    """Horizontal bars with their share at the end."""
    first = named[:RANKED]
    labels = _labels(one for one, _ in first)
    gutter = _gutter(labels)
    values = [
        {"label": label, "records": records, "share": share(records, total)}
        for label, (_, records) in zip(labels, first, strict=True)
    ]
    spoken = ", ".join(f"{one['label']} {one['share']}" for one in values[:4])
    return Figure(
        name,
        title,
        note,
        f"Records by {what}: {spoken}.",
        {
            "data": {"values": values},
            "autosize": "pad",
            "width": WIDTH - 2 * _PADDING - gutter - _OVERHANG,
            "height": {"step": ROW + 3},
            "encoding": {
                "y": {
                    "field": "label",
                    "type": "nominal",
                    "sort": None,
                    "axis": _label_axis(gutter),
                },
                "x": {
                    **_counted("records"),
                    "axis": _few_ticks("records"),
                    "scale": {"domainMax": 1.2 * max((n for _, n in first), default=1)},
                },
            },
            "layer": [
                {"mark": {"type": "bar", "height": {"band": 0.7}}},
                {
                    "mark": {"type": "text", "align": "left", "dx": 5},
                    "encoding": {"text": {"field": "share"}},
                },
            ],
        },
        (what, "records", "share"),
        tuple(
            (visible(one), count(records), share(records, total)) for one, records in named[:TABLED]
        ),
    )


def _counted(title: str) -> Spec:
    return {
        "field": "records",
        "type": "quantitative",
        "axis": {"title": title, "tickCount": 4, "tickMinStep": 1, "format": "~s"},
    }


def _few_ticks(title: str) -> Spec:
    return {"title": title, "tickCount": 3, "tickMinStep": 1, "format": "~s"}


def _label_axis(gutter: float) -> Spec:
    return {
        "title": None,
        "labelColor": INK,
        "labelLimit": gutter - 6,
        "minExtent": gutter,
        "maxExtent": gutter,
    }


def _gutter(labels: Sequence[str]) -> float:
    """Width for labels in pixels, of whatever font the reader has."""
    return min(LABEL, 6.6 * max(map(len, labels), default=0)) + 10


def _label(text: str) -> str:
    shown = visible(text).replace("\n", "\\n").replace("\t", "\\t")
    return shown if len(shown) <= 40 else f"{shown[:39]}…"


def _labels(texts: Iterable[str]) -> list[str]:
    """Labels of a chart: shortened, and still different from each other."""
    found: list[str] = []
    for text in texts:
        label = short = _label(text) or "(none)"
        extra = 2
        while label in found:
            label, extra = f"{short} ({extra})", extra + 1
        found.append(label)
    return found
