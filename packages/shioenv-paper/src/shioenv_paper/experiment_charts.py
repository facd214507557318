"""The pictures of the experiments."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from shioenv.irreducibility.estimators import ESTIMATORS
from shioenv.text import fixed, share
from shioenv_eval.report.chart_style import ACCENT, INK, MAIN, MUTED, RAMP, SOFT, STYLES, Style
from shioenv_eval.report.means import Mean, Moments, cumulative
from shioenv_eval.report.panels import (
    PAPER,
    Rows,
    alone,
    bars,
    chart,
    draw_paper_points,
    histogram,
    lengths_axis,
    means,
    score_axis,
    sized,
    styled,
    titled,
)
from shioenv_eval.report.statistics import BINS, bin_of
from shioenv_paper.estimator_replay import PAPER_ERRORS, Cell, Cells
from shioenv_paper.length_groups import (
    FEW,
    GROUPS,
    PAPER_GAINS,
    PAPER_LENGTH,
    PAPER_MEANS,
    PAPER_PERFECT,
    LengthCell,
    gains_of,
    group_scores,
)
from shioenv_paper.repeats import REASONS, RepeatVerdict
from shioenv_paper.scores import NAMES, PAPER_TRAINING, ScoredRecord, ones, values

if TYPE_CHECKING:
    from shioenv_paper.learners import PolicyEpisode
    from shioenv_paper.regimes import RegimeRow

REASON_COLOURS = dict(zip(REASONS, ("#cfe2f2", RAMP[1], INK, ACCENT), strict=True))

SAMPLERS = dict(zip(NAMES.values(), (STYLES[3], STYLES[0], STYLES[1]), strict=True))
"""The style of each sampler: GCS is blue, UCS dark, UCS universal grey."""

PAPER_SAMPLERS = (NAMES["gcs"], NAMES["ucs"])

DODGE = 0.07
"""Offset between the intervals of two budgets, in arguments, so that they do not overlap."""

POINTS = 25
"""A learning curve has 25 to 49 points, or one per episode if there are fewer episodes."""

_SHARED: dict[str, Any] = {"color": "shared", "shape": "shared", "strokeDash": "shared"}


# ---- determinism ----


def draw_determinism(
    groups: Mapping[str, Sequence[RepeatVerdict]], shares: Mapping[str, float], passes: str
) -> alt.Chart:
    """Draw differing inputs by command and reason; `passes` describes the inputs and passes."""
    rows = [
        {
            "label": f"{name} ({len(group)})",
            "reason": reason,
            "order": order,
            "inputs": sum(verdict.reason == reason for verdict in group),
        }
        for name, group in groups.items()
        for order, reason in enumerate(REASONS)
    ]
    axis = alt.Axis(tickCount=6, tickMinStep=1, grid=True)
    x = alt.X("inputs:Q", title="inputs that differ between passes", axis=axis)
    colours = alt.Scale(domain=list(REASONS), range=list(REASON_COLOURS.values()))
    bar = bars(rows, x, step=19, labelLimit=220).properties(width=420)
    return titled(
        bar.encode(color=alt.Color("reason:N", title="reason", scale=colours), order="order:Q"),
        f"{shares['identical, of all inputs']:.1%} of {passes}",
        "Of the inputs that no grammar declares volatile: "
        f"{shares['identical, of those not declared volatile']:.1%}.",
        "Bars: inputs that differ, by command (in brackets: its number of inputs) and reason. "
        "Commands without a bar never differ.",
    )


# ---- estimates against exact scores ----


def draw_estimators(
    groups: Mapping[str, Cells], quoted_for: str | None, inputs: int, replays: int
) -> alt.HConcatChart:
    """Draw error against executions, with one panel for each group.

    The paper's errors are shown in the panel of the group `quoted_for`.
    """
    scale = alt.Scale(type="log", domain=[3.5, 300], nice=False, clamp=True)
    axis = alt.Axis(values=[4, 8, 16, 32, 64, 128, 256], format="d", grid=True)
    x = alt.X("executions:Q", title="sub-inputs executed per input", scale=scale, axis=axis)

    def y(field: str) -> alt.Y:
        scale = alt.Scale(type="log", domain=[0.001, 0.3], nice=False, clamp=True)
        axis = alt.Axis(values=[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2], format="~g")
        return alt.Y(f"{field}:Q", title="mean absolute error", scale=scale, axis=axis)

    series = styled("estimator", tuple(ESTIMATORS), "estimator")
    stated = [
        {"executions": budget, "mean": error, "label": f"paper: {fixed(error, 2)}"}
        for budget, error in PAPER_ERRORS.items()
    ]
    panels = []
    for label, group in groups.items():
        rows = [
            {"executions": cell.executions, **_errors(cell, least=1e-4)}
            for cell in group.values()
            if cell.error.value > 0
        ]
        panel = means(rows, x, y, series, interval="band")
        if label == quoted_for:
            panel = alt.LayerChart(layer=[panel, draw_paper_points(stated, x, y("mean"), dy=17)])
        panels.append(sized(panel, label, 360, 330))
    return titled(
        alt.hconcat(*panels, spacing=34).resolve_legend(**_SHARED),
        "Error of estimates by number of executions",
        f"{inputs:,} inputs (GCS, single commands) with all sub-inputs executed; "
        f"{replays} estimates of each input at each budget. Bands: 95% intervals over inputs.",
        "Lower and further left is better. Both axes are logarithmic.",
    )


def _errors(cell: Cell, least: float = 0.0) -> dict[str, Any]:
    error = cell.error
    ends = {"low": max(error.low, least), "high": error.high}
    return {"estimator": cell.estimator, "budget": cell.budget, "mean": error.value, **ends}


def draw_sampling_efficiency(
    by_length: Mapping[int, Cells], inputs: int, replays: int
) -> alt.ConcatChart:
    """Draw errors by number of arguments and budget, with one panel for each estimator."""
    budgets = sorted({cell.budget for group in by_length.values() for cell in group.values()})
    middle = (len(budgets) - 1) / 2
    rows = [
        {"arguments": n + DODGE * (budgets.index(cell.budget) - middle), **_errors(cell)}
        for n, group in by_length.items()
        for cell in group.values()
        if (1 << n) - 1 > cell.budget
    ]
    top = max((row["high"] for row in rows), default=0.1)

    def y(field: str) -> alt.Y:
        axis, scale = alt.Axis(tickCount=6, format=".2f"), alt.Scale(domain=[0, top], nice=False)
        return alt.Y(f"{field}:Q", title="mean absolute error", scale=scale, axis=axis)

    x = lengths_axis(list(by_length))
    scale = alt.Scale(domain=budgets, range=list(RAMP))
    series = {"color": alt.Color("budget:O", title="budget M", scale=scale)}
    panels = []
    for name in ESTIMATORS:
        mine = [row for row in rows if row["estimator"] == name]
        panel = means(mine, x, y, series, interval="rule")
        if max(by_length) >= PAPER_LENGTH:
            panel = alt.LayerChart(layer=[panel, *_paper_errors(x, y("mean"), max(by_length))])
        panels.append(sized(panel, f"estimator: {name}", 350, 230))
    return titled(
        alt.concat(*panels, columns=2, spacing={"row": 26, "column": 30}),
        "Error of estimated irreducibility",
        f"{inputs:,} inputs (GCS, single commands), all sub-inputs of each executed; "
        f"{replays} estimates of each. Bars: 95% intervals over inputs. "
        "A line begins at the first length whose sub-inputs exceed its budget.",
        "Diamonds: the errors that the paper reports for its estimator and its longest inputs, "
        "which may have 11 or 12 removable arguments.",
    )


def _paper_errors(x: alt.X, y: alt.Y, longest: int) -> Iterator[alt.Chart | alt.LayerChart]:
    """Draw the paper's errors, as lines from 11 to 12 arguments."""
    last = min(longest, PAPER_LENGTH + 1)
    for (budget, error), dy in zip(PAPER_ERRORS.items(), (-5, 6), strict=True):
        row = {"arguments": last, "from": PAPER_LENGTH, "mean": error, "label": f"M={budget}"}
        rule = chart([row]).mark_rule(strokeWidth=2, color=PAPER)
        yield rule.encode(x=x, x2="from:Q", y=y)
        yield draw_paper_points([row], x, y, align="left", dx=9, dy=dy, fontSize=10)


