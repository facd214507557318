"""The picture of irreducibility by number of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shioenv.experiments import quoted
from shioenv.experiments.charts import PAPER, STYLES, Spec, arguments_axis, styled, titled
from shioenv.experiments.length_groups import FEW, GROUPS, Cell, gains_of, scores_of
from shioenv.experiments.scores import NAMES, Score, values
from shioenv.report.charts import INK, MUTED
from shioenv.report.means import cumulative
from shioenv.report.text import fixed

STYLE = dict(zip(NAMES.values(), (STYLES[3], STYLES[0], STYLES[1]), strict=True))
"""GCS blue, UCS dark, UCS universal grey."""


def chart_of(scores: Sequence[Score], found: Sequence[Cell], budget: int) -> Spec:
    """Spreads, means, gains and distribution functions; `found` are the cells of the scores."""
    lengths = sorted({cell.n for cell in found}) or [1]
    counted = len(scores) // len(NAMES)
    return {
        "title": titled(
            "Irreducibility by number of arguments",
            f"{counted:,} inputs of each sampler (single commands), at most {budget} sub-inputs "
            "of each executed.",
            f"Orange: what the paper says. Nothing is shown of fewer than {FEW} inputs.",
        ),
        "columns": len(NAMES),
        "concat": [
            *(_spread_panel(found, name, lengths) for name in NAMES.values()),
            *(_means_panel(found, group, lengths) for group in GROUPS),
            _gain_panel(scores, lengths),
            _distribution_panel(scores, 0, "distribution, all with a score"),
            _distribution_panel(scores, 2, "distribution, 2 arguments and more"),
        ],
        "spacing": {"row": 24, "column": 30},
        "resolve": {"legend": {"color": "shared", "shape": "shared", "strokeDash": "shared"}},
    }  # fmt: skip


def _sized(title: str) -> Spec:
    return {
        "title": {"text": title, "fontSize": 13, "color": INK, "offset": 6},
        "width": 260,
        "height": 190,
    }


def _score_axis(field: str = "mean", title: str = "irreducibility (0 to 1)") -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"domain": [0, 1]},
        "axis": {"title": title, "tickCount": 5},
    }


def _series() -> Spec:
    names = tuple(NAMES.values())
    return styled("sampler", names, "sampler", tuple(STYLE[name] for name in names))


def _values(found: Sequence[Cell], group: str) -> list[dict[str, Any]]:
    """The cells of a group; those of successive lengths have the same `run`, to be one line."""
    shown = [cell for cell in found if cell.group == group and cell.spread.count >= FEW]
    return [
        {
            "sampler": cell.sampler,
            "arguments": cell.n,
            "mean": cell.spread.mean,
            "low": max(0.0, cell.spread.mean - cell.spread.sd),
            "high": min(1.0, cell.spread.mean + cell.spread.sd),
            "run": cell.n - place,
        }
        for place, cell in enumerate(shown)
    ]


def _spread_panel(found: Sequence[Cell], name: str, lengths: Sequence[int]) -> Spec:
    """One sampler's means with a standard deviation on both sides."""
    y, style = _score_axis(), STYLE[name]
    mine = [one for one in _values(found, "all inputs") if one["sampler"] == name]
    return {
        **_sized(f"{name}: mean ± standard deviation"),
        "data": {"values": mine},
        "encoding": {"x": arguments_axis(lengths)},
        "layer": [
            {
                "mark": {"type": "area", "color": style.colour, "opacity": 0.18},
                "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "color": style.colour, "strokeWidth": 2.2,
                         "strokeDash": list(style.dash)},
                "encoding": {"y": y},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 42, "opacity": 1,
                         "color": style.colour, "shape": style.shape},
                "encoding": {"y": y},
            },
        ],
    }  # fmt: skip


def _means_panel(found: Sequence[Cell], group: str, lengths: Sequence[int]) -> Spec:
    """All samplers' means, of one group of inputs."""
    y, series = _score_axis(), _series()
    layers: list[Spec] = [
        {
            "data": {"values": _values(found, group)},
            "encoding": {"x": arguments_axis(lengths), "y": y, "color": series["color"]},
            "layer": [
                {
                    "mark": {"type": "line", "strokeWidth": 2.2},
                    "encoding": {"strokeDash": series["strokeDash"], "detail": {"field": "run"}},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 42, "opacity": 1},
                    "encoding": {"shape": series["shape"]},
                },
            ],
        }
    ]
    if group == "all inputs" and max(lengths) >= quoted.LENGTH:
        layers += _quoted_means(lengths)
    return {**_sized(group), "layer": layers}


