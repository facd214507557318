"""What a sequence model is asked: the command, where it runs, and the facts of its operands.

Everything is taken from a given state, so a model can be asked about a machine that it never saw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shioenv.bash.words import split_words
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.memory.facts import Operand, operands
from shioenv_model.memory.forms import Forms
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.rank import features
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.sequence.compact import Now

CONTENT = 2048
"""Most bytes of files and of standard input that a prompt shows, all together."""

NAMES = 40
"""Most names of a directory that a prompt shows."""

OPERANDS = 12
"""Most operands whose facts a prompt tells."""

_NEIGHBOUR = 300
"""Most characters of a neighbour's output, and of its patch, that a prompt shows."""


class Prompter:
    """Writes prompts.

    With a memory, a prompt shows `neighbours` of the memory's best candidates: the nearest records,
    rewritten for the command.
    """

    def __init__(self, memory: Memory | None = None, neighbours: int = 0) -> None:
        self._memory, self._neighbours = memory, neighbours
        self._forms = Forms()

    def prompt(self, text: str, state: State, now: Now, *, without_itself: bool = False) -> str:
        """The prompt of one command in a state: lines, the command's first.

        `without_itself`: the record of the very same input is no neighbour.
        """
        document = state.before.document
        lines = [f"$ {text}", f"@ {document['cwd']} {document.get('user', 'root')} {now.text}"]
        form = self._forms.form(split_words(text), state)
        taken = None if form is None else Taken(form, operands(form, state))
        left = CONTENT
        for each in taken.operands[:OPERANDS] if taken else ():
            for line in _facts(each, state, left):
                lines.append(line)
                left -= len(line) if line[:1] in "|/" else 0
        if state.stdin and not (taken and any(each.kind == "x" for each in taken.operands)):
            lines += ["x", *_shown(state.stdin, max(left, 0))]
        if not state.stdin and (form is None or not form.operands):
            lines += _listed("d .", state, ".")
        if taken and self._memory and self._neighbours:
            lines += self._near(taken, text, state, without_itself=without_itself)
        return "".join(f"{line}\n" for line in lines)

    def _near(
        self, taken: Taken, text: str, state: State, *, without_itself: bool
    ) -> Iterator[str]:
        memory = self._memory
        assert memory is not None
        world = memory.world.state(state.cwd)
        without = -1
        if without_itself:
            same = memory.index.exact(state.cwd, text.strip())
            without = same[0].number if same else -1
        try:
            candidates = memory.candidates(taken, state if state.pristine else world, without)
        except Abstained:
            return
        scores = memory.ranker.probability(features(taken, candidates)) if candidates else ()
        order = sorted(range(len(candidates)), key=lambda place: -float(scores[place]))
        for place in order[: self._neighbours]:
            each = candidates[place]
            yield f"~ {memory.index.entry(each.number).text}"
            yield from _told(each.kept)


def _told(kept: Kept) -> Iterator[str]:
    yield f"= {kept.exit_code}"
    for line in kept.output[:_NEIGHBOUR].splitlines():
        yield f"|{_plain(line)}"
    if kept.patch != "[]":
        yield f"& {_plain(kept.patch[:_NEIGHBOUR])}"


def _facts(operand: Operand, state: State, left: int) -> Iterator[str]:
    head = f"{operand.kind} {_plain(operand.word)}".rstrip()
    details = operand.details
    if operand.entry is not None:
        said: Mapping[str, Any] = details
        head += f" {said['mode']} {operand.entry.links} {said['owner']} {said['group']}"
        head += f" {said['size']} {said['day']} {operand.entry.time}"
        if operand.entry.target is not None:
            head += f" >{_plain(operand.entry.target)}"
    if operand.content is not None:
        head += f" l{details['lines']} w{details['words']} c{details['characters']}"
    if operand.kind == "d":
        yield from _listed(head, state, operand.word)
        return
    yield head
    if operand.content is not None:
        yield from _shown(operand.content, left)


def _listed(head: str, state: State, path: str) -> Iterator[str]:
    names = state.names(path)
    shown = " ".join(map(_plain, names[:NAMES]))
    yield f"{head} n{len(names)}: {shown}"


def _shown(content: bytes, left: int) -> Iterator[str]:
    """The first `left` bytes of a text in lines: `|` before whole lines, `/` before an open one."""
    part = content[: max(left, 0)]
    lines = part.decode("utf-8", "replace").split("\n")
    for line in lines[:-1]:
        yield f"|{_plain(line)}"
    if lines[-1]:
        yield f"/{_plain(lines[-1])}"


def _plain(text: str) -> str:
    """The text on one line, with `?` for what Unicode cannot say."""
    return text.replace("\r", "\\r").replace("\n", "\\n").encode("utf-8", "replace").decode("utf-8")