# ---- irreducibility by number of arguments ----


def by_length(
    scores: Sequence[ScoredRecord], cells: Sequence[LengthCell], budget: int
) -> alt.ConcatChart:
    """Draw spreads, means, gains and distribution functions; `cells` are the cells of `scores`."""
    lengths = sorted({cell.n for cell in cells}) or [1]
    series = styled("sampler", tuple(SAMPLERS), "sampler", tuple(SAMPLERS.values()))
    panels = {
        # the paper's Figure 4: both samplers with their bands
        "GCS and UCS: mean ± standard deviation": means(
            [row for row in _means(cells, "all inputs") if row["sampler"] in PAPER_SAMPLERS],
            lengths_axis(lengths), _score, series, interval="band",
        ),
        "UCS universal: mean ± standard deviation": means(
            [row for row in _means(cells, "all inputs") if row["sampler"] not in PAPER_SAMPLERS],
            lengths_axis(lengths), _score, alone(SAMPLERS[NAMES["ucs-universal"]]), interval="band",
        ),
        **{group: _means_panel(cells, group, lengths, series) for group in GROUPS},
        "GCS minus UCS (95% intervals), all inputs": _gain_panel(scores, lengths),
        "distribution, all with a score": _distribution_panel(scores, 0, series),
        "distribution, 2 arguments and more": _distribution_panel(scores, 2, series),
    }  # fmt: skip
    sizes = [sized(panel, title, 260, 190) for title, panel in panels.items()]
    whole = alt.concat(*sizes, columns=len(NAMES), spacing={"row": 24, "column": 30})
    return titled(
        whole.resolve_legend(**_SHARED),
        "Irreducibility by number of arguments",
        f"{len(scores) // len(NAMES):,} inputs of each sampler (single commands), at most {budget} "
        "sub-inputs of each executed.",
        f"Orange: figures of the paper. Points of fewer than {FEW} inputs are not shown.",
    )


