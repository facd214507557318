"""The states of derivations in Section 3.2 of the paper: partly expanded inputs."""

from __future__ import annotations

from dataclasses import dataclass

from shioenv.grammar.symbols import Nonterminal, Production, Symbol, TerminalText, show_argument


@dataclass(frozen=True, slots=True)
class PartialInput:
    """A state s = (c, a1, …, an), in which some arguments may contain nonterminals.

    Section 3.2 defines an argument as one nonterminal or one text. Ours is a tuple of symbols,
    since `--block-size=<size>` contains both. The first argument becomes the command.
    """

    arguments: tuple[tuple[Symbol, ...], ...]

    @classmethod
    def initial(cls, start: Nonterminal) -> PartialInput:
        """Create the state that consists of the start symbol."""
        return cls(((start,),))

    @property
    def leftmost(self) -> Nonterminal | None:
        """The leftmost nonterminal, lambda(s); None if the input is complete."""
        place = self._leftmost_place()
        if place is None:
            return None
        symbol = self.arguments[place[0]][place[1]]
        assert isinstance(symbol, Nonterminal)
        return symbol

    @property
    def n_arguments(self) -> int:
        """The number of complete arguments before the leftmost nonterminal, without command."""
        place = self._leftmost_place()
        return max(0, (len(self.arguments) if place is None else place[0]) - 1)

    @property
    def room(self) -> int:
        """Always 0: a state has no maximum number of arguments that could be filled up."""
        return 0

    @property
    def more_repetitions(self) -> bool:
        """Always False: a state does not look ahead."""
        return False

    @property
    def words(self) -> tuple[str, ...]:
        """The complete words, the command first, including no-space marks.

        ValueError if there are nonterminals.
        """
        if self.leftmost is not None:
            raise ValueError(f"{self} still has the nonterminal {self.leftmost}")
        return tuple("".join(map(str, argument)) for argument in self.arguments)

    def expand(self, production: Production) -> PartialInput:
        """Return the state with its leftmost nonterminal replaced by the production's body.

        The head is not compared: an unconstrained sampler applies productions of other
        nonterminals. An argument that becomes empty is dropped. ValueError in a complete state.
        """
        place = self._leftmost_place()
        if place is None:
            raise ValueError(f"{self} has no nonterminal")
        index, offset = place
        argument = self.arguments[index]
        left, right = argument[:offset], argument[offset + 1 :]
        body = production.body
        if not body:
            replaced: tuple[tuple[Symbol, ...], ...] = (left + right,)
        elif len(body) == 1:
            replaced = (left + body[0] + right,)
        else:
            replaced = (left + body[0], *body[1:-1], body[-1] + right)
        kept = tuple(filter(None, replaced))
        return PartialInput((*self.arguments[:index], *kept, *self.arguments[index + 1 :]))

    def _leftmost_place(self) -> tuple[int, int] | None:
        for index, argument in enumerate(self.arguments):
            for offset, symbol in enumerate(argument):
                if not isinstance(symbol, TerminalText):
                    return index, offset
        return None

    def __str__(self) -> str:
        return "(" + ", ".join(show_argument(argument) for argument in self.arguments) + ")"
