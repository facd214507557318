"""Inputs of several commands: joined by operators (Appendix A), or run by other commands.

Commands that other commands run (`find -exec`, `xargs`, `env`, `$( )`, `<( )`) are drawn by their
own grammars. Operands that name files give way to the names that `find` and `xargs` put there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from types import MappingProxyType

from shioenv.domain.inputs import OPERATORS, Argument, Input, Role, Token
from shioenv.errors import UsageError
from shioenv.grammar.arguments import on_files, runs_others
from shioenv.grammar.symbols import Grammar
from shioenv.grammar.traits import Traits
from shioenv.synthesis.usage import ABOUT_ITSELF, form

PIPE = "|"
REDIRECTIONS = (">", ">>")
OPERATOR_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"&&": 1.0, "||": 1.0, "|": 1.5, ";": 1.0, ">": 0.75, ">>": 0.75}
)


@dataclass(frozen=True, slots=True)
class Composites:
    """How inputs are composed.

    `share` (0 to 1) is the probability that an input is composite at all, and that a composite
    input goes on after each further command. Its default, 0.25, is ours: the paper gives none.
    `max_segments` (at least 1) bounds the commands. `operators` weighs what follows a command; a
    redirection always ends the input. Errors: UsageError for values out of range.
    """

    share: float = 0.25
    max_segments: int = 3
    operators: Mapping[str, float] = field(default_factory=lambda: OPERATOR_WEIGHTS)

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UsageError(f"a composite share of {self.share} is no probability")
        if self.max_segments < 1:
            raise UsageError(f"{self.max_segments} segments: an input has at least one command")


def compose(
    random: Random,
    composites: Composites,
    first: Sequence[str],
    draw: Callable[[bool], Sequence[str]],
    targets: Sequence[str],
    *,
    pipes: bool,
) -> Input:
    """A composite input that begins with the words `first`.

    `draw(piped)` draws a further command, to the right of a pipe or not. Output may be redirected
    to `targets`. Redirections are not used where there are no targets, nor pipes where `pipes` is
    false.
    """
    tokens = list(command_tokens(first))
    operators = {
        operator: weight
        for operator, weight in composites.operators.items()
        if (targets or operator not in REDIRECTIONS) and (pipes or operator != PIPE)
    }
    segments = 1
    while True:
        allowed = [
            operator
            for operator in operators
            if operator in REDIRECTIONS or segments < composites.max_segments
        ]
        if not allowed:
            break
        weights = [operators[operator] for operator in allowed]
        operator = random.choices(allowed, weights)[0]
        tokens.append(token(operator, Role.OPERATOR))
        if operator in REDIRECTIONS:
            tokens.append(token(targets[int(random.random() * len(targets))], Role.TARGET))
            break
        tokens.extend(command_tokens(draw(operator == PIPE)))
        segments += 1
        if random.random() >= composites.share:
            break
    return Input(tuple(tokens))


def command_tokens(words: Sequence[str]) -> tuple[Token, ...]:
    """A drawn command as tokens; redirections that a grammar writes are no arguments."""
    command, *arguments = words
    if not OPERATORS.isdisjoint(arguments):
        return Input.from_marked(words).tokens
    return (
        token(command, Role.COMMAND),
        *[token(argument, Role.ARGUMENT) for argument in arguments],
    )


@lru_cache(maxsize=8192)
def token(marked: str, role: Role) -> Token:
    """The token of a word as written, no-space marks included."""
    return Token(Argument.parse(marked), role)


NESTED_HORIZON = 5
"""Arguments of a command that another one runs, at most (ours)."""

NESTED_ATTEMPTS = 4
"""Programs drawn for one place at most, until one of them may be run there."""

_CONTENT = "reading"
"""How the name of the definition in `find` ends that runs programs on regular files alone."""

_NAMES = frozenset(
    {"absolute path", "file name", "glob", "name", "relative path", "special path", "tilde"}
)
"""Forms of operands that name a file."""


def may_run(
    caller: Grammar,
    part: str,
    program: Grammar,
    before: Sequence[str] = (),
    fifos: Sequence[str] = (),
) -> bool:
    """Whether `caller` may run `program`: it must not wait, nor lack what it needs.

    `part` is the definition in whose place the program stands, `before` the words before it, the
    caller's own name first. `fifos` are the paths of pipes that nobody writes to.

    `find` may run a program that opens files in the place of `_CONTENT`, or behind `-type f` where
    it meets no fifo. It meets none where it asks for names with an ending, or where nothing that it
    searches holds one.
    """
    name, traits = caller.name, program.header.traits
    of_the_shell = program.header.package == "bash" and traits.changes
    if of_the_shell or (runs_others(program) and on_files(caller)):
        return False
    if name == "xargs":
        return _does_without(traits) or program.name == "rm"
    if name == "env":
        return program is not caller
    if name != "find":
        return False
    safe = any(map(_excludes, before)) or not any(_leads_to(word, fifos) for word in before[1:])
    regular = "-type f" in before and safe
    return not traits.opens or part.endswith(_CONTENT) or regular


def _does_without(traits: Traits) -> bool:
    """Whether a command takes any number of operands, none included, and changes nothing.

    None included, because `xargs` may have none to give.
    """
    several = [operand for operand in traits.operands if operand.many]
    return bool(several) and not any(one.least for one in several) and not traits.alters


def _excludes(word: str) -> bool:
    """Whether a word is a test for a name with an ending, which no fifo has."""
    return re.match(r"-i?name .*\.\w+['\"]?\Z", word) is not None


def _leads_to(word: str, paths: Sequence[str]) -> bool:
    """Whether a search that starts at a word may find one of these paths, as the word tells."""
    if word.startswith(("-", "!", "\\", "(")):
        return False
    return not re.match(r"[a-z]", word) or any(
        path == word or path.startswith(f"{word.rstrip('/')}/") for path in paths
    )


def run_by(name: str, traits: Traits, words: Sequence[str], random: Random) -> str | None:
    """The text of a command as the command `name` runs it, with its end; None where it cannot.

    `traits` are those of the command that is run. `find` puts a file where `{}` stands, `xargs` its
    items behind everything; `env` puts nothing.
    """
    tokens = command_tokens(words)
    if any(token.role not in {Role.COMMAND, Role.ARGUMENT} for token in tokens):
        return None
    if not ABOUT_ITSELF.isdisjoint(words):
        return None
    if name == "env":
        return Input(tokens).text
    places = [
        place
        for place, token in enumerate(tokens)
        if token.role is Role.ARGUMENT
        and not token.argument.joins_left
        and not token.argument.text.startswith("-")
    ]
    command = words[0]
    no_name_first = bool(traits.paths) and traits.operands[0] not in traits.paths
    files = [
        place
        for number, place in enumerate(places)
        if not (number == 0 and no_name_first)
        and not (place == places[-1] and len(places) > 1 and traits.into)
        and (command == "echo" or _is_name(tokens[place].argument.text))
    ]
    if any(" " in tokens[place].argument.text.strip("'\"") for place in files):
        return None
    kept = [token for place, token in enumerate(tokens) if place not in files]
    text = Input(tuple(kept)).text
    if re.search(r"[*?~$`{}]", text) or {"-", "--"} & set(text.split()):
        return None
    if name == "xargs":
        forced = command != "rm" or re.search(r" -[a-zA-Z]*f| --force", text)
        return text if forced else None  # with no name to remove, rm complains
    if traits.into and len(places) > 1:
        last = tokens[places[-1]].argument.text
        text = Input(tuple(kept[:-1])).text
        return f"{text} {{}} {last} \\;"
    return f"{text} {{}} +" if random.random() < PLUS else f"{text} {{}} \\;"


def _is_name(text: str) -> bool:
    """Whether an operand has the form of a file's name."""
    return form(text.strip("'\"")).removesuffix(", quoted") in _NAMES


