"""The scores of the four training sets: what UCS and GCS write, and GCS cut at a score of 0.5.

Section 4.4 of the paper. Inputs are as `shioenv generate` makes them, composites included.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shioenv.experiments import quoted
from shioenv.experiments.charts import PAPER, Spec, titled
from shioenv.experiments.reference import (
    NOTE,
    RULES,
    Rescoring,
    evenly,
    rule_columns,
    scores_by_rule,
)
from shioenv.experiments.results import Findings, Outcome, check_libraries, write
from shioenv.experiments.scores import NAMES, Made, Score, columns, made, values
from shioenv.experiments.setting import Setting
from shioenv.irreducibility.score import BUDGET, ESTIMATOR
from shioenv.report.charts import INK, MAIN, MUTED, SOFT
from shioenv.report.means import Spread
from shioenv.report.tables import Table
from shioenv.synthesis.policy import STOP_PROBABILITY

NAME = "training-sets"
COUNT = 50_000
"""Scored inputs of each source at full size; the paper's sets have 500,000 each."""

RESCORED = 1000
"""Inputs of each source that are also scored as the reference implementation does."""

COMPOSITES = 0.25
"""Share of composites, the default of `shioenv generate`."""

SOURCES = ("ucs", "gcs")
BINS = 20

SETS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "UCS, R* ≥ 0": ("ucs", lambda score: True),
    "GCS, R* ≥ 0": ("gcs", lambda score: True),
    "GCS, R* ≥ 0.5": ("gcs", lambda score: score >= 0.5),
    "GCS, R* ≤ 0.5": ("gcs", lambda score: score <= 0.5),
}
"""The paper's training sets: a source, and which of its scores are in the set."""


def run(
    setting: Setting, *, count: int = COUNT, budget: int = BUDGET, estimator: str = ESTIMATOR
) -> Outcome:
    """Generates inputs until `count` of each source have a score, and writes what came out.

    Errors: MissingExtraError before anything is executed; those of `made` and `write`.
    """
    check_libraries()
    started = time.monotonic()
    datasets = {
        source: _scored(setting, source, count, budget=budget, estimator=estimator)
        for source in SOURCES
    }
    scores = [score for one in datasets.values() for score in one.scores]
    sets = {name: _set(datasets, name) for name in SETS}
    rescorings = {
        source: scores_by_rule(setting, one.directory, evenly(one.scores, RESCORED))
        for source, one in datasets.items()
    }
    findings = Findings(
        title="The training sets' scores",
        data={
            "scores": columns(scores),
            "rules": rule_columns([row for one in rescorings.values() for row in one.ruled]),
        },
        tables=[_table(datasets, sets), _length_table(datasets), _rule_table(rescorings)],
        chart=_chart(sets),
        counts={
            source: {
                **one.counts,
                "with a score": len(values(one.scores)),
                **rescorings[source].counts,
            }
            for source, one in datasets.items()
        },
        parameters={
            "scored inputs of each source": count,
            "budget": budget,
            "estimator": estimator,
            "share of composites": COMPOSITES,
            "stop probability": STOP_PROBABILITY,
        },
        summary={name: _summary(numbers) for name, numbers in sets.items()},
    )
    return write(setting, NAME, findings, started=started)


def _scored(setting: Setting, source: str, count: int, *, budget: int, estimator: str) -> Made:
    """The source's inputs up to the one that has the last score wanted."""
    wanted, new = count, 0
    while True:
        found = made(
            setting, source, source, wanted,
            budget=budget, estimator=estimator, policy="weighted", composite_share=COMPOSITES,
        )  # fmt: skip
        new += found.new
        scored = len(values(found.scores))
        if scored >= count:
            return Made(found.directory, new, _until(found.scores, count))
        wanted += math.ceil(1.02 * (count - scored) * wanted / max(scored, 1))


def _until(scores: Sequence[Score], count: int) -> list[Score]:
    """The first scores, as many as hold `count` that are not None."""
    left = count
    for place, one in enumerate(scores, 1):
        left -= one.irreducibility is not None
        if not left:
            return list(scores[:place])
    return list(scores)


def _set(datasets: Mapping[str, Made], name: str) -> list[float]:
    source, holds = SETS[name]
    return [score for score in values(datasets[source].scores) if holds(score)]


def _summary(numbers: Sequence[float]) -> dict[str, Any]:
    spread = Spread.of(numbers)
    if spread is None:
        return {"inputs": 0}
    return {"inputs": spread.count, "mean": round(spread.mean, 4), "sd": round(spread.sd, 4)}


def _table(datasets: Mapping[str, Made], sets: Mapping[str, Sequence[float]]) -> Table:
    rows = []
    for name, numbers in sets.items():
        source, holds = SETS[name]
        several = [
            score
            for score in values(datasets[source].scores, lambda one: one.n_arguments > 1)
            if holds(score)
        ]
        mean, sd = quoted.TRAINING[name]
        rows.append(
            (
                name,
                f"{len(numbers):,}",
                _shown(numbers),
                f"{mean:.2f} ± {sd:.2f}",
                _shown(several),
                _share(numbers, 1.0),
            )
        )
    return Table(
        "Mean and standard deviation",
        "Of the inputs with a score; those without arguments have none. A score of exactly 0.5 is "
        "in both of the sets that are cut there. *2 and more*: without inputs of one argument.",
        ("set", "inputs", "ours", "paper", "2 and more", "exactly 1"),
        rows,
    )


def _shown(numbers: Sequence[float]) -> str:
    spread = Spread.of(numbers)
    return "-" if spread is None else spread.text


def _share(numbers: Sequence[float], least: float) -> str:
    return f"{100 * sum(one >= least for one in numbers) / max(len(numbers), 1):.1f}%"


