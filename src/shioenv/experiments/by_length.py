"""Irreducibility by number of arguments, of inputs that the three samplers write.

Section 4.3 of the paper. Single commands, every number of arguments equally often.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shioenv.dataset.report.charts import INK, MUTED
from shioenv.experiments import quoted
from shioenv.experiments.charts import PAPER, STYLES, Spec, arguments_axis, styled, titled
from shioenv.experiments.means import Spread, Z, cumulative, fixed
from shioenv.experiments.results import Findings, Outcome, Table, check_libraries, write
from shioenv.experiments.scores import NAMES, Made, Score, columns, made, values
from shioenv.experiments.setting import Setting
from shioenv.irreducibility.score import BUDGET, ESTIMATOR

NAME = "irreducibility-by-length"
COUNT = 50_000
"""Inputs of each sampler at full size: 3,846 of each length from 0 to 12."""
PAPER_COUNT = 250_000
"""Inputs of each sampler in the paper."""

FEW = 5
"""Inputs whose mean is not worth a point in the picture."""

Group = Callable[[Score], bool]

GROUPS: Mapping[str, Group] = {
    "all inputs": lambda score: True,
    "inputs that succeed (exit 0)": lambda score: score.exit_code == 0,
    "inputs that fail (other exits)": lambda score: score.exit_code != 0,
}
"""Samplers write different shares of inputs that fail, and of those other arguments matter."""

STYLE = dict(zip(NAMES.values(), (STYLES[3], STYLES[0], STYLES[1]), strict=True))
"""GCS blue, UCS dark, UCS universal grey."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The scores of one sampler's inputs of one length, in one of `GROUPS`."""

    sampler: str
    n: int
    group: str
    spread: Spread
    ones: int
    """Those that are exactly 1."""


def run(
    setting: Setting, *, count: int = COUNT, budget: int = BUDGET, estimator: str = ESTIMATOR
) -> Outcome:
    """Generates `count` inputs with each sampler and writes what came out.

    Errors: MissingExtraError before anything is executed; those of `made` and `write`.
    """
    check_libraries()
    started = time.monotonic()
    datasets = {
        sampler: made(
            setting, f"{sampler}-lengths", sampler, count,
            budget=budget, estimator=estimator, policy="lengths", composite_share=0.0,
        )
        for sampler in NAMES
    }  # fmt: skip
    scores = [score for one in datasets.values() for score in one.scores]
    found = _cells(scores)
    findings = Findings(
        title="Irreducibility by number of arguments",
        data={"scores": columns(scores)},
        tables=[
            *(_table(found, group) for group in GROUPS),
            _gain_table(found),
            _distribution_table(scores),
        ],
        chart=_chart(scores, found, budget),
        counts=_counts(datasets),
        parameters={"inputs of each sampler": count, "budget": budget, "estimator": estimator},
        summary=_summary(scores, found),
    )
    return write(setting, NAME, findings, started=started)


def _cells(scores: Sequence[Score]) -> list[Cell]:
    found = []
    for sampler, name in NAMES.items():
        mine = [one for one in scores if one.sampler == sampler]
        for n in sorted({one.n_arguments for one in mine if one.n_arguments}):
            here = [one for one in mine if one.n_arguments == n]
            for group, holds in GROUPS.items():
                numbers = values(here, holds)
                spread = Spread.of(numbers)
                if spread is not None:
                    ones = sum(number >= 1 for number in numbers)
                    found.append(Cell(name, n, group, spread, ones))
    return found


def _by_place(found: Sequence[Cell], group: str) -> dict[tuple[str, int], Cell]:
    return {(cell.sampler, cell.n): cell for cell in found if cell.group == group}


def _gain(found: Sequence[Cell], group: str) -> dict[int, tuple[float, float]]:
    """By length: how much higher the mean of GCS is than that of UCS, and its standard error."""
    cells = _by_place(found, group)
    gains = {}
    for (sampler, n), cell in cells.items():
        other = cells.get((NAMES["ucs"], n))
        if sampler != NAMES["gcs"] or other is None:
            continue
        if min(cell.spread.count, other.spread.count) > 1:
            variance = cell.spread.variance_of_mean + other.spread.variance_of_mean
            gains[n] = cell.spread.mean - other.spread.mean, math.sqrt(variance)
    return gains


def _table(found: Sequence[Cell], group: str) -> Table:
    cells = _by_place(found, group)
    lengths = sorted({n for _, n in cells})
    rows = []
    for n in lengths:
        row = [str(n)]
        for name in NAMES.values():
            cell = cells.get((name, n))
            if cell is None:
                row += ["0", "-", "-"]
                continue
            spread = cell.spread
            row += [
                f"{spread.count:,}",
                f"{spread.mean:.3f} ± {spread.sd:.3f}",
                f"{100 * cell.ones / spread.count:.1f}%",
            ]
        rows.append(row)
    return Table(
        f"By number of arguments, {group}",
        "Number of inputs, mean ± standard deviation, share of those that are exactly 1. With one "
        "argument the score is whether it matters; with none there is no score.",
        (
            "arguments",
            *(f"{name}{what}" for name in NAMES.values() for what in ("", " R*", " at 1")),
        ),
        rows,
    )