PLUS = 0.2
"""Share of commands of `find` that end with `+` (ours)."""


# Substitutions ----------------------------------------------------------------------------------

SHARES = MappingProxyType({"$(": 0.06, "<(": 0.25})
"""Shares of a command's operands that are a substitution of this sort, where a table has any.

Of file operands that people write, 2% are a `$( )`; the share of `<( )` is ours."""


def substitution(
    name: str, table: Mapping[str, float], random: Random
) -> tuple[str, Mapping[str, float]] | None:
    """What opens a substitution that is an operand of a command, and the programs in it by weight.

    None where the operand is no substitution. `table` is `Usage.substitutions`.
    """
    for mark, share in SHARES.items():
        before = f"{name} {mark} "
        programs = {key[len(before) :]: n for key, n in table.items() if key.startswith(before)}
        if programs and random.random() < share:
            return mark, programs
    return None


def substituted(mark: str, traits: Traits, words: Sequence[str]) -> str | None:
    """The text of a command in a substitution; None where it cannot be there.

    `traits` are the command's. A command that does more than print names or a stream, or would read
    standard input, cannot be there.
    """
    tokens = command_tokens(words)
    operands = [
        token
        for token in tokens
        if token.role is Role.ARGUMENT and not token.argument.text.startswith("-")
    ]
    text = Input(tokens).text
    plain = all(token.role in {Role.COMMAND, Role.ARGUMENT} for token in tokens)
    changes = re.search(
        r" -(?:exec|ok|delete|fprint|fls|help|version|o\b)|--(?:help|version)", text
    )
    named = operands or traits.implied
    return f"{mark}{text})" if plain and not changes and named else None