def _length_table(datasets: Mapping[str, Made]) -> Table:
    rows = []
    for source, one in datasets.items():
        lengths = Counter(min(score.n_arguments, 13) for score in one.scores)
        total = len(one.scores)
        rows.append((NAMES[source], *(f"{100 * lengths[n] / total:.1f}%" for n in range(14))))
    return Table(
        "Arguments of the inputs",
        "Share of each source's inputs by number of removable arguments, over all commands of an "
        "input; the paper does not say how its sets are distributed.",
        ("source", *map(str, range(13)), "more"),
        rows,
    )


def _rule_table(rescorings: Mapping[str, Rescoring]) -> Table:
    rows = []
    for name, (source, holds) in SETS.items():
        rules = zip(*(one.by_rule for one in rescorings[source].ruled), strict=True)
        cells = [_counted([score for score in scores if holds(score)]) for scores in rules]
        if cells:
            rows.append((name.replace("R*", "score"), *cells))
    return Table(
        "By the rules of the reference implementation",
        f"{NOTE} Of up to {RESCORED:,} inputs of each source, evenly spaced among those that are "
        "not volatile, executed again; in brackets how many are in the set, since each rule's "
        "scores are cut at 0.5 by themselves.",
        ("set", *RULES),
        rows,
    )


def _counted(numbers: Sequence[float]) -> str:
    return f"{_shown(numbers)} ({len(numbers)})"


def _chart(sets: Mapping[str, Sequence[float]]) -> Spec:
    names = list(SETS)
    return {
        "title": titled(
            "Scores of the training sets",
            f"{len(sets[names[0]]):,} and {len(sets[names[1]]):,} scored inputs of UCS and GCS, "
            "as `shioenv generate` makes them.",
            "Left: mean and standard deviation on both sides. Right: all scores; light and dark "
            "are the two sets that GCS is cut into at 0.5.",
        ),
        "hconcat": [
            _means_panel(sets),
            {
                "vconcat": [
                    _histogram(NAMES[source], sets[name])
                    for source, name in (("gcs", names[1]), ("ucs", names[0]))
                ],
                "spacing": 18,
            },
        ],
        "spacing": 40,
    }


def _means_panel(sets: Mapping[str, Sequence[float]]) -> Spec:
    rows: list[dict[str, Any]] = []
    for name, numbers in sets.items():
        spread = Spread.of(numbers)
        if spread is not None:
            rows.append({"set": name, "who": "ours", **_reach(spread.mean, spread.sd)})
        rows.append({"set": name, "who": "paper", **_reach(*quoted.TRAINING[name])})
    who = {"field": "who", "type": "nominal", "title": None, "sort": ["ours", "paper"]}
    colour = {**who, "scale": {"domain": ["ours", "paper"], "range": [MAIN, PAPER]},
              "legend": {"orient": "top"}}  # fmt: skip
    x: Spec = {
        "field": "mean",
        "type": "quantitative",
        "scale": {"domain": [0, 1]},
        "axis": {"title": "irreducibility (0 to 1)", "tickCount": 5, "grid": True},
    }
    return {
        "width": 330,
        "height": 300,
        "data": {"values": rows},
        "encoding": {
            "y": {
                "field": "set",
                "type": "nominal",
                "sort": list(SETS),
                "axis": {"title": None, "labelColor": INK, "labelFontSize": 12},
            },
            "yOffset": {**who, "scale": {"paddingOuter": 0.7}},
            "color": colour,
        },
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 75, "opacity": 1},
                "encoding": {
                    "x": x,
                    "shape": {**who, "scale": {"domain": ["ours", "paper"],
                                               "range": ["circle", "diamond"]}},
                },
            },
            *(
                {
                    "transform": [{"filter": f"datum.who == '{one}'"}],
                    "mark": {"type": "text", "align": "left", "dx": 6, "dy": dy},
                    "encoding": {"x": x, "text": {"field": "label"}, "color": {"value": MUTED}},
                }
                for one, dy in (("ours", -9), ("paper", 10))
            ),
        ],
    }  # fmt: skip


def _reach(mean: float, sd: float) -> dict[str, Any]:
    return {
        "mean": mean,
        "low": max(0.0, mean - sd),
        "high": min(1.0, mean + sd),
        "label": f"{mean:.2f} ± {sd:.2f}",
    }


def _histogram(name: str, numbers: Sequence[float]) -> Spec:
    counted = Counter(min(int(score * BINS), BINS - 1) for score in numbers)
    rows = [
        {
            "from": index / BINS,
            "to": (index + 1) / BINS,
            "share": counted[index] / max(len(numbers), 1),
        }
        for index in range(BINS)
    ]
    ones = sum(score >= 1 for score in numbers) / max(len(numbers), 1)
    return {
        "title": {
            "text": f"{name}: {100 * ones:.0f}% are exactly 1",
            "fontSize": 13,
            "color": INK,
            "offset": 6,
        },
        "width": 330,
        "height": 118,
        "layer": [
            {
                "data": {"values": rows},
                "mark": {"type": "bar", "binSpacing": 1.5},
                "encoding": {
                    "x": {
                        "field": "from",
                        "type": "quantitative",
                        "bin": {"binned": True},
                        "scale": {"domain": [0, 1]},
                        "axis": {
                            "title": "irreducibility (0 to 1)" if name == "UCS" else None,
                            "tickCount": 5,
                            "format": ".1f",
                        },
                    },
                    "x2": {"field": "to"},
                    "y": {
                        "field": "share",
                        "type": "quantitative",
                        "axis": {"title": "share of inputs", "tickCount": 4, "format": ".0%"},
                    },
                    "color": {
                        "condition": {"test": "datum.from >= 0.5", "value": MAIN},
                        "value": SOFT,
                    },
                },
            },
        ],
    }
