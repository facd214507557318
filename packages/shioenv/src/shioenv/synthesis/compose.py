"""Inputs of several commands, joined by operators (Appendix A) or nested in each other.

Nested commands (`find -exec`, `xargs`, `env`, `$( )`, `<( )`) are drawn from their own grammars.
In a command nested in `find` or `xargs`, operands that name files are left out, since `find` and
`xargs` insert the names.
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
from shioenv.grammar.traits import NOTHING, PROCESSES, Traits
from shioenv.synthesis.usage_tables import ABOUT_ITSELF, form

PIPE = "|"
REDIRECTIONS = (">", ">>")
OPERATOR_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"&&": 1.0, "||": 1.0, "|": 1.5, ";": 1.0, ">": 0.75, ">>": 0.75}
)

FREE_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"&&": 1.0, "||": 2.0, "|": 2.5, ";": 1.0, ">": 0.5, ">>": 0.5}
)
"""Operator weights for policies that change the left side of `||` so that it fails. Half of the
`||` become `&&`, since some commands cannot be made to fail."""


FAILING = frozenset({"false", "logname"})
"""Commands that always fail. No user is logged in, so there is no login name."""


@dataclass(frozen=True, slots=True)
class Composites:
    """Settings for the composition of inputs.

    `share` (0 to 1) is the probability that an input is composite, and that a composite input
    continues after each further command. Its default, 0.25, is ours: the paper gives none.
    `max_segments` (at least 1) limits the number of commands. `operators` are the weights of the
    operators after a command; a redirection always ends the input. Errors: UsageError for values
    out of range.
    """

    share: float = 0.25
    max_segments: int = 3
    operators: Mapping[str, float] = field(default_factory=lambda: OPERATOR_WEIGHTS)

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise UsageError(
                f"a composite share of {self.share} is out of range", hint="give 0 to 1"
            )
        if self.max_segments < 1:
            raise UsageError(f"max_segments is {self.max_segments}; give at least 1")


def compose_input(
    random: Random,
    composites: Composites,
    first: Sequence[str],
    draw: Callable[[bool], Sequence[str]],
    targets: Sequence[str],
    *,
    pipes: bool,
    fail: Callable[[Sequence[str]], Sequence[str] | None] | None = None,
    suited: Callable[[Sequence[str], str], str] | None = None,
) -> Input:
    """Draw a composite input that begins with the words `first`.

    `draw(piped)` draws a further command; `piped` is true to the right of a pipe. Output may be
    redirected to one of `targets`. Without targets there are no redirections, and without `pipes`
    no pipes. `fail` changes the words of a command to the left of `||` so that it fails. If `fail`
    returns None, `&&` replaces `||`.

    `suited`, given by policies in groups, replaces an operator that does not suit the command
    before it. After commands that always fail, `||` replaces `&&` and pipes.
    """
    words, before = first, list[Token]()
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
        if suited is not None and words[0] in FAILING and operator in {"&&", "||", PIPE}:
            operator = "||"
        elif operator == "||" and fail is not None:
            if (failed := fail(words)) is None:
                operator = "&&"
            else:
                tokens = [*before, *command_tokens(failed)]
        if suited is not None:
            operator = suited(words, operator)
        tokens.append(token(operator, Role.OPERATOR))
        if operator in REDIRECTIONS:
            tokens.append(token(targets[int(random.random() * len(targets))], Role.TARGET))
            break
        words, before = draw(operator == PIPE), [*tokens]
        tokens.extend(command_tokens(words))
        segments += 1
        if random.random() >= composites.share:
            break
    return Input(tuple(tokens))


def command_tokens(words: Sequence[str]) -> tuple[Token, ...]:
    """Convert a drawn command to tokens; redirections from a grammar are not arguments."""
    command, *arguments = words
    if not OPERATORS.isdisjoint(arguments):
        return Input.from_marked(words).tokens
    return (
        token(command, Role.COMMAND),
        *[token(argument, Role.ARGUMENT) for argument in arguments],
    )


@lru_cache(maxsize=8192)
def token(marked: str, role: Role) -> Token:
    """Return the token of a word as written, including no-space marks."""
    return Token(Argument.parse(marked), role)


def is_text_name(path: str) -> bool:
    """Whether a path names a file for printed text, without a number in its name."""
    return re.fullmatch(r"[^0-9.]*(\.(txt|log|out|list|lst))?", path) is not None


NESTED_HORIZON = 5
"""Maximum number of arguments of a nested command (our choice)."""

NESTED_ATTEMPTS = 4
"""Number of attempts to draw a program that may run at a given place."""

_CONTENT = "reading"
"""Suffix of the grammar's definition for programs that `find` runs on regular files only."""

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
    """Whether `caller` can run `program`: it does not block, and accepts what `caller` passes.

    `part` is the definition that the program replaces, `before` the preceding words, beginning with
    the caller's name. `fifos` are the paths of pipes without a writer.

    Programs that open files would block on a fifo. `find` may run them in place of `_CONTENT`, or
    after `-type f` if the search cannot reach a fifo. The search cannot if `find` tests for names
    with an extension, or if no fifo is in the searched directories.
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
    """Whether a command accepts any number of operands, including none, and changes nothing.

    Zero operands matter because `xargs` may have no items.
    """
    several = [operand for operand in traits.operands if operand.many]
    return bool(several) and not any(one.least for one in several) and not traits.alters


def _excludes(word: str) -> bool:
    """Whether a word is a test for a name with an extension, which no fifo has."""
    return re.match(r"-i?name .*\.\w+['\"]?\Z", word) is not None


def _leads_to(word: str, paths: Sequence[str]) -> bool:
    """Whether a search from the directory `word` may find one of these paths."""
    if word.startswith(("-", "!", "\\", "(")):
        return False
    return not re.match(r"[a-z]", word) or any(
        path == word or path.startswith(f"{word.rstrip('/')}/") for path in paths
    )


def run_by(name: str, traits: Traits, words: Sequence[str], random: Random) -> str | None:
    """Return a command's text for use as an argument of `name`, or None if that is impossible.

    `traits` are those of the nested command. The text includes its terminator. `find` inserts a
    file at `{}`, `xargs` appends its items, and `env` inserts nothing.
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
        return text if forced else None  # without a name to remove, rm reports an error
    if traits.into and len(places) > 1:
        last = tokens[places[-1]].argument.text
        text = Input(tuple(kept[:-1])).text
        return f"{text} {{}} {last} \\;"
    return f"{text} {{}} +" if random.random() < PLUS else f"{text} {{}} \\;"


