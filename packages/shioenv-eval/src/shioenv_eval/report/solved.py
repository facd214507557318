"""The picture of agents' results, by kind and length of the tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from shioenv_eval.report.chart_style import picture, write_pictures
from shioenv_eval.report.panels import chart, score_axis, sized, styled


def draw_results(rows: Sequence[Mapping[str, Any]], file: Path) -> list[Path]:
    """Draw the shares of solved tasks as SVG, for light pages and, ending in `-dark`, dark ones.

    Rows are those of `results_of`. Returns the files' paths. Errors: DatasetStorageError.
    """
    agents = list(dict.fromkeys(row["agent"] for row in rows))
    panels = []
    for by in ("kind", "length", "all"):
        shown = [
            {
                **row,
                "share": row["solved"] / row["tasks"],
                "label": f"{row['group']} ({row['tasks']})",
            }
            for row in rows
            if row["by"] == by
        ]
        whole = chart(shown).encode(
            y=alt.Y("label:N", sort=None, title=None),
            x=alt.X(**score_axis("share", "share of tasks solved" if by == "all" else None)),
        )
        series = styled("agent", agents, "agent")
        del series["strokeDash"]
        point = whole.mark_point(filled=True, size=70, opacity=1).encode(**series)
        panels.append(
            sized(
                point,
                f"by {by}" if by != "all" else "all",
                340,
                26 * len({r["label"] for r in shown}),
            )
        )
    return write_pictures(file, picture(alt.vconcat(*panels))[0].decode())
