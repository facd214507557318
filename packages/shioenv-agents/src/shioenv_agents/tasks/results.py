"""What agents reached of tasks, by kind and length: counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shioenv_agents.tasks.agents import Attempt
from shioenv_agents.tasks.sets import LENGTHS, length_of
from shioenv_agents.tasks.task import GoalKind, Task


def results_of(
    tasks: Sequence[Task], tried: Mapping[str, Sequence[Attempt]]
) -> list[dict[str, Any]]:
    """A row for each agent and each group of tasks: by kind, by length, and all together.

    A row holds `agent`, `by`, `group`, `tasks`, `solved`, the mean `progress` and mean `turns`.
    """
    groups: dict[str, tuple[Callable[[Task], str], Sequence[str]]] = {
        "kind": (lambda task: task.kind.value, [kind.value for kind in GoalKind]),
        "length": (length_of, LENGTHS),
        "all": (lambda task: "all", ["all"]),
    }
    rows = []
    for agent, attempts in tried.items():
        pairs = list(zip(tasks, attempts, strict=True))
        for by, (key, names) in groups.items():
            found: dict[str, list[Attempt]] = {}
            for task, attempt in pairs:
                found.setdefault(key(task), []).append(attempt)
            for name in names:
                if of := found.get(name):
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
