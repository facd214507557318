"""Sequences of inputs that create, enter, view, change and remove files.

For each next input, an action is drawn, and a sample that performs it is taken if the stream has
one soon. The sample's operands are changed to name files that earlier inputs created. Nothing is
executed: the effect of an input is derived from its words. There are no statistics on such
sequences, so the weights are our choice.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

from shioenv.domain.inputs import Argument, Input, Role
from shioenv.grammar.parts import Names
from shioenv.grammar.traits import OF_FILES, Traits

MAKE, ENTER, LOOK, CHANGE, REMOVE, OTHER = "make", "enter", "look", "change", "remove", "other"

_MAKING = frozenset({"new", "output", "target"})
"""Roles of operands that the command creates."""
_LOOKED_AT = frozenset({"file", "path", "tree", "directory"})

_AFTERWARDS = {ENTER: 0.15, LOOK: 0.35, CHANGE: 0.2, REMOVE: 0.12, MAKE: 0.1, OTHER: 0.08}
"""Shares of the actions of the next input, after an earlier input created something."""
_BEFORE = {MAKE: 0.7, LOOK: 0.15, ENTER: 0.05, OTHER: 0.1}
"""Shares of the actions of the next input, while no input has created anything."""
_THREADED = 0.3
"""Share of operands that are changed to name a creation, after the first such operand of an
input."""
_NEWEST = 0.6
"""Share of changed operands that name the newest creation, rather than a random one."""
_UP = 0.3
"""Share of `cd` inputs that go to the parent directory, if the shell has left its start
directory."""

_FILE, _DIRECTORY = "file", "directory"


class TypedSoFar:
    """The state after the inputs typed so far: working directory and created files.

    It is derived from the words of the inputs. `start` is the shell's start directory. `names` are
    the system's files, relative to it. `traits` are the traits of commands, by their first word.
    """

    def __init__(self, start: str, names: Names, traits: Mapping[str, Traits]) -> None:
        self.start = self._here = start
        self._traits = traits
        self._kinds = dict.fromkeys((self.path(word) for word in names.get("File", ())), _FILE)
        self._kinds |= {self.path(word): _DIRECTORY for word in names.get("Directory", ())}
        self._made: dict[str, str] = {}

    def path(self, word: str) -> str:
        """Return the absolute path of a word typed in the working directory."""
        return posixpath.normpath(posixpath.join(self._here, word))

    def wanted(self, random: Random) -> str:
        """Draw the action of the next input: a kind as in `kinds_of`."""
        shares = _AFTERWARDS if self._made else _BEFORE
        return random.choices([*shares], [*shares.values()])[0]

    def fits(self, shell_input: Input, wanted: str) -> bool:
        """Whether the input performs the required action.

        If something was created, the input must also have an operand of the same kind (file or
        directory). This does not apply to the actions `MAKE` and `OTHER`, or to a command whose
        only operand is implied.
        """
        if wanted not in self.kinds_of(shell_input):
            return False
        if not self._made or wanted in {MAKE, OTHER}:
            return True
        made = {*self._made.values()}
        commands = [*_commands(shell_input)]
        if self._of(commands[0].name).implied and not commands[0].places:
            return True
        return any(
            self._kinds.get(self._drawn(word)) in made
            for command in commands
            for word in command.operands
        )

    def _drawn(self, word: str) -> str:
        """Return the absolute path of a word as drawn, in the start directory."""
        return posixpath.normpath(posixpath.join(self.start, word))

    def threaded(self, shell_input: Input, random: Random) -> Input:
        """Adapt an input to the working directory.

        Operands that name the system's files are changed to name created files, or are made
        relative to the working directory.
        """
        tokens = list(shell_input.tokens)
        named: list[str] = []
        for command in _commands(shell_input):
            for place in command.places:
                text = tokens[place].argument.text
                path = self._drawn(text)
                kind = self._kinds.get(path)
                if kind is None:
                    continue
                made = [one for one, what in self._made.items() if what == kind]
                free = [one for one in made if one not in named and one != self._here]
                enters = self._of(command.name).changes == "cwd"
                if enters and self._here != self.start and random.random() < _UP:
                    word = ".."
                elif free and (not named or random.random() < _THREADED):
                    named.append(free[-1] if random.random() < _NEWEST else random.choice(free))
                    word = posixpath.relpath(named[-1], self._here)
                elif text.startswith("/") or self._here == self.start:
                    continue
                else:
                    word = posixpath.relpath(path, self._here)
                tokens[place] = replace(tokens[place], argument=Argument(word))
        return Input(tuple(tokens))

    def typed(self, shell_input: Input) -> None:
        """Record what an input creates, moves and removes, and its change of directory."""
        for command in _commands(shell_input):
            self._ran(command.name, command.operands)
            for target in command.targets:
                if _is_plain(target):
                    self._made[self.path(target.text)] = _FILE

    def _kind(self, word: str) -> str | None:
        path = self.path(word)
        return self._made.get(path) or self._kinds.get(path)

    def _of(self, name: str) -> Traits:
        return self._traits.get(name, _UNKNOWN)

    def _ran(self, name: str, words: Sequence[str]) -> None:
        traits = self._of(name)
        if traits.changes == "cwd" and len(words) == 1:
            if self._kind(words[0]) == _DIRECTORY or set(words[0]) <= {".", "/"}:
                self._here = self.path(words[0])
        elif traits.into and len(words) > 1:
            *sources, last = words
            inside = self._kind(last) == _DIRECTORY
            for source in sources:
                kind = self._kind(source) or _FILE
                name_there = posixpath.basename(source.rstrip("/"))
                there = self.path(posixpath.join(last, name_there) if inside else last)
                if traits.changes == "name":
                    old = self.path(source)
                    moved = {there + path[len(old) :]: what for path, what in self._take(old)}
                    self._made.update(moved)
                self._made[there] = kind
        elif traits.removes:
            for gone in map(self.path, words):
                self._take(gone)
        else:
            usual = _DIRECTORY if traits.makes == "directory" else _FILE
            for word, role in zip(words, traits.roles_of(len(words)), strict=True):
                if role in _MAKING:
                    self._made[self.path(word)] = self._kind(word) or usual

    def _take(self, top: str) -> list[tuple[str, str]]:
        """Remove and return the creations at and below a path, as paths and kinds."""
        taken = [
            (path, kind)
            for path, kind in self._made.items()
            if path == top or path.startswith(f"{top}/")
        ]
        for path, _ in taken:
            del self._made[path]
        return taken

    def kinds_of(self, shell_input: Input) -> frozenset[str]:
        """Return the possible actions of an input, by its first command; `OTHER` if none."""
        first = next(_commands(shell_input), None)
        traits = self._of(first.name) if first else _UNKNOWN
        if first is None or (traits.changes == "cwd" and not first.places):
            return frozenset({OTHER})
        role = traits.paths[0].role if traits.paths else ""
        looks = role in _LOOKED_AT or bool(traits.implied)
        kinds = {
            MAKE: bool(role) and (bool(traits.makes) or role in _MAKING),
            ENTER: traits.changes == "cwd",
            LOOK: looks and not (traits.makes or traits.changes or traits.removes),
            CHANGE: traits.changes in OF_FILES or "target" in traits.roles,
            REMOVE: traits.removes,
        }
        return frozenset(kind for kind, does in kinds.items() if does) or frozenset({OTHER})


_UNKNOWN = Traits()


@dataclass(frozen=True, slots=True)
class _Command:
    """One command of an input: its name, and the positions of its plain operands."""

    name: str
    places: list[int]
    operands: list[str]
    targets: list[Argument]
    """Targets of redirections that the command writes to."""


def _commands(shell_input: Input) -> Iterator[_Command]:
    """Yield the commands of an input, in order."""
    tokens = shell_input.tokens
    for start, end in shell_input.spans():
        names = [one.argument.text for one in tokens[start:end] if one.role is Role.COMMAND]
        places = [
            place
            for place in range(start, end)
            if tokens[place].role is Role.ARGUMENT and _is_plain(tokens[place].argument)
        ]
        targets = [
            target.argument
            for operator, target in pairwise(tokens[start:end])
            if target.role is Role.TARGET and ">" in operator.argument.text
        ]
        if names:
            operands = [tokens[place].argument.text for place in places]
            yield _Command(names[0], places, operands, targets)


def _is_plain(argument: Argument) -> bool:
    """Whether an argument is a plain word: no option, quote, expansion, or part of a bundle."""
    return (
        not argument.joins_left
        and not argument.joins_right
        and argument.text[:1] not in "-'\"\\~"
        and not set(argument.text) & set(" $`*?[]{}()<>|;&=\"'\\!#\n")
    )