def _score(field: str) -> alt.Y:
    return alt.Y(**score_axis(field))


def _means(cells: Sequence[LengthCell], group: str) -> list[dict[str, Any]]:
    """Return the cells of a group as rows; consecutive lengths share a `run` and a line."""
    shown = [cell for cell in cells if cell.group == group and cell.moments.count >= FEW]
    return [
        {
            "sampler": cell.sampler,
            "arguments": cell.n,
            "run": cell.n - place,
            **_reach(cell.moments),
        }
        for place, cell in enumerate(shown)
    ]


def _reach(moments: Moments) -> dict[str, float]:
    """Return a mean with an interval of one standard deviation on both sides."""
    low, high = max(0.0, moments.mean - moments.sd), min(1.0, moments.mean + moments.sd)
    return {"mean": moments.mean, "low": low, "high": high}


def _means_panel(
    cells: Sequence[LengthCell], group: str, lengths: Sequence[int], series: Mapping[str, Any]
) -> alt.LayerChart:
    """Draw all samplers' means of one group of inputs, with the paper's means where applicable."""
    x = lengths_axis(lengths)
    panel = means(_means(cells, group), x, _score, {**series, "detail": "run:N"})
    if group != "all inputs" or max(lengths) < PAPER_LENGTH:
        return panel
    rows = [
        {"arguments": PAPER_LENGTH, "mean": mean, "label": f"{sampler.upper()} {fixed(mean)}"}
        for sampler, mean in PAPER_MEANS.items()
    ]
    place = {"align": "right", "dx": 6, "dy": 16}
    return alt.LayerChart(layer=[panel, draw_paper_points(rows, x, _score("mean"), **place)])


