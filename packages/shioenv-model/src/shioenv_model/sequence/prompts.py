"""Prompts of sequence models: the command, its working directory, and facts about its operands.

All facts are from the given state, so a model can answer for a machine that it has not seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shioenv.bash.words import split_words
from shioenv.domain.runner import State
from shioenv.errors import Abstained
from shioenv_model.memory.facts import Operand, resolved_operands
from shioenv_model.memory.forms import Forms
from shioenv_model.memory.memory import Memory
from shioenv_model.memory.rank import features
from shioenv_model.memory.rewrite import Kept, Taken
from shioenv_model.sequence.compact import Now

CONTENT = 2048
"""Maximum number of bytes of files and standard input in a prompt, in total."""

NAMES = 40
"""Maximum number of names of a directory in a prompt."""

OPERANDS = 12
"""Maximum number of operands with facts in a prompt."""

_NEIGHBOUR = 300
"""Maximum number of characters of a neighbour's output, and of its patch, in a prompt."""


class Prompter:
    """Writes prompts.

    With a memory, a prompt includes `neighbours` of the memory's best candidates: the nearest
    records, rewritten for the command.
    """

    def __init__(self, memory: Memory | None = None, neighbours: int = 0) -> None:
        self._memory, self._neighbours = memory, neighbours
        self._forms = Forms()

    def prompt(self, text: str, state: State, now: Now, *, without_itself: bool = False) -> str:
        """Return the prompt of one command in a state; its first line is the command.

        `without_itself`: the record of the same input is not used as a neighbour.
        """
        document = state.before.document
        lines = [f"$ {text}", f"@ {document['cwd']} {document.get('user', 'root')} {now.text}"]
        form = self._forms.form(split_words(text), state)
        taken = None if form is None else Taken(form, resolved_operands(form, state))
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
    """Yield the first `left` bytes as lines: `|` before whole lines, `/` before a partial one."""
    part = content[: max(left, 0)]
    lines = part.decode("utf-8", "replace").split("\n")
    for line in lines[:-1]:
        yield f"|{_plain(line)}"
    if lines[-1]:
        yield f"/{_plain(lines[-1])}"


def _plain(text: str) -> str:
    """Return the text on one line, with `?` for characters that are not valid Unicode."""
    return text.replace("\r", "\\r").replace("\n", "\\n").encode("utf-8", "replace").decode("utf-8")
