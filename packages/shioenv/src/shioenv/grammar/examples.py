"""Validation of the examples in grammar files: they are derived, parsed back, and run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from shioenv.domain.inputs import Argument, Input, Role, render
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.faults import Fault, FaultKind
from shioenv.grammar.parse import InputParser, operand_place
from shioenv.grammar.recognise import Recogniser
from shioenv.grammar.symbols import Body, Example, Grammar, TerminalText, show_argument

Run: TypeAlias = Callable[[str], tuple[int, str]]
"""Runs one input on the pristine system and returns its exit code and its output."""


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """The result of running one example; it passed if `failures` is empty."""

    grammar: str
    example: Example
    text: str
    failures: tuple[str, ...]


def example_text(example: Example) -> str:
    """Return an example's input, with a pipe before it if the example has an `after`."""
    text = render(example.command, example.arguments)
    return text if example.after is None else f"{example.after} | {text}"


def check_examples(grammar: Grammar) -> Iterator[Fault]:
    """Yield the faults of examples that are detectable without execution.

    The grammar, bound or not, must derive every example. Parsing the example's text must give its
    arguments. A grammar without examples is a fault.
    """
    recogniser = Recogniser(grammar)
    parser = InputParser([grammar])

    def fault(example: Example, message: str) -> Fault:
        return Fault(grammar.source, example.line, 1, message, FaultKind.EXAMPLE)

    if not grammar.examples:
        message = "the grammar has no example"
        yield Fault(grammar.source, 1, 1, message, FaultKind.EXAMPLE)
    for example in grammar.examples:
        words = [example.command, *(argument.marked for argument in example.arguments)]
        if not recogniser.derives(words):
            reason = _why_not(recogniser, words)
            yield fault(example, f"the grammar does not derive `{example_text(example)}`: {reason}")
        tokens = parser.parse(render(example.command, example.arguments)).tokens
        if tokens != Input.from_marked(words).tokens:
            parsed = (token.argument for token in tokens if token.role is not Role.COMMAND)
            shown = ", ".join(argument.marked for argument in parsed)
            yield fault(example, f"parsing the example results in other arguments: {shown}")


def _why_not(recogniser: Recogniser, words: Sequence[str]) -> str:
    """Describe why the grammar cannot derive these words, by argument if possible."""
    unknown = [word for word in words[1:] if not recogniser.derives_argument(word)]
    if unknown:
        return f"no alternative derives {', '.join(unknown)}"
    for place in range(len(words) - 1, 0, -1):
        if recogniser.derives([*words[:place], *words[place + 1 :]]):
            return f"no start line permits {words[place]} (argument {place})"
    return "no start line combines these arguments, though each is derived alone"


def check_values(grammar: Grammar) -> Iterator[Fault]:
    """Yield faults of options that take a value but are written as separate arguments.

    `-d '='` without braces is two arguments, but parsing its text gives one.
    """
    splitter = ArgumentSplitter(grammar)
    for bodies in grammar.own.values():
        for production in bodies:
            for argument, following in pairwise(_own_part(grammar, production.body)):
                text = "".join(map(str, argument))
                if (
                    not text.startswith("-")
                    or "<" in text
                    or not isinstance(argument[0], TerminalText)
                ):
                    continue
                if len(splitter.arguments([text, "x"])) == 1:
                    message = (
                        f"{text} takes a value; if {show_argument(following)} is its value in "
                        f"{production}, write {{{text} {show_argument(following)}}}"
                    )
                    yield Fault(grammar.source, 1, 1, message, FaultKind.EXAMPLE)


def _own_part(grammar: Grammar, body: Body) -> Body:
    """Return the arguments up to the name of a nested command, whose options follow it."""
    names = grammar.command_tokens
    words = [
        str(argument[0]) if argument and isinstance(argument[0], TerminalText) else names[0]
        for argument in body
    ]
    run = [Argument("-" if word in names else word) for word in words]
    place = None if grammar.header.runs is None else operand_place(run, 0)
    return body if place is None else body[: place + 1]


def run_examples(grammars: Iterable[Grammar], run: Run) -> Iterator[ExampleResult]:
    """Run every example by `run` and yield the comparison with its expectations."""
    for grammar in grammars:
        for example in grammar.examples:
            text = example_text(example)
            exit_code, output = run(text)
            failures = tuple(_failures(example, exit_code, output))
            yield ExampleResult(grammar.name, example, text, failures)


def _failures(example: Example, exit_code: int, output: str) -> Iterator[str]:
    if exit_code != example.exit_code:
        yield f"exit code {exit_code}, not {example.exit_code}"
    lines = output.splitlines()
    for line in example.prints:
        if line not in lines:
            yield f"the output has no line {line!r}"
    for text in example.contains:
        if text not in output:
            yield f"the output does not contain {text!r}"