def _quoted_means(lengths: Sequence[int]) -> list[Spec]:
    values = [
        {"arguments": quoted.LENGTH, "mean": mean, "label": f"{sampler.upper()} {fixed(mean)}"}
        for sampler, mean in quoted.MEANS.items()
    ]
    place = {"x": arguments_axis(lengths), "y": _score_axis()}
    return [
        {
            "data": {"values": values},
            "encoding": place,
            "layer": [
                {"mark": {"type": "point", "shape": "diamond", "filled": True, "size": 80,
                          "opacity": 1, "color": PAPER}},
                {
                    "mark": {"type": "text", "align": "right", "dx": 6, "dy": 16, "color": PAPER},
                    "encoding": {"text": {"field": "label"}},
                },
            ],
        }
    ]  # fmt: skip


def _gain_panel(scores: Sequence[Score], lengths: Sequence[int]) -> Spec:
    """GCS above UCS, with the paper's range."""
    values = [
        {"arguments": n, "gain": gain.value, "low": gain.low, "high": gain.high}
        for n, gain in gains_of(scores, GROUPS["all inputs"]).items()
    ]
    y: Spec = {
        "field": "gain",
        "type": "quantitative",
        "axis": {"title": "difference of means", "tickCount": 6, "format": "+.2f"},
    }
    low, high = quoted.GAINS
    last = max(2, min(12, max(lengths)))
    return {
        **_sized("GCS above UCS (95% intervals), all inputs"),
        "layer": [
            {
                "data": {"values": [{"from": 2, "to": last, "low": low, "high": high}]},
                "mark": {"type": "rect", "color": PAPER, "opacity": 0.2},
                "encoding": {
                    "x": {**arguments_axis(lengths), "field": "from"},
                    "x2": {"field": "to"},
                    "y": {**y, "field": "low"},
                    "y2": {"field": "high"},
                },
            },
            {
                "data": {"values": [{"zero": 0}]},
                "mark": {"type": "rule", "color": MUTED},
                "encoding": {"y": {"field": "zero", "type": "quantitative"}},
            },
            {
                "data": {"values": values},
                "encoding": {"x": arguments_axis(lengths)},
                "layer": [
                    {
                        "mark": {"type": "rule", "color": INK, "strokeWidth": 1.4},
                        "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
                    },
                    {
                        "mark": {"type": "point", "filled": True, "color": INK, "size": 42,
                                 "opacity": 1},
                        "encoding": {"y": y},
                    },
                ],
            },
        ],
    }  # fmt: skip


def _distribution_panel(scores: Sequence[Score], least: int, title: str) -> Spec:
    """The share of inputs up to each score; the paper's share at exactly 1 is left above a rule."""
    series = _series()
    points = [
        {"sampler": name, "score": x, "share": share}
        for sampler, name in NAMES.items()
        for x, share in cumulative(values(scores_of(scores, sampler, least)))
    ]
    rule = [{"share": 1 - quoted.PERFECT, "label": "paper, GCS: > 20% at 1"}]
    return {
        **_sized(title),
        "layer": [
            {
                "data": {"values": rule},
                "encoding": {"y": {"field": "share", "type": "quantitative"}},
                "layer": [
                    {"mark": {"type": "rule", "color": PAPER, "strokeDash": [2, 2],
                              "strokeWidth": 1.6}},
                    {
                        "mark": {"type": "text", "color": PAPER, "align": "left",
                                 "baseline": "bottom", "dx": 4, "dy": -2, "x": 0, "fontSize": 10},
                        "encoding": {"text": {"field": "label"}},
                    },
                ],
            },
            {
                "data": {"values": points},
                "mark": {"type": "line", "strokeWidth": 2, "interpolate": "step-after"},
                "encoding": {
                    "x": {
                        "field": "score",
                        "type": "quantitative",
                        "scale": {"domain": [0, 1]},
                        "axis": {"title": "irreducibility (0 to 1)", "tickCount": 5},
                    },
                    "y": _score_axis("share", "share of inputs up to it"),
                    "color": series["color"],
                    "strokeDash": series["strokeDash"],
                },
            },
        ],
    }  # fmt: skip
