"""Comparison of a grammar's options with those in the target system's help texts.

Help texts come from programs run on that system, so versions agree. `help NAME` prints the help of
a Bash builtin; a program prints its help by an option. `omit` lines of a grammar list options that
it omits intentionally. `undocumented` lines list options that the help lacks. Both count as
excused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.symbols import (
    Body,
    Grammar,
    Header,
    Nonterminal,
    Omission,
    TerminalText,
    reachable,
)
from shioenv_eval.grammars.help import Help, HelpOption, read_help

Ask: TypeAlias = Callable[[str], str]
"""Runs a command on the target system and returns its output, including errors."""


@dataclass(frozen=True, slots=True)
class Gap:
    """One option that only the help text or only the grammar has.

    `reason` is the grammar's reason for it, "" if there is none.
    """

    command: str
    option: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The comparison of one grammar with the help text of its command.

    `documented` is the number of names in the help. `missing` are options that only the help has,
    `unknown` options that only the grammar has. Those with a stated reason are `excused` instead.
    """

    command: str
    documented: int
    missing: tuple[Gap, ...]
    unknown: tuple[Gap, ...]
    excused: tuple[Gap, ...]

    @property
    def complete(self) -> bool:
        """Whether no option is missing or unknown without a stated reason."""
        return not self.missing and not self.unknown


def help_command(header: Header) -> str:
    """Return the input that makes a command print its options."""
    name = header.command
    usual = f"help {name}" if header.package == "bash" else f"{name} --help"
    return header.traits.help or usual


def help_coverage(grammar: Grammar, ask: Ask) -> Coverage:
    """Compare the grammar with its command's help text on the target system."""
    return compare_with_help(
        grammar, read_help(grammar.name, ask(f"{help_command(grammar.header)} 2>&1"))
    )


def compare_with_help(grammar: Grammar, documented: Help) -> Coverage:
    """Compare the grammar with a parsed help text."""
    written = written_options(grammar, documented)
    declared = written_options(grammar, documented, slots_only=True)
    omitted = _reasons(grammar.omissions)
    extra = _reasons(grammar.undocumented)
    missing: list[Gap] = []
    excused: list[Gap] = []
    unknown: list[Gap] = []
    for option in documented.options:
        for name in _lacking(option, written):
            # an `omit` line may write `bs=` without its sign, and an abbreviation in full
            excuses = (omitted.get(spelling, "") for spelling in _spellings(option, name))
            reason = next(filter(None, excuses), "")
            (excused if reason else missing).append(Gap(grammar.name, name, reason))
    known = documented.names | documented.accepted
    abbreviated = [option for option in documented.options if option.any_of]
    for name in sorted(declared):
        if not name.startswith("-") or name in known or _is_number(name):
            continue
        if any(_abbreviates(name, option) for option in abbreviated):
            continue
        reason = extra.get(name, "")
        (excused if reason else unknown).append(Gap(grammar.name, name, reason))
    return Coverage(
        grammar.name, len(documented.names), tuple(missing), tuple(unknown), tuple(excused)
    )


def _lacking(option: HelpOption, written: frozenset[str]) -> tuple[str, ...]:
    """Return the names of an option that are not written anywhere in the grammar."""
    if option.any_of:
        longest = max(option.names, key=len)
        return () if any(_abbreviates(name, option) for name in written) else (longest,)
    return tuple(name for name in option.names if name not in written)


def _abbreviates(name: str, option: HelpOption) -> bool:
    shortest, longest = min(option.names, key=len), max(option.names, key=len)
    return name.startswith(shortest) and longest.startswith(name)


def _spellings(option: HelpOption, name: str) -> tuple[str, ...]:
    names = option.names if option.any_of else (name,)
    return (*names, *(name.removesuffix("=") for name in names))


def _is_number(name: str) -> bool:
    """Whether the name is the old form `-5` of an option with a number."""
    return name[1:].isdigit() or name == "-NUM"


def _reasons(lines: Iterable[Omission]) -> dict[str, str]:
    return {option: line.reason for line in lines for option in line.options}


def written_options(
    grammar: Grammar, documented: Help, *, slots_only: bool = False
) -> frozenset[str]:
    """Return every option name that the grammar writes, in option blocks or in definitions.

    With `slots_only`, only names in option blocks count. A word in a definition may be an operand,
    part of a nested command, or a deliberate mistake. So it must never count as an unknown option.
    Words without a dash are included if the help documents such words (`ps`, `ip`, `dd`). Text like
    `-n5` counts as `-n` unless the help or an option line has an option of that exact name.
    """
    written = {name for option in grammar.options for name in option.names}
    whole = written | documented.names
    plain = {name for name in documented.names if not name.startswith("-")}
    reached = reachable(grammar.productions, grammar.starts)
    for head, productions in grammar.productions.items():
        own = plain or head.name.startswith(f"{grammar.name}:") or head in reached
        if head.is_system_token or not own or (slots_only and head not in grammar.option_slots):
            continue
        for production in productions:
            for argument in production.body:
                if not argument or not isinstance(argument[0], TerminalText):
                    continue
                text = "".join(
                    str(symbol) if isinstance(symbol, TerminalText) else "\0" for symbol in argument
                )
                written.update(_names_in(text, whole, plain, len(argument) > 1))
    return frozenset(written)


def _names_in(text: str, whole: set[str], plain: set[str], more: bool) -> Iterable[str]:
    r"""Yield the option names that begin an argument's text (`\0` marks a nonterminal)."""
    if text.startswith(NO_SPACE):
        text = f"-{text.removeprefix(NO_SPACE)}"
    text = text.replace(NO_SPACE, "")
    if plain:
        for word in re.split(r"[\s\0]+", text):
            for name in (word, word.partition("=")[0] + "="):
                if name in plain:
                    yield name
    if not text.startswith("-") or text in {"-", "--"}:
        return
    word = re.split(r"[ =\0]", text, maxsplit=1)[0]
    if word == "--" or (word == "-" and not more):
        return
    if word == "-" or (_is_number(word) and word not in whole):
        yield "-NUM"
    else:
        named = word in whole or word.startswith("--") or word[:2] not in whole
        yield word if named else word[:2]


@dataclass(frozen=True, slots=True)
class Counts:
    """The size of grammars. The counting rule is ours: shared definitions count once.

    `nonterminals` counts each nonterminal once, including system tokens. `productions` counts the
    distinct pairs of head and body before binding. `grounded` counts the pairs that binding adds.
    """

    nonterminals: int
    productions: int
    grounded: int


def count_grammars_size(grammars: Iterable[Grammar]) -> Counts:
    """Count the total size of several grammars."""
    nonterminals: set[str] = set()
    productions: set[tuple[Nonterminal, Body]] = set()
    for grammar in grammars:
        nonterminals.update(symbol.token for symbol in grammar.nonterminals)
        for head, bodies in grammar.productions.items():
            productions.update((head, production.body) for production in bodies)
    grounded = sum(head.is_system_token for head, _ in productions)
    return Counts(len(nonterminals), len(productions) - grounded, grounded)