def _gain_table(found: Sequence[Cell]) -> Table:
    gains = {group: _gain(found, group) for group in GROUPS}
    cells = _by_place(found, "all inputs")
    rows = []
    for n in sorted({n for one in gains.values() for n in one}):
        ucs, gcs = cells[NAMES["ucs"], n].spread.mean, cells[NAMES["gcs"], n].spread.mean
        rows.append(
            (
                str(n),
                *(_interval(one.get(n)) for one in gains.values()),
                f"{100 * (gcs / ucs - 1):+.0f}%" if ucs else "-",
            )
        )
    said, other = quoted.MEANS["gcs"], quoted.MEANS["ucs"]
    return Table(
        "GCS above UCS",
        f"Difference of the means with its 95% interval. The paper says +{quoted.GAINS[0]} to "
        f"+{quoted.GAINS[1]} for lengths from 2 to 12 (about 20% to 170%), and {said} against "
        f"{other} (+{said - other:.3f}) at length {quoted.LENGTH}, which may count the command.",
        ("arguments", *GROUPS, "relative, all inputs"),
        rows,
    )


def _interval(gain: tuple[float, float] | None) -> str:
    if gain is None:
        return "-"
    value, error = gain
    return f"{value:+.3f} ({value - Z * error:+.3f} to {value + Z * error:+.3f})"


def _distribution_table(scores: Sequence[Score]) -> Table:
    rows = []
    for sampler, name in NAMES.items():
        for least, label in ((0, "all with a score"), (2, "2 and more")):
            for group, holds in GROUPS.items():
                numbers = values(_of(scores, sampler, least), holds)
                rows.append((name, label, group, *_quantiles(numbers)))
    return Table(
        "Distributions",
        f"The paper says that over {quoted.PERFECT:.0%} of its GCS inputs are exactly 1. With one "
        "argument nearly every input is, so shares without them are given too.",
        ("sampler", "arguments", "inputs", "number", "mean", "exactly 0", "up to 0.5", "exactly 1"),
        rows,
    )


def _of(scores: Sequence[Score], sampler: str, least: int) -> list[Score]:
    """A sampler's scores of inputs with so many arguments at least."""
    return [one for one in scores if one.sampler == sampler and one.n_arguments >= least]


def _quantiles(numbers: Sequence[float]) -> tuple[str, ...]:
    if not numbers:
        return "0", "-", "-", "-", "-"
    count = len(numbers)

    def share(holds: Callable[[float], bool]) -> str:
        return f"{100 * sum(map(holds, numbers)) / count:.1f}%"

    return (
        f"{count:,}",
        f"{sum(numbers) / count:.3f}",
        share(lambda number: number <= 0),
        share(lambda number: number <= 0.5),
        share(lambda number: number >= 1),
    )


def _counts(datasets: Mapping[str, Made]) -> dict[str, Any]:
    return {
        sampler: {
            "inputs": len(one.scores),
            "executed by an earlier call": len(one.scores) - min(one.new, len(one.scores)),
            "volatile": sum(score.volatile for score in one.scores),
            "fail": sum(score.exit_code != 0 for score in one.scores),
            "mean executions": round(
                sum(score.n_executions for score in one.scores) / len(one.scores), 1
            ),
        }
        for sampler, one in datasets.items()
    }


def _summary(scores: Sequence[Score], found: Sequence[Cell]) -> dict[str, Any]:
    gains = {n: gain for n, (gain, _) in _gain(found, "all inputs").items() if n > 1}
    cells = _by_place(found, "all inputs")
    at = {
        name: cells[name, quoted.LENGTH].spread.mean
        for name in NAMES.values()
        if (name, quoted.LENGTH) in cells
    }
    gcs = values(scores, lambda one: one.sampler == "gcs")
    return {
        "GCS above UCS, least": min(gains.values(), default=None),
        "GCS above UCS, most": max(gains.values(), default=None),
        f"means at length {quoted.LENGTH}": at,
        "share of GCS inputs at exactly 1": sum(one >= 1 for one in gcs) / len(gcs),
    }


# ---- the picture ----


def _chart(scores: Sequence[Score], found: Sequence[Cell], budget: int) -> Spec:
    lengths = sorted({cell.n for cell in found})
    counted = len(scores) // len(NAMES)
    return {
        "title": titled(
            "Irreducibility by number of arguments",
            f"{counted:,} inputs of each sampler (single commands), at most {budget} sub-inputs "
            "of each executed.",
            f"Orange: what the paper says. Means of fewer than {FEW} inputs are left out.",
        ),
        "columns": len(NAMES),
        "concat": [
            *(_spread_panel(found, name, lengths) for name in NAMES.values()),
            *(_means_panel(found, group, lengths) for group in GROUPS),
            _gain_panel(found, lengths),
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
    return [
        {
            "sampler": cell.sampler,
            "arguments": cell.n,
            "mean": cell.spread.mean,
            "low": max(0.0, cell.spread.mean - cell.spread.sd),
            "high": min(1.0, cell.spread.mean + cell.spread.sd),
            "inputs": cell.spread.count,
        }
        for cell in found
        if cell.group == group and cell.spread.count >= FEW
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
                    "encoding": {"strokeDash": series["strokeDash"]},
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
                    "mark": {"type": "text", "align": "right", "dx": -8, "color": PAPER},
                    "encoding": {"text": {"field": "label"}},
                },
            ],
        }
    ]  # fmt: skip


def _gain_panel(found: Sequence[Cell], lengths: Sequence[int]) -> Spec:
    """GCS above UCS, with the paper's range."""
    values = [
        {"arguments": n, "gain": gain, "low": gain - Z * error, "high": gain + Z * error}
        for n, (gain, error) in _gain(found, "all inputs").items()
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
        for x, share in cumulative(values(_of(scores, sampler, least)))
    ]
    rule = [{"share": 1 - quoted.PERFECT, "label": "paper: over 20% of GCS are 1"}]
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
                                 "baseline": "bottom", "dx": 4, "dy": -3, "x": 0},
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