def _gain_panel(scores: Sequence[ScoredRecord], lengths: Sequence[int]) -> alt.LayerChart:
    """Draw the differences between the means of GCS and UCS, with the paper's range."""
    rows = [
        {"arguments": n, "mean": gain.value, "low": gain.low, "high": gain.high}
        for n, gain in gains_of(scores, GROUPS["all inputs"]).items()
    ]

    def y(field: str) -> alt.Y:
        axis = alt.Axis(tickCount=6, format="+.2f")
        return alt.Y(f"{field}:Q", title="difference of means", axis=axis)

    low, high = PAPER_GAINS
    last = max(2, min(12, max(lengths)))
    stated = chart([{"arguments": 2, "last": last, "low": low, "high": high}])
    x = lengths_axis(lengths)
    return alt.LayerChart(
        layer=[
            stated.mark_rect(color=PAPER, opacity=0.2).encode(
                x=x, x2="last:Q", y=y("low"), y2="high:Q"
            ),
            chart([{"mean": 0}]).mark_rule(color=MUTED).encode(y=y("mean")),
            means(rows, x, y, alone(Style(INK, (1, 0), "circle")), interval="rule", line=False),
        ]
    )


def _distribution_panel(
    scores: Sequence[ScoredRecord], least: int, series: Mapping[str, Any]
) -> alt.LayerChart:
    """Draw the share of inputs up to each score; a line marks the paper's share at exactly 1."""
    found = {name: values(group_scores(scores, sampler, least)) for sampler, name in NAMES.items()}
    y = _share_axis()
    stated = chart([{"share": 1 - PAPER_PERFECT, "label": "paper, GCS: > 20% at 1"}]).encode(y=y)
    label = stated.mark_text(
        color=PAPER, align="left", baseline="bottom", dx=4, dy=-2, x=0, fontSize=10
    )
    return alt.LayerChart(
        layer=[
            stated.mark_rule(color=PAPER, strokeDash=[2, 2], strokeWidth=1.6),
            label.encode(text="label:N"),
            _distributions(found, "sampler", series),
        ]
    )


def _distributions(
    found: Mapping[str, Sequence[float]], field: str, series: Mapping[str, Any]
) -> alt.Chart:
    """Draw the distribution function of each name's scores; `field` is the field of names."""
    rows = [
        {field: name, "score": place, "share": part}
        for name, numbers in found.items()
        for place, part in cumulative(numbers)
    ]
    steps = chart(rows).mark_line(strokeWidth=2, interpolate="step-after")
    styles = {name: series[name] for name in ("color", "strokeDash")}
    return steps.encode(x=alt.X(**score_axis("score")), y=_share_axis(), **styles)


def _share_axis() -> alt.Y:
    return alt.Y(**score_axis("share", "share of inputs with at most this score"))


# ---- policies ----


def draw_policies(scores: Mapping[str, Sequence[ScoredRecord]], budget: int) -> alt.HConcatChart:
    """Draw each policy's means by number of arguments, and its distribution function."""
    styles = dict(zip(scores, (STYLES[0], STYLES[3], STYLES[1]), strict=True))
    series = styled("policy", tuple(scores), "policy", tuple(styles.values()))
    lengths = range(1, 13)
    rows = [
        {"policy": policy, "arguments": n, **_reach(Moments.of(numbers))}
        for policy, found in scores.items()
        for n in lengths
        if len(numbers := values(found, lambda one, n=n: one.n_arguments == n)) >= FEW  # type: ignore[misc]
    ]
    found = {policy: values(records) for policy, records in scores.items()}
    distribution = _distributions(found, "policy", series)
    panels = (
        sized(means(rows, lengths_axis(lengths), _score, series), "mean", 330, 240),
        sized(distribution, "distribution, all with a score", 330, 240),
    )
    return titled(
        alt.hconcat(*panels, spacing=40).resolve_legend(**_SHARED),
        "Irreducibility by policy",
        f"{max(map(len, scores.values())):,} inputs of each policy, a quarter of them composites; "
        f"at most {budget} sub-inputs of each executed.",
        f"Means of fewer than {FEW} inputs are not shown.",
    )


