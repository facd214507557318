"""Samples: sampled inputs, with the choices that led to each of their commands."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import TypeAlias

from shioenv.bash.words import split_words, unquoted
from shioenv.domain.inputs import OPERATORS, Input, Role, Session
from shioenv.grammar.arguments import on_files
from shioenv.grammar.parse import NESTED_DEPTH, InputParser
from shioenv.grammar.symbols import Grammar, apart
from shioenv.grammar.traits import NOTHING, PATHS, Traits
from shioenv.synthesis.compose import (
    NESTED_ATTEMPTS,
    NESTED_HORIZON,
    Chain,
    is_text_name,
    kinds_of_things,
    may_run,
    run_by,
    substituted,
    substitution,
    takes,
)
from shioenv.synthesis.derivation import Drawn
from shioenv.synthesis.mistakes import MUST_EXIST, failing
from shioenv.synthesis.plans import PlanMaker
from shioenv.synthesis.policy import PolicySettings
from shioenv.synthesis.samplers import Sampler
from shioenv.synthesis.searches import (
    UNKNOWN,
    finds_no_column,
    finds_no_file,
    finds_no_line,
    finds_no_repeated,
)
from shioenv.synthesis.usage_sampler import People, n_operands
from shioenv.synthesis.usage_tables import ABOUT_ITSELF
from shioenv.synthesis.writer import CommandWriter

_TYPES = {"f": "File", "d": "Directory", "l": "Symlink"}
"""System tokens by letter of `find -type`. Their values are all paths below the start directory."""

FINDING_ATTEMPTS = 4
"""Attempts to draw a word that the search then finds."""

SPEAKING = ABOUT_ITSELF | {"-v", "--verbose", "-c", "--changes", "-p", "-"}
"""Arguments that make an otherwise silent command print something."""

Catalogue: TypeAlias = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class SegmentTrace:
    """The origin of one command of a sample.

    `choices` is the command's trace. `Sampler.replay` derives the command again from it; for
    policies that also draw options or values (`PolicySettings.free`), `CommandWriter.replay` does.
    `piped`: the command follows a pipe. `volatile`: a production was used that the grammar marks
    `%volatile`.
    """

    grammar: str
    piped: bool
    choices: tuple[int | str, ...]
    volatile: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """An input to be executed in `cwd`.

    `volatile`: a grammar, or a production that was used, declares that two runs may differ. This
    also holds if an input of the `history` may differ. `history` has the earlier inputs of the same
    shell, oldest first. `mistake` is the class of the mistake in the input, or None.

    `trace` holds the choices of each command in order, as drawn. Later changes of the input are not
    in it: the mistake, and operands changed to name files from the history.
    """

    input: Input
    cwd: str
    volatile: bool
    trace: tuple[SegmentTrace, ...]
    mistake: str | None = None
    history: tuple[str, ...] = ()

    @property
    def session(self) -> Session:
        """The sample as a session of one row, with its history."""
        return Session(self.cwd, (self.input,), self.history)

    def __str__(self) -> str:
        return self.input.text


@dataclass(frozen=True)
class DrawingPlace:
    """The grammars, sampler and values for drawing in one start directory."""

    sampler: Sampler
    grammars: Mapping[str, Grammar]
    parser: InputParser
    names: tuple[str, ...]
    pipes: tuple[str, ...]
    targets: tuple[str, ...]
    values: Catalogue
    people: People | None
    settings: PolicySettings
    plans: PlanMaker
    writers: dict[str, CommandWriter] = field(default_factory=dict)
    inner: dict[str, CommandWriter] = field(default_factory=dict)
    """Writers of nested commands, by grammar."""
    _taking: dict[frozenset[str], tuple[Sequence[str], Sequence[str]]] = field(default_factory=dict)
    start: str = "/"
    """The start directory."""
    text: Callable[[str], str | None] = lambda name: None
    """The text of a file of the system, by its name in the start directory, if it is known."""

    @cached_property
    def traits(self) -> Mapping[str, Traits]:
        """The traits of commands, by their first word."""
        return {word: grammar.header.traits for word, grammar in self._by_word.items()}

    def failing(self, random: Random, words: Sequence[str]) -> Sequence[str] | None:
        """Return a command's words, changed so that the command fails, or None."""
        grammar = self._by_word.get(words[0])
        return None if grammar is None else failing(words, grammar, self.values, random)

    def reads_nothing(self, words: Sequence[str]) -> bool:
        """Whether a command reads standard input, because it names no file to read."""
        return self._reads(words) is False

    def reads_only_input(self, name: str) -> bool:
        """Whether a command, named by its grammar, has no operand for a file to read."""
        traits = self.grammars[name].header.traits
        return name in self.pipes and not traits.implied and MUST_EXIST.isdisjoint(traits.roles)

    def reads_file(self, words: Sequence[str]) -> bool:
        """Whether a command that could read standard input names a file to read."""
        return self._reads(words) is True

    def _reads(self, words: Sequence[str], values: Collection[str] = PATHS.keys()) -> bool | None:
        """Whether a command names a file to read; None if it reads neither files nor input.

        `values` are the roles by which an option's value is such a file.
        """
        grammar = self._by_word.get(words[0])
        if grammar is None or grammar.pipe is None or grammar.name not in self.pipes:
            return None
        if self.settings.groups and self._avoided(words, "after-pipe"):
            return None
        traits = grammar.header.traits
        if traits.implied or not (OPERATORS | ABOUT_ITSELF).isdisjoint(words):
            return None
        options = [re.split("[ =]", word, maxsplit=1)[0] for word in words[1:] if word[0] == "-"]
        if any(traits.role_of_value(option) in values for option in options):
            return True
        roles = traits.with_options(options).roles_of(n_operands(words))
        return not MUST_EXIST.isdisjoint(roles)

    def does_nothing(self, words: Sequence[str], before: Sequence[str] = ()) -> bool:
        """Whether a command finds nothing, or its grammar's `avoid` lines describe it.

        `before` are the words of the command whose output it reads.
        """
        grammar = self._by_word.get(words[0])
        if self.settings.groups and grammar is not None:
            when = ("", "missing", "existing", *["after-pipe"] * bool(before))
            if self._avoided(words, *when) or (before and self._ignores_input(words)):
                return True
            if grammar.name == "comm":
                options, _, texts = self._read(words, before)
                return finds_no_column(options, texts)
        return self.finds_nothing(words, before)

    def _ignores_input(self, words: Sequence[str]) -> bool:
        """Whether a command ignores a pipe: it describes itself, or reads files only."""
        about = not ABOUT_ITSELF.isdisjoint(words)
        return about or ("-" not in words and self._reads(words, MUST_EXIST) is True)

    def _avoided(self, words: Sequence[str], *when: str) -> bool:
        """Whether an `avoid` line of one of these conditions describes a command."""
        grammar = self._by_word.get(words[0])
        return grammar is not None and any(
            one.when in when and one.matches(words[1:], self._exists) for one in grammar.avoided
        )

    @cached_property
    def text_targets(self) -> Sequence[str]:
        """The targets with a name of a file of text, if there are some."""
        named = [*filter(is_text_name, self.targets)]
        return (*named, *(f"/tmp/{posixpath.basename(name)}" for name in named)) or self.targets

    def chain(self) -> Chain:
        """Return a chain without commands."""
        return Chain(self.values, self._kinds, self.traits)

    @cached_property
    def _kinds(self) -> Mapping[str, str]:
        return kinds_of_things(self.values)

    def taking(self, kinds: frozenset[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Return the grammars of commands that may name a thing of these kinds, and the others.

        Both are all grammars if there would be none.
        """
        if kinds not in self._taking:
            known = [
                name
                for name, grammar in self.grammars.items()
                if takes(grammar.header.traits, kinds) and (kinds or name not in self.pipes)
            ]
            others = [name for name in self.names if name not in known]
            self._taking[kinds] = (known or self.names, others or self.names)
        return self._taking[kinds]

    def joined(self, chain: Chain, words: Sequence[str], random: Random) -> Sequence[str] | None:
        """Return a command's words, changed so that it names a thing of the chain, or None.

        A search gets another pattern if it finds nothing in the thing.
        """
        joined = chain.joined(words, random)
        if joined is None or joined is words or not self.finds_nothing(joined):
            return joined
        return self.finding(joined, (), random) or joined

    def finds_nothing(self, words: Sequence[str], before: Sequence[str] = ()) -> bool:
        """Whether a command searches for a file, a text or repeated lines that are not there."""
        grammar = self._by_word.get(words[0])
        if grammar is None or not ABOUT_ITSELF.isdisjoint(words):
            return False
        traits = grammar.header.traits
        if traits.roles == {"directory"}:
            return finds_no_file(words, self._below(words))
        options, operands, texts = self._read(words, before)
        if traits.roles == {"file"} and texts and not any(text != "" for text in texts):
            return True  # empty files
        if grammar.name == "comm":
            return set("123") <= set("".join(options)) or len(set(operands)) == 1
        if grammar.name == "uniq":
            return finds_no_repeated(options, texts)
        searches = bool(traits.operands) and traits.operands[0].role == "pattern"
        return searches and finds_no_line(options, operands, texts)

    def _read(
        self, words: Sequence[str], before: Sequence[str]
    ) -> tuple[Sequence[str], Sequence[str], Sequence[str | None]]:
        """Return a command's options, operands, and the texts it reads (None for unknown ones)."""
        options = [word for word in words[1:] if word.startswith(("-", "<ns>"))]
        operands = [word for word in words[1:] if word not in options]
        named = [re.split("[ =]", word, maxsplit=1)[0] for word in options]
        roles = self.traits[words[0]].with_options(named).roles_of(len(operands))
        first = 1 if roles and roles[0] == "pattern" else 0
        texts = [self.text(name) for name in operands[first:]]
        return options, operands, texts or self._printed(before)

    def _exists(self, word: str) -> bool:
        """Whether a word may name a file: all globs and expansions may."""
        return bool(set("*?[{~$") & set(word)) or unquoted(word).rstrip("/") in self._paths

    @cached_property
    def _paths(self) -> frozenset[str]:
        tokens = (*_TYPES.values(), "GlobalFile", "GlobalDirectory")
        return frozenset({".", "..", ""}.union(*(self.values.get(one, ()) for one in tokens)))

    def finding(
        self, words: Sequence[str], before: Sequence[str], random: Random
    ) -> Sequence[str] | None:
        """Return a search with a pattern that is a word of the text searched, or None."""
        _, operands, texts = self._read(words, before)
        known = re.findall(r"[A-Za-z]\w{2,11}", " ".join(text or "" for text in texts))
        searches = self.traits[words[0]].operands[:1]
        if not known or not operands or not searches or searches[0].role != "pattern":
            return None
        place = words.index(operands[0])
        for _ in range(FINDING_ATTEMPTS):
            found = known[int(random.random() * len(known))]
            changed = [*words[:place], found, *words[place + 1 :]]
            if not self.finds_nothing(changed, before):
                return changed
        return None

    def is_silent(self, words: Sequence[str]) -> bool:
        """Whether a command prints nothing if it succeeds."""
        traits = self.traits.get(words[0], Traits())
        if not SPEAKING.isdisjoint(map(apart, words)):
            return False
        if self.settings.groups and self._avoided(words, "before-pipe"):
            return True
        sets = traits.changes in {"env", "limits"} and n_operands(words) > 0
        return sets or traits.shows == NOTHING

    def _printed(self, words: Sequence[str]) -> list[str | None]:
        """Return roughly the texts that a command prints: its words, or the files that it reads."""
        traits = self.traits.get(words[0], Traits()) if words else Traits()
        operands = [word for word in words[1:] if not word.startswith(("-", "<ns>"))]
        if traits.roles == {"text"}:
            said = [UNKNOWN if set("${~*?") & set(word) else unquoted(word) for word in words[1:]]
            return [" ".join(said)]
        if traits.roles == {"directory"}:
            return ["\n".join(self._below(words))]
        texts = [self.text(name) for name in operands] if traits.roles == {"file"} else []
        if words and words[0] == "sort":
            return ["\n".join(sorted((text or "").splitlines())) for text in texts]
        return texts

    def _below(self, words: Sequence[str]) -> Mapping[str, str]:
        """Return the type of each known path below a command's operands."""
        tops = [word for word in words[1:] if word in self._types]
        return {
            path: kind
            for path, kind in self._types.items()
            if not tops or any(f"{path}/".startswith(f"{top}/") or top == "." for top in tops)
        }

    def spelt_alike(self, shell_input: Input) -> str:
        """Return a text that is the same for inputs that only spell the same arguments differently.

        Names of one option, quotes and `--` make no difference. The order of options makes none
        either, unless it has a meaning.
        """
        parts: list[str] = []
        options: list[str] = []
        operands: list[str] = []
        names: Mapping[str, str] = {}
        permutes = ordered = on_paths = False
        for token in shell_input.tokens:
            text = token.argument.text
            if token.role is not Role.ARGUMENT:
                parts += [*sorted(options), *operands, text]
                options, operands = [], []
                grammar = self._by_word.get(text) if token.role is Role.COMMAND else None
                if grammar is not None:
                    names = self._first_names[grammar.name]
                    traits, permutes = grammar.header.traits, grammar.header.permutes
                    ordered, on_paths = traits.ordered, not MUST_EXIST.isdisjoint(traits.roles)
                continue
            text = f"-{text}" if token.argument.joins_left and text[0] != "-" else text
            if ordered or text[0] != "-" or (operands and not permutes):
                operands.append(self._path(_plain(text)) if on_paths else _plain(text))
            elif text != "--":
                name, value = (*re.split("[ =]", text, maxsplit=1), "")[:2]
                if name not in names and name[:2] in names:
                    name, value = name[:2], name[2:]
                if name in names:
                    options.append(f"{names[name]} {_plain(value)}")
                else:
                    operands.append(_plain(text))
        return " ".join((*parts, *sorted(options), *operands))

    def _path(self, word: str) -> str:
        """Return the shortest path to a file; other words unchanged."""
        path = posixpath.relpath(posixpath.join(self.start, word), self.start)
        return path if word.rstrip("/") in self._paths or path in self._paths else word

    @cached_property
    def _first_names(self) -> Mapping[str, Mapping[str, str]]:
        """The first name of each option, by grammar and name."""
        return {
            grammar.name: {name: each.names[0] for each in grammar.options for name in each.names}
            for grammar in self.grammars.values()
        }

    @cached_property
    def _types(self) -> Mapping[str, str]:
        """The letters by which `find -type` names the type of each known path."""
        return {path: kind for kind, name in _TYPES.items() for path in self.values.get(name, ())}

    def fed(self, words: Sequence[str], random: Random) -> Sequence[str]:
        """Return a command's words with a file as standard input."""
        files = self.values.get("TextFile", ())
        return (*words, "<", files[int(random.random() * len(files))]) if files else words

    @cached_property
    def _by_word(self) -> Mapping[str, Grammar]:
        """The grammars, by the first word of their commands."""
        return {word: each for each in self.grammars.values() for word in each.command_tokens}

    def writer(self, name: str) -> CommandWriter:
        """Return the writer of a command, which also draws options and values."""
        if name not in self.writers:
            self.writers[name] = CommandWriter(
                self.grammars[name],
                self.sampler.table,
                self.values,
                self.settings,
                None if self.people is None else self,
                self.plans,
            )
        return self.writers[name]

    def run(self, name: str, part: str, before: Sequence[str], random: Random) -> str | None:
        """See `Nested`. The command follows the usage table."""
        assert self.people is not None
        fifos = self.values.get("Fifo", ())
        caller = self.grammars[name]
        for _ in range(NESTED_ATTEMPTS):
            drawn = self.people.nested(name, random, among_all=not on_files(caller))
            program = None if drawn is None else self.grammars.get(drawn)
            if program is not None and may_run(caller, part, program, before, fifos):
                written = self._inner(program.name, random)
                traits = program.header.traits
                return None if written is None else run_by(name, traits, written.words, random)
        return None

    def words(self, text: str) -> Sequence[str]:
        """See `Nested`."""
        command, *words = split_words(text)
        arguments = self.parser.arguments(command, words, NESTED_DEPTH - 1)
        return [command, *(argument.marked for argument in arguments)]

    def operand(self, name: str, random: Random) -> str | None:
        """See `Nested`."""
        assert self.people is not None
        inside = substitution(name, self.people.substitutions, random)
        if inside is None:
            return None
        mark, programs = inside
        known = [program for program in programs if program in self.grammars]
        if not known:
            return None
        program = random.choices(known, [programs[one] for one in known])[0]
        written = self._inner(program, random)
        traits = self.grammars[program].header.traits
        return None if written is None else substituted(mark, traits, written.words)

    def _inner(self, program: str, random: Random) -> Drawn | None:
        """Draw a nested command that runs no further command; None if that fails."""
        assert self.people is not None
        if program not in self.inner:
            self.inner[program] = self.writer(program).without_nested()
        writer = self.inner[program]
        starts = [writer.grammar.start]
        return self.people.write(writer, starts, random, horizon=NESTED_HORIZON, piped=False)


def _plain(text: str) -> str:
    """Return a word without its quotes, if they protect nothing that the shell expands."""
    return text if set("$`*?[{~\\") & set(text) else unquoted(text)
