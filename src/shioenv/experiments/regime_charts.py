"""The picture of what models of the regimes answer right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import altair as alt

from shioenv.report.panels import chart, titled

if TYPE_CHECKING:
    from shioenv.experiments.regimes import Row


def curves(rows: Sequence[Row]) -> alt.TopLevelMixin:
    """EM by how many records a model is of, a line for each model, regime and seed, a panel for
    each suite and number of steps.
    """
    points = [
        {
            "model": row.model,
            "regime": row.regime,
            "seed": str(row.seed),
            "records": row.records,
            "em": row.em,
            "asked": f"{row.suite}, {row.steps}",
        }
        for row in rows
    ]
    drawn = (
        chart(points)
        .mark_line(point=True, strokeWidth=1.5)
        .encode(
            x=alt.X("records:Q", title="records", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("em:Q", title="exact match", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color("regime:N", title="regime"),
            strokeDash=alt.StrokeDash("model:N", title="model"),
            detail="seed:N",
        )
        .properties(width=240, height=200)
        .facet(facet=alt.Facet("asked:N", title=None), columns=2)
    )
    made: alt.TopLevelMixin = titled(
        drawn,
        "What models of each regime answer right",
        "Output and the whole patch, strictly. Each regime has equally many inputs; a "
        "line for each seed.",
    )
    return made
