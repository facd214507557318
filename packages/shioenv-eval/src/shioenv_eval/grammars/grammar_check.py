"""All checks of a grammar file: faults, examples and traits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from shioenv.domain.inputs import REDIRECTIONS, Argument, Input, Role, render
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.kinds import TOKEN_KINDS
from shioenv.grammar.library import COMMANDS, checked_grammar, names_of_grammars
from shioenv.grammar.notation import NO_SPACE, Fault, FaultKind, FaultyGrammarError
from shioenv.grammar.parse import InputParser, operand_place
from shioenv.grammar.symbols import (
    Body,
    Example,
    Grammar,
    Nonterminal,
    Symbol,
    TerminalText,
    show_argument,
)
from shioenv.grammar.traits import OF_FILES, PATHS, PROCESSES, VALUE
from shioenv_eval.grammars.recognise import Recogniser

Run: TypeAlias = Callable[[str], tuple[int, str]]
"""Runs one input on the pristine system and returns its exit code and its output."""


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """The result of running one example; it passed if `failures` is empty."""

    grammar: str
    example: Example
    text: str
    failures: tuple[str, ...]


def check_grammars(
    names: Iterable[str] | None = None, *, directory: Path = COMMANDS
) -> tuple[Fault, ...]:
    """Return all faults of these grammars (default: all), including examples and headers.

    Nothing is executed. Errors: UnknownGrammarError.
    """
    faults: list[Fault] = []
    for name in names if names is not None else names_of_grammars(directory):
        try:
            grammar = checked_grammar(name, directory)
        except FaultyGrammarError as error:
            faults += error.faults
            continue
        faults += [*check_examples(grammar), *check_values(grammar), *check_traits(grammar)]
    return tuple(faults)


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
            yield fault(example, f"the grammar does not derive `{example.text}`: {reason}")
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
    """Return the arguments up to a nested command's name; the options after it belong to it."""
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
            text = example.text
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


_PATH_KINDS = frozenset({"path", "name"})
"""The kinds of value that a path can have."""

_ASSIGNED = re.compile(r"(?:<EnvVar>|[A-Za-z_]\w*)\+?=")


def check_traits(grammar: Grammar) -> Iterator[Fault]:
    """Yield faults of headers whose traits contradict the grammar.

    A role requires an operand of its kind. Options of an effect must be options of the command. A
    trait about files requires an operand or value that names a file. A command that shows processes
    must be declared volatile. An example with exit code 0 has no more operands than the header
    permits.
    """
    traits, kinds = grammar.header.traits, operand_kinds(grammar)

    def fault(keyword: str, message: str, line: int = 0) -> Fault:
        line = line or traits.lines.get(keyword, 1)
        return Fault(grammar.source, line, 1, message, FaultKind.HEADER)

    for operand in traits.operands:
        wanted = _PATH_KINDS if operand.role in PATHS else {operand.role}
        if kinds.isdisjoint(wanted):
            shown = (
                f"<x> : {min(wanted, key=len)} =" if operand.role not in PATHS else "<x> : path ="
            )
            message = f"no operand can be {operand.role}; define one as `{shown} …`"
            yield fault("operands", message)
    splitter = ArgumentSplitter(grammar)
    for effect in traits.effects:
        for option in splitter.unknown(map(Argument, effect.options)):
            yield fault("with", f"{grammar.name} has no option {option}")
        if effect.what not in {VALUE, *traits.roles}:
            yield fault("with", f"no operand has the role {effect.what}, which the options change")
    about_files = {
        "makes": bool(traits.makes), "changes": traits.changes in OF_FILES,
        "removes": traits.removes, "opens": traits.opens,
    }  # fmt: skip
    named = traits.paths or any(effect.what == VALUE for effect in traits.effects)
    named = named or not kinds.isdisjoint({*_PATH_KINDS, "url"})
    for keyword, said in about_files.items():
        if said and not named:
            yield fault(keyword, f"{keyword} concerns files, but no operand is a path")
    if traits.shows == PROCESSES and not grammar.header.volatile:
        yield fault("shows", f"a command that shows {traits.shows} must be declared volatile")
    if traits.operands and not any(operand.many or operand.name for operand in traits.operands):
        most = len(traits.operands)
        for example in grammar.examples:
            if not example.exit_code and _n_operands(example.arguments) > most:
                message = f"the example has more operands than `operands` permits: {most}"
                yield fault("operands", message, example.line)


def operand_kinds(grammar: Grammar) -> frozenset[str]:
    """Return the names of the value kinds that operands, or parts of them, can have."""
    kinds: set[str] = set()
    met: set[Nonterminal] = set()
    pending = list(grammar.starts)
    while pending:
        head = pending.pop()
        if head in met:
            continue
        met.add(head)
        kinds.add(grammar.kinds.get(head) or TOKEN_KINDS.get(head.token, ""))
        for production in grammar.productions.get(head, ()):
            for argument in production.body if not production.wrong else ():
                if not _is_option(argument):
                    if _ASSIGNED.match(show_argument(argument)):
                        kinds.add("assignment")
                    pending += [one for one in argument if isinstance(one, Nonterminal)]
    return frozenset(kinds - {""})


def _is_option(argument: Sequence[Symbol]) -> bool:
    """Whether an argument begins with a text that makes it an option."""
    first = argument[0] if argument else None
    return isinstance(first, TerminalText) and first.text.startswith(("-", NO_SPACE))


def _n_operands(arguments: Sequence[Argument]) -> int:
    end = next((i for i, one in enumerate(arguments) if one.text in REDIRECTIONS), len(arguments))
    arguments = arguments[:end]
    dashes = next((i for i, one in enumerate(arguments) if one.text == "--"), len(arguments))
    before = [
        one for one in arguments[:dashes]
        if not one.joins_left and (one.text == "-" or not one.text.startswith("-"))
    ]  # fmt: skip
    return len(before) + len(arguments[dashes + 1 :])