# ---- steps to the paper's sampling ----


def draw_steps(steps: Mapping[str, Mean], stated: float) -> alt.LayerChart:
    """Draw the mean score of each step with its interval, and the paper's mean as a line."""
    rows = [
        {"step": name, "mean": mean.value, "low": mean.low, "high": mean.high}
        for name, mean in steps.items()
    ]
    axis = alt.Axis(labelColor=INK, labelLimit=220)
    y = alt.Y("step:N", sort=list(steps), title=None, axis=axis)
    x, points = alt.X(**score_axis("mean", "mean R*")), chart(rows).encode(y=y)
    paper = chart([{"mean": stated, "label": f"paper: {fixed(stated)}"}]).encode(x=x)
    label = paper.mark_text(color=PAPER, align="left", dx=5, y=8, fontSize=10)
    panel = alt.LayerChart(
        layer=[
            paper.mark_rule(color=PAPER, strokeDash=[2, 2], strokeWidth=1.6),
            label.encode(text="label:N"),
            points.mark_rule(color=MAIN, strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q"),
            points.mark_circle(color=MAIN, size=60, opacity=1).encode(x=x),
        ]
    )
    return titled(
        panel.properties(width=420, height=alt.Step(24)),
        "From our sampling to the paper's",
        "Mean score of inputs with 9 to 11 arguments; each step keeps the switches above it.",
        "Bars: 95% intervals over inputs.",
    )


# ---- training sets ----


def draw_training_sets(sets: Mapping[str, Sequence[float]]) -> alt.HConcatChart:
    """Draw the sets' means next to the paper's, and histograms of the first two: UCS and GCS."""
    ucs, gcs, *_ = sets.values()
    histograms = (
        _histogram("GCS", gcs, x_title=None),
        _histogram("UCS", ucs, x_title="irreducibility (0 to 1)"),
    )
    return titled(
        alt.hconcat(_sets_panel(sets), alt.vconcat(*histograms, spacing=18), spacing=40),
        "Scores of the training sets",
        f"{len(ucs):,} and {len(gcs):,} scored inputs of UCS and GCS, as `shioenv generate` makes "
        "them.",
        "Left: mean and standard deviation on both sides. Right: all scores; light and dark "
        "are the two sets that GCS is cut into at 0.5.",
    )


def _sets_panel(sets: Mapping[str, Sequence[float]]) -> alt.LayerChart:
    rows: list[dict[str, Any]] = []
    for name, numbers in sets.items():
        for who, moments in (
            ("ours", Moments.of(numbers)),
            ("paper", Moments(0, *PAPER_TRAINING.get(name, (math.nan, math.nan)))),
        ):
            if not math.isnan(moments.mean):
                label = f"{moments.mean:.2f} ± {moments.sd:.2f}"
                rows.append({"set": name, "who": who, "label": label, **_reach(moments)})
    styles = (Style(MAIN, (1, 0), "circle"), Style(PAPER, (1, 0), "diamond"))
    series = styled("who", ("ours", "paper"), None, styles, orient="top")
    room = alt.Scale(paddingOuter=0.7)

    def placed(rows: Rows) -> alt.Chart:
        return chart(rows).encode(
            y=alt.Y("set:N", sort=list(sets), title=None, axis=alt.Axis(labelColor=INK)),
            yOffset=alt.YOffset("who:N", sort=["ours", "paper"], scale=room),
            color=series["color"],
        )

    x = alt.X(**score_axis("mean", grid=True))
    whole = placed(rows)
    layers = [
        whole.mark_rule(strokeWidth=2).encode(x=alt.X(**score_axis("low", grid=True)), x2="high:Q"),
        whole.mark_point(filled=True, size=75, opacity=1).encode(x=x, shape=series["shape"]),
    ]
    for who, dy in (("ours", -9), ("paper", 10)):
        text = placed(row for row in rows if row["who"] == who).mark_text(align="left", dx=6, dy=dy)
        layers.append(text.encode(x=x, text="label:N", color=alt.value(MUTED)))
    return alt.LayerChart(layer=layers).properties(width=330, height=300)


def _histogram(name: str, numbers: Sequence[float], x_title: str | None) -> alt.Chart:
    counted = Counter(map(bin_of, numbers))
    shares = [counted[place] / max(len(numbers), 1) for place in range(BINS)]
    axis = alt.Axis(tickCount=4, format=".0%")
    y = {"shorthand": "value:Q", "title": "share of inputs", "axis": axis}
    colour = alt.condition("datum.from >= 0.5", alt.value(MAIN), alt.value(SOFT))
    title = f"{name}: {share(ones(numbers), len(numbers), 0)} are exactly 1"
    return sized(histogram(shares, x_title, y).encode(color=colour), title, 330, 118)


# ---- learners, regimes ----


def learning(training: Sequence[PolicyEpisode]) -> alt.Chart:
    """Draw the mean reward (0 to 1) by inputs executed, with one line for each regime and seed."""
    rows = list(_points(training))
    drawn = (
        chart(rows)
        .mark_line(strokeWidth=1.5)
        .encode(
            x=alt.X("inputs:Q", title="inputs executed"),
            y=alt.Y("reward:Q", title="mean reward"),
            color=alt.Color("regime:N", title="regime"),
            detail="seed:N",
        )
        .properties(width=420, height=240)
    )
    return titled(
        drawn,
        "Rewards during training",
        "A line for each seed. The reward is the share of 12 arguments that are necessary, 0 for "
        "inputs that fail, are volatile, or were written before.",
    )


def _points(training: Sequence[PolicyEpisode]) -> Iterator[dict[str, Any]]:
    for regime, seed in dict.fromkeys((one.regime, one.seed) for one in training):
        own = [one for one in training if (one.regime, one.seed) == (regime, seed)]
        size = max(1, len(own) // POINTS)
        for first in range(0, len(own) - size + 1, size):
            group = own[first : first + size]
            mean = sum(one.reward for one in group) / size
            yield {
                "regime": regime,
                "seed": str(seed),
                "inputs": group[-1].number,
                "reward": mean,
            }


def draw_regimes(rows: Sequence[RegimeRow]) -> alt.TopLevelMixin:
    """Draw EM (exact match, 0 to 1) by a model's number of records.

    One line for each model and regime connects the means of its draws. Each draw is a point. Each
    panel shows the single or the multi inputs of one suite.
    """
    draws: dict[tuple[str, ...], dict[int, list[RegimeRow]]] = {}
    for row in rows:
        key = (row.model, row.regime, f"{row.suite}, {row.steps}")
        draws.setdefault(key, {}).setdefault(row.size, []).append(row)
    points = [
        {
            "model": model,
            "regime": regime,
            "records": sum(row.records for row in found) / len(found),
            "em": one.em,
            "mean": sum(row.em for row in found) / len(found),
            "asked": asked,
        }
        for (model, regime, asked), sizes in draws.items()
        for found in sizes.values()
        for one in found
    ]
    encoded = chart(points).encode(
        x=alt.X("records:Q", title="records", scale=alt.Scale(type="log", nice=False)),
        color=alt.Color("regime:N", title="regime", sort=None),
    )
    line = encoded.mark_line(strokeWidth=1.5).encode(
        y=alt.Y("mean:Q", title="exact match", scale=alt.Scale(zero=True)),
        strokeDash=alt.StrokeDash("model:N", title="model"),
    )
    each = encoded.mark_point(filled=True, size=18, opacity=0.6).encode(y=alt.Y("em:Q"))
    drawn: alt.FacetChart = (
        alt.layer(line, each)
        .properties(width=240, height=200)
        .facet(facet=alt.Facet("asked:N", title=None), columns=2)
    )
    made: alt.TopLevelMixin = titled(
        drawn,
        "Accuracy of the models of each regime",
        "Output and the whole patch, strictly. Each regime has equally many inputs; a line through "
        "the means, a point for each draw.",
    )
    return made
