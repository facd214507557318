"""Traversal of a parsed program: its commands, pipelines and top-level operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shioenv.bash.program import (
    Case,
    Command,
    Coprocess,
    Counting,
    For,
    Function,
    Group,
    If,
    Pipeline,
    Program,
    Redirect,
    Redirected,
    Simple,
    Source,
    While,
)


def commands(source: Source) -> list[tuple[Command, int]]:
    """Return every command of a text at any depth in order of start, each with its shift.

    Commands in substitutions are included. A command's offset plus its shift is its position in the
    whole text.
    """
    found = [(command, 0) for command in _below(source.program)]
    for substitution in source.substitutions:
        found += [(command, substitution.shift) for command in _below(substitution.program)]
    return sorted(found, key=lambda each: each[0].start + each[1])


def redirects_of(command: Command) -> tuple[Redirect, ...]:
    """Return the redirections of the command itself, without those of nested commands."""
    return command.redirects if isinstance(command, (Simple, Redirected)) else ()


def pipelines(program: Program) -> Iterator[Pipeline]:
    """Yield every pipeline of a program at any depth, except those in substitutions."""
    for job in program:
        for _, pipeline in job.pipelines:
            yield pipeline
            for stage in pipeline.stages:
                for inner in _programs_in(stage):
                    yield from pipelines(inner)


def _below(program: Program) -> Iterator[Command]:
    for pipeline in pipelines(program):
        for stage in pipeline.stages:
            yield stage
            while isinstance(stage, Redirected | Function | Coprocess):
                stage = stage.command if isinstance(stage, Redirected) else stage.body
                yield stage


def _programs_in(command: Command) -> Iterator[Program]:
    match command:
        case Redirected():
            yield from _programs_in(command.command)
        case Function() | Coprocess():
            yield from _programs_in(command.body)
        case Group() | For() | Counting():
            yield command.body
        case While():
            yield command.condition
            yield command.body
        case If():
            for condition, then in command.branches:
                yield condition
                yield then
            yield command.otherwise
        case Case():
            yield from (body for _, body, _ in command.items)


@dataclass(frozen=True, slots=True)
class Piece:
    """A command at the top level of a program, or one stage of a pipeline there."""

    command: Command | None
    """The command; None for a bare `!` or `time`."""
    start: int
    """The start offset in characters, including a `!` or a `time` before the command."""
    end: int
    prefixed: bool
    """Whether the command is preceded by a `!` or a `time`."""


def pieces(program: Program) -> list[Piece | str]:
    """Return the top-level commands of a program and the operators between them, in order.

    A newline becomes `;`. After the last command, only `&` is included.
    """
    found: list[Piece | str] = []
    for number, job in enumerate(program):
        if number:
            found.append("&" if program[number - 1].background else ";")
        for operator, pipeline in job.pipelines:
            if operator:
                found.append(operator)
            found += _stages(pipeline)
    if program and program[-1].background:
        found.append("&")
    return found


def _stages(pipeline: Pipeline) -> Iterator[Piece | str]:
    prefixed = pipeline.negated or pipeline.timed or not pipeline.stages
    if not pipeline.stages:
        yield Piece(None, pipeline.start, pipeline.end, prefixed)
    for number, stage in enumerate(pipeline.stages):
        if number:
            yield "|&" if pipeline.merged[number - 1] else "|"
        first = not number
        start = pipeline.start if first else stage.start
        yield Piece(stage, start, stage.end, prefixed and first)
