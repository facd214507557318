"""Whether a grammar derives what the traits in its header say of the command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shioenv.domain.argument import Argument
from shioenv.domain.inputs import REDIRECTIONS
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.faults import Fault, FaultKind
from shioenv.grammar.kinds import TOKEN_KINDS
from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.symbols import Grammar, Nonterminal, Symbol, TerminalText, show_argument
from shioenv.grammar.traits import OF_FILES, PATHS, PROCESSES, VALUE

_PATH_KINDS = frozenset({"path", "name"})
"""The kinds of value that a path can be."""

_ASSIGNED = re.compile(r"(?:<EnvVar>|[A-Za-z_]\w*)\+?=")


def check_traits(grammar: Grammar) -> Iterator[Fault]:
    """Faults of a header whose traits do not fit what the grammar derives.

    A role needs an operand of its kind. Options of an effect need to be options of the command. A
    trait about files needs an operand or value that names a file. A command that shows something
    volatile has to be volatile. An example that ends with exit code 0 has no more operands than the
    header permits.
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
            yield fault("with", f"{option} is no option of {grammar.name}")
        if effect.what not in {VALUE, *traits.roles}:
            yield fault("with", f"no operand is {effect.what}, so options can make nothing of it")
    about_files = {
        "makes": bool(traits.makes), "changes": traits.changes in OF_FILES,
        "removes": traits.removes, "opens": traits.opens,
    }  # fmt: skip
    named = traits.paths or any(effect.what == VALUE for effect in traits.effects)
    named = named or not kinds.isdisjoint({*_PATH_KINDS, "url"})
    for keyword, said in about_files.items():
        if said and not named:
            yield fault(keyword, f"{keyword} is about files, and no operand is a path")
    if traits.shows == PROCESSES and not grammar.header.volatile:
        yield fault("shows", f"what shows {traits.shows} is volatile; say so")
    if traits.operands and not any(operand.many or operand.name for operand in traits.operands):
        most = len(traits.operands)
        for example in grammar.examples:
            if not example.exit_code and _n_operands(example.arguments) > most:
                message = f"the example has more operands than `operands` permits: {most}"
                yield fault("operands", message, example.line)


def operand_kinds(grammar: Grammar) -> frozenset[str]:
    """The names of the kinds of value that operands, or parts of operands, can be."""
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
    """Whether an argument begins with a text that makes the argument an option."""
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
