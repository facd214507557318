"""Counts of how inputs use commands, options and operands, for a usage table."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from shioenv.synthesis.usage_tables import COUNTS, INDEXED, OF_COMMAND, CommandUsage, Usage, form
from shioenv_eval.grammars.describe import (
    ArgumentKind,
    DescribedArgument,
    DescribedSegment,
    Description,
)


def option_set(segment: DescribedSegment) -> str:
    """Return the options of a command, each once, sorted and joined by blanks."""
    return " ".join(sorted(set(option_names(segment))))


def option_names(segment: DescribedSegment) -> Iterator[str]:
    """Yield the options of a command in order, named as in a table: `-5` is `-NUM`."""
    for argument in segment.arguments:
        if argument.option is not None:
            known = _NUMBER.fullmatch(argument.text) and argument.spelling == "short"
            single = known and len(argument.text) == 2 and segment.digits
            yield "-NUM" if known and not single else argument.option


_NUMBER = re.compile(r"-[0-9]+[a-zA-Z]?")


def shape(description: Description) -> str:
    """Return an input's grammars and operators: `du | sort >`; "" if a grammar is unknown."""
    parts: list[str] = []
    for segment in description.segments:
        if segment.grammar is None:
            return ""
        if segment.operator is not None:
            parts.append(segment.operator)
        parts.append(segment.grammar)
        parts += [operator for operator, _ in segment.redirections]
    return " ".join(parts)


def count_usage(descriptions: Iterable[Description], about: str) -> Usage:
    """Count usage in inputs, except `substitutions`.

    Commands without a grammar are omitted, and so are the shapes of their inputs.
    """
    counts: dict[str, Counter[str]] = {name: Counter() for name in COUNTS}
    commands: dict[str, dict[str, Any]] = defaultdict(
        lambda: {
            name: defaultdict(Counter) if name in INDEXED else Counter() for name in OF_COMMAND
        }
    )
    for description in descriptions:
        segments = description.segments
        counts["commands"][str(len(segments))] += 1
        if (whole := shape(description)) and " " in whole:
            counts["shapes"][whole] += 1
        for index, segment in enumerate(segments):
            before = segments[index - 1].grammar if index else None
            if segment.grammar is None:
                continue
            counts["utilities"][segment.grammar] += 1
            if before is not None:
                counts["follows"][f"{before} {segment.operator} {segment.grammar}"] += 1
            for operator, target in segment.redirections:
                if target is not None:
                    counts["targets"][f"{operator} {form(target)}"] += 1
            _count_command(commands[segment.grammar], segment)
    made = {
        name: CommandUsage(**{part: dict(counted) for part, counted in parts.items()})
        for name, parts in sorted(commands.items())
    }
    return Usage(about=about, by_command=made, **{name: dict(counts[name]) for name in COUNTS})


def _count_command(parts: dict[str, Any], segment: DescribedSegment) -> None:
    names = list(option_names(segment))
    options = option_set(segment)
    parts["option_sets"][options] += 1
    parts["n_options"][str(len(set(names)))] += 1
    parts["options"].update(set(names))
    parts["pairs"].update(map(" ".join, combinations(options.split(), 2)))
    for argument in segment.arguments:
        if argument.option is not None:
            spelling, _, style = (argument.spelling or "short").partition(" ")
            parts["spellings"][spelling] += 1
            if style:
                parts["styles"][argument.option][style] += 1
    parts["nested"].update(one.grammar for one in segment.nested if one.grammar is not None)
    place = "piped" if segment.operator == "|" else "operands"
    parts[place][options][" + ".join(map(form, operand_texts(segment.arguments)))] += 1


def operand_texts(arguments: Iterable[DescribedArgument]) -> Iterator[str]:
    """Yield the texts of the operands (including assignments) among arguments."""
    for argument in arguments:
        if argument.kind in {ArgumentKind.OPERAND, ArgumentKind.ASSIGNMENT}:
            yield argument.text
