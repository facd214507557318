"""What agents reached of tasks, by kind and length: as a table, a document and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shioenv.files.durable import atomic_write, storage_errors
from shioenv.report.drawing import DARK, require_libraries
from shioenv.report.tables import grouped
from shioenv.tasks.agents import Attempt
from shioenv.tasks.sets import LENGTHS, length_of
from shioenv.tasks.task import GoalKind, Task


def results_of(
    tasks: Sequence[Task], tried: Mapping[str, Sequence[Attempt]]
) -> list[dict[str, Any]]:
    """A row for each agent and each group of tasks: by kind, by length, and all together.

    A row holds `agent`, `by`, `group`, `tasks`, `solved`, the mean `progress` and mean `turns`.
    """
    groups = {
        "kind": (lambda task: task.kind.value, tuple(kind.value for kind in GoalKind)),
        "length": (length_of, LENGTHS),
        "all": (lambda task: "all", ("all",)),
    }
    rows = []
    for agent, attempts in tried.items():
        pairs = list(zip(tasks, attempts, strict=True))
        for by, (key, names) in groups.items():
            found = grouped(pairs, lambda pair, key=key: key(pair[0]))
            for name in names:
                if of := [attempt for _, attempt in found.get(name, [])]:
                    rows.append(
                        {
                            "agent": agent,
                            "by": by,
                            "group": name,
                            "tasks": len(of),
                            "solved": sum(one.solved for one in of),
                            "progress": round(sum(one.progress for one in of) / len(of), 3),
                            "turns": round(sum(one.turns for one in of) / len(of), 2),
                        }
                    )
    return rows


def draw_results(rows: Sequence[Mapping[str, Any]], file: Path) -> list[Path]:
    """Draws the shares of solved tasks as SVG, for light pages and, ending in `-dark`, dark ones.

    Returned are the files' paths. Errors: MissingExtraError, DatasetStorageError.
    """
    require_libraries("a picture", "report", "altair", "vl_convert")
    import altair as alt

    from shioenv.report.drawing import picture
    from shioenv.report.panels import chart, score, sized, styled

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
            x=alt.X(**score("share", "share of tasks solved" if by == "all" else None)),
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
    light = picture(alt.vconcat(*panels))[0].decode()
    dark = light.replace("#ffffff", "none")
    for ours, theirs in DARK.items():
        dark = dark.replace(ours, theirs)
    paths = [file, file.with_name(f"{file.stem}-dark{file.suffix}")]
    for path, text in zip(paths, (light, dark), strict=True):
        with storage_errors(path):
            atomic_write(path, text.encode())
    return paths
