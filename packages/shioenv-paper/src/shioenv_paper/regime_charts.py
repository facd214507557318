"""The picture of what models of the regimes answer right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt

from shioenv_eval.report.panels import chart, titled

if TYPE_CHECKING:
    from shioenv_paper.regimes import RegimeRow


def curves(rows: Sequence[RegimeRow]) -> alt.TopLevelMixin:
    """EM (exact match, 0 to 1) by the number of a model's records.

    A line for each model and regime goes through the means of its draws. Each draw is a point. A
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
        "What models of each regime answer right",
        "Output and the whole patch, strictly. Each regime has equally many inputs; a line through "
        "the means, a point for each draw.",
    )
    return made
