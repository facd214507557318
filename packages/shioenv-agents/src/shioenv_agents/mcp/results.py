"""Behaviors as results of bounded size, and as text for models that read no structure."""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar

from shioenv.domain.behavior import Behavior
from shioenv.domain.readable import changes
from shioenv_agents.mcp.schema import ReportedChange, ReportedEffects

LARGEST_PATCH: Final = 32_768
"""Maximum bytes of a result's patch as JSON (our choice)."""

LARGEST_DIFF: Final = 32_768
"""Maximum characters of a preview's diff in a result (our choice)."""

MOST_SHOWN: Final = 40
"""Changes that the text of a result lists (our choice, because the structure has more)."""

AnyEffects = TypeVar("AnyEffects", bound=ReportedEffects)


def effects_of(
    behavior: Behavior, start: str, limit: int, kind: type[AnyEffects], **more: Any
) -> AnyEffects:
    """Return a behavior as a result of the given kind, with at most `limit` characters of output.

    `start` is the directory that names are relative to; `more` are the kind's other fields.
    """
    output, omitted = shorten(behavior.text, limit)
    operations = list(behavior.patch.operations)
    kept = _fitting(operations)
    return kind(
        cwd=start,
        exit_code=behavior.exit_code,
        output=output,
        output_omitted=omitted,
        output_truncated=behavior.output_truncated,
        changes=[ReportedChange(*each) for each in changes(kept, start)],  # type: ignore[arg-type]
        context_patch=[list(each) for each in kept],
        changes_omitted=len(operations) - len(kept),
        patch_truncated=behavior.patch_truncated,
        timed_out=behavior.timed_out,
        limits_hit=list(behavior.limits_hit),
        died_by_signal=behavior.died_by_signal,
        volatile=behavior.volatile,
        **more,
    )


def shorten(text: str, limit: int) -> tuple[str, int]:
    """Return a text without its middle where it is too long, and the number of omitted characters.

    A mark stands in the place of the middle, and is not counted.
    """
    omitted = len(text) - limit
    if omitted <= 0:
        return text, 0
    head = limit - limit // 3
    tail = text[len(text) - limit // 3 :] if limit // 3 else ""
    return f"{text[:head]}\n[... {omitted} characters omitted ...]\n{tail}", omitted


def _fitting(operations: list[Any]) -> list[Any]:
    """Return the first operations, as many as fit into `LARGEST_PATCH`."""
    room = LARGEST_PATCH
    for number, operation in enumerate(operations):
        room -= len(json.dumps(operation))
        if room < 0:
            return operations[:number]
    return operations


def text_of(effects: ReportedEffects) -> str:
    """Return a result as text: the output, the facts, and the changes."""
    lines = [effects.output.rstrip("\n")] if effects.output else []
    facts = [f"exit code {effects.exit_code}"]
    if effects.timed_out:
        facts.append("timed out")
    if effects.died_by_signal:
        facts.append(f"ended by signal {effects.died_by_signal}")
    if effects.limits_hit:
        facts.append(f"limits reached: {', '.join(effects.limits_hit)}")
    if effects.output_truncated:
        facts.append("output truncated")
    if effects.patch_truncated:
        facts.append("changes truncated")
    lines.append(f"[{', '.join(facts)}]")
    for each in effects.changes[:MOST_SHOWN]:
        lines.append(f"{each.change} {each.name}  {each.detail}".rstrip())
    more = max(len(effects.changes) - MOST_SHOWN, 0) + effects.changes_omitted
    if more:
        lines.append(f"and {more} more changes")
    return "\n".join(lines)