def _is_name(text: str) -> bool:
    """Whether an operand has the form of a file name."""
    return form(text.strip("'\"")).removesuffix(", quoted") in _NAMES


PLUS = 0.2
"""Share of commands run by `find` that end with `+` (our choice)."""


# Substitutions ----------------------------------------------------------------------------------

SHARES = MappingProxyType({"$(": 0.06, "<(": 0.25})
"""Share of a command's operands that become such a substitution, if the usage table has such
substitutions for the command.

In real usage, 2% of file operands are a `$( )`; the share of `<( )` is our choice."""


def substitution(
    name: str, table: Mapping[str, float], random: Random
) -> tuple[str, Mapping[str, float]] | None:
    """Draw the opening of a substitution for an operand, and the weights of programs to run in it.

    `name` is the command that has the operand, and `table` is `Usage.substitutions`. None if the
    operand is no substitution.
    """
    for mark, share in SHARES.items():
        before = f"{name} {mark} "
        programs = {key[len(before) :]: n for key, n in table.items() if key.startswith(before)}
        if programs and random.random() < share:
            return mark, programs
    return None


def substituted(mark: str, traits: Traits, words: Sequence[str]) -> str | None:
    """Return a command's text as a substitution, or None if that is impossible.

    `traits` are the command's. A command is not substituted if it reads standard input, changes
    files, or prints help.
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


# Chains -----------------------------------------------------------------------------------------

FILE, DIRECTORY, GLOB, GONE = "file", "directory", "glob", "gone"

_TAKEN_BY: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        FILE: frozenset({"file", "path", "tree", "any"}),
        DIRECTORY: frozenset({"directory", "path", "tree", "any"}),
        GLOB: frozenset({FILE, "path", "tree"}),
        GONE: frozenset({"new", "made", "output", "any"}),
    }
)
"""The roles of operands that a thing of each kind suits. Other kinds are roles themselves."""

_TOPICS = frozenset({"network", "limits", PROCESSES})
"""What commands change or show that others change or show too."""

_VALUES = MappingProxyType(
    {"user": "Username", "group": "Groupname", "interface": "Interface", "variable": "EnvVar"}
)
"""The system tokens of values that commands share, by role."""


_PLAIN = re.compile(r"[\w./*?][\w./+@*?-]*")


def kinds_of_things(names: Mapping[str, Sequence[str]]) -> Mapping[str, str]:
    """Return the kind of each path that commands may share.

    Pipes would block a reader, and recursive commands take long in the system's directories.
    """
    files = dict.fromkeys((*names.get("File", ()), *names.get("GlobalFile", ())), FILE)
    return files | dict.fromkeys(names.get("Directory", ()), DIRECTORY)


def takes(traits: Traits, kinds: frozenset[str]) -> bool:
    """Whether a command says a text, or has an operand for a thing of one of these kinds.

    Without kinds: whether it prints something, and takes no paths.
    """
    if _speaks(traits):
        return True
    if not kinds:
        silent = traits.shows == NOTHING or traits.changes
        return not (silent or traits.paths or traits.least)
    return not kinds.isdisjoint(_topics(traits)) or any(
        not traits.roles.isdisjoint(_TAKEN_BY.get(kind, {kind})) for kind in kinds
    )


def _topics(traits: Traits) -> frozenset[str]:
    return _TOPICS & {traits.changes, traits.shows}


def _speaks(traits: Traits) -> bool:
    """Whether a command prints its operands."""
    return traits.roles == {"text"} and traits.shows != NOTHING


class Chain:
    """The things that the commands of an input have named, for those after `&&`, `||` and `;`.

    `names` are the system's, `kinds` are those of its paths. `traits` are by a command's first
    word.
    """

    def __init__(
        self,
        names: Mapping[str, Sequence[str]],
        kinds: Mapping[str, str],
        traits: Mapping[str, Traits],
    ) -> None:
        self._names, self._kinds, self._traits = names, kinds, traits
        self.things: list[tuple[str, str]] = []
        """Kinds and texts."""
        self._altered = False

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the things, and of the directories that they are in."""
        inside = {DIRECTORY for _, text in self.things if _above(text)}
        return frozenset(inside.union(kind for kind, _ in self.things))

    def _operands(self, words: Sequence[str]) -> list[tuple[int, str, str]]:
        """Return the position, role and text of each plain operand."""
        end = next((n for n, word in enumerate(words) if word in OPERATORS), len(words))
        places = [n for n in range(1, end) if not words[n].startswith(("-", "<ns>"))]
        options = [word.partition(" ")[0].partition("=")[0] for word in words[1:end]]
        traits = self._traits.get(words[0], _UNKNOWN).with_options(options)
        roles = traits.roles_of(len(places))
        return [
            (place, role, words[place])
            for place, role in zip(places, roles, strict=True)
            if (role == "assignment" or _PLAIN.fullmatch(words[place]))
            and (role not in _VALUES or words[place] in self._names.get(_VALUES[role], ()))
        ]

    def ran(self, words: Sequence[str], *, failed: bool = False) -> None:
        """Note what a command names; if it `failed`, only what was there before."""
        traits = self._traits.get(words[0], _UNKNOWN)
        operands = self._operands(words)
        self.things += [(topic, "") for topic in _topics(traits)]
        if traits.makes == "fifo" or not {*words}.isdisjoint(self._names.get("Fifo", ())):
            return
        for place, role, text in operands:
            kind = self._kind(text, role)
            taken = traits.removes or (traits.changes == "name" and place != operands[-1][0])
            if failed or (kind == GLOB and not taken):
                pass
            elif traits.changes == "cwd":
                self._enter(text)
                continue
            elif taken:
                self.things = [(one, known) for one, known in self.things if known != text]
                kind = GONE
            elif kind is None and (role in {"new", "made", "output", "target"} or not words[0]):
                kind = DIRECTORY if traits.makes == "directory" else FILE
            if kind is not None:
                self.things.append((kind, text.partition("=")[0]))
        for word in words[1:]:
            option, _, value = word.replace("=", " ", 1).partition(" ")
            if traits.role_of_value(option) == "output" and _PLAIN.fullmatch(value):
                self.things.append((FILE, value))
        self._altered = self._altered or (not failed and (traits.alters or traits.changes == "cwd"))

    def _kind(self, text: str, role: str) -> str | None:
        """Return the kind of a thing that exists; None if it is not known."""
        if set("*?") & set(text):
            return GLOB
        if role == "assignment":
            return "variable"
        if text in {".", "..", "./"}:
            return None
        return role if role in _VALUES else self._kinds.get(text.rstrip("/"))

    def _enter(self, directory: str) -> None:
        """Note the things of a directory that becomes the working directory."""
        top = f"{directory.rstrip('/')}/"
        self.things = [
            (kind, path[len(top) :])
            for path, kind in self._kinds.items()
            if path.startswith(top) and len(path) > len(top)
        ]

    def joined(self, words: Sequence[str], random: Random) -> Sequence[str] | None:
        """Return a command's words, changed so that it names one of the things.

        None if it cannot. Unchanged are commands that say a text, or that look at the working
        directory in which something was changed.
        """
        traits = self._traits.get(words[0], _UNKNOWN)
        operands = self._operands(words)
        kinds = self.kinds
        if (
            _speaks(traits)
            or not kinds.isdisjoint(_topics(traits))
            or (self._altered and traits.implied and not operands)
        ):
            return words
        above = [(DIRECTORY, _above(text)) for _, text in self.things if _above(text)]
        for things in (self.things, above):
            found = [
                (place, text)
                for kind, text in things
                for place, role, _ in operands
                if role in _TAKEN_BY.get(kind, {kind})
            ]
            if found:
                place, text = found[int(random.random() * len(found))]
                if text in words[1:]:
                    return words
                return [*words[:place], text, *words[place + 1 :]]
        return None


def _above(text: str) -> str:
    """Return the directory of a relative path; "" for others."""
    return "" if text.startswith(("/", ".")) else text.rstrip("/").rpartition("/")[0]


_UNKNOWN = Traits()
