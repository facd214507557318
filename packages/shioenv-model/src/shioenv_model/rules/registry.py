"""The rules for single commands, in the order in which a model applies them.

A model uses rules only through this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, State
from shioenv_model.composition.call import Call
from shioenv_model.composition.changes import composed
from shioenv_model.memory.facts import Tree
from shioenv_model.memory.forms import UNKNOWN, UNKNOWN_LONG
from shioenv_model.memory.memory import VOLATILE
from shioenv_model.memory.rewrite import Taken
from shioenv_model.memory.world import World
from shioenv_model.rules.chosen_rows import LISTS, WALKS, chosen_rows
from shioenv_model.rules.effects import effect
from shioenv_model.rules.file_by_file import SEARCH, edited_in_place, one_by_one, searched
from shioenv_model.rules.programs import printed
from shioenv_model.rules.unreachable_hosts import outside
from shioenv_model.rules.usage_errors import usage_error
from shioenv_model.rules.words import (
    asks_for_usage,
    insert_directory,
    is_usage_of,
    respelled,
    unnamed,
    without_name,
)


@dataclass(frozen=True, slots=True)
class Step:
    """The answer to one command, as a step towards the answer to an input."""

    input: str
    answer: Answer
    nearest: tuple[tuple[str, float], ...] = ()
    """Recorded inputs that support the answer, each with its distance."""
    alternatives: tuple[tuple[Behavior, float], ...] = ()
    """Other answers, each with a probability or a confidence, 0 to 1."""
    asked: tuple[str, ...] = ()
    """The answerers that were tried, in order; the last one answered."""


class Respondent(Protocol):
    """Answers a rule's questions about the machine and about other commands."""

    @property
    def world(self) -> World:
        """The machine that the commands run on."""
        ...

    def parse(self, call: Call, state: State) -> Taken | None:
        """Parse a command by its grammar; None if there is no command."""
        ...

    def ask(self, call: Call, state: State) -> Step:
        """Return the answer of the first answerer that knows the command."""
        ...

    def look_up(self, call: Call, state: State) -> Step | None:
        """Return the recorded behavior of the same command; None without a record."""
        ...

    def remember(self, call: Call, state: State) -> Step | None:
        """Return the prediction from similar records and functions, without a look-up."""
        ...


class Rule(Protocol):
    """Answers a command in the state that the previous commands left."""

    def __call__(self, call: Call, state: State, respondent: Respondent) -> Step | None:
        """Return the answer; None for an unknown command."""
        ...


Changed: TypeAlias = tuple[Behavior, Mapping[str, bytes]]
"""The behavior of a command, and the contents of the files that it writes."""


_USAGE = re.compile(rb"^Usage: |(?i:try) ['`]")
"""Phrases in usage errors."""


def _program(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The output of a read-only program."""
    said = printed(call, state)
    return None if said is None else Step(call.text, Answer(said, 1.0, "a program, by rule"))


def _other_spelling(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The answer to another spelling: `tar -xf` for `tar xf`, `grep -E` for `egrep`."""
    written = respelled(call)
    if written is None:
        return None
    step = respondent.ask(replace(call, written=written, parts=None), state)
    return replace(step, input=call.text)


def _usage(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The output of a GNU program whose first argument is `--help` or `--version`.

    The program ignores the words after that option.
    """
    if not asks_for_usage(call):
        return None
    step = respondent.ask(Call.of(call.words[:2]), state)
    shown = is_usage_of(call.words[0], step.answer.behavior)
    return replace(step, input=call.text) if shown else None


def _refusal(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The error of a program that rejects its words."""
    taken = respondent.parse(call, state)
    said = None if taken is None else usage_error(taken.form, state)
    if said is None:
        return None
    return Step(call.text, Answer(said, 1.0, "words that are refused, by rule"))


def _refusal_of_a_filter(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The error of a filter that rejects its words before it reads a pipe.

    The error does not depend on the data or on earlier changes. So it is looked up for empty
    standard input on a pristine machine.
    """
    taken = respondent.parse(call, state) if state.stdin else None
    if taken is None or not taken.form.filters:
        return None
    pristine = respondent.world.state(state.cwd)
    exact = respondent.look_up(call, pristine)
    if exact is not None:
        return exact if _is_refusal(exact) else None
    last = taken.form.order[-1:]
    doubtful = any(name in (UNKNOWN, UNKNOWN_LONG) for name, _ in taken.form.options)
    if not doubtful and (not last or not last[0][0] or last[0][1] is not None):
        return None
    step = respondent.remember(call, pristine)
    return step if step is not None and _is_refusal(step) else None


def _is_refusal(step: Step) -> bool:
    """Whether the answer is a usage error."""
    said = step.answer.behavior
    return bool(said.exit_code and not said.patch and _USAGE.search(said.output))


def _in_place(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The effect of an in-place edit, from the command's output for each file."""
    fresh = respondent.world.made
    taken = respondent.parse(call, state) if fresh is not None else None
    if taken is None or fresh is None or taken.form.guessed:
        return None
    form = taken.form
    said = edited_in_place(
        form.utility, form.options, form.operands, state, fresh,
        lambda each, here: respondent.ask(each, here).answer,
    )  # fmt: skip
    return None if said is None else Step(call.text, said)


def _search(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The output of a search in several files, from the command's output for each."""
    if call.words[:1] != (SEARCH,):
        return None
    taken = respondent.parse(call, state)
    if taken is None or taken.form.guessed:
        return None
    form = taken.form
    said = searched(
        form.command, form.options, form.operands, state,
        lambda path: Tree(path, state).entries,
        lambda each, here: respondent.ask(each, here).answer,
    )  # fmt: skip
    return None if said is None else Step(call.text, said)


def _operands_one_by_one(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The answer for several operands, from the command's behavior on each."""
    taken = respondent.parse(call, state)
    if taken is None or taken.form.guessed:
        return None
    said = one_by_one(
        taken.form, taken.operands, state, lambda each: respondent.ask(each, state).answer
    )
    return None if said is None else Step(call.text, said)


def _effect(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The filesystem effects of a command."""
    return _changed(effect, call, state, respondent, "an effect, by rule")


def _host_outside(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The error of a command that cannot reach a host."""
    return _changed(outside, call, state, respondent, "a host outside, by rule")


def _changed(
    rule: Callable[[Call, State, Mapping[str, Any]], Changed | None],
    call: Call,
    state: State,
    respondent: Respondent,
    source: str,
) -> Step | None:
    fresh = respondent.world.made
    found = None if fresh is None else rule(call, state, fresh)
    if found is None:
        return None
    behavior, written = found
    patch = composed(state.before.document, [behavior.patch], state.cwd)
    sure = VOLATILE if behavior.volatile else 1.0
    return Step(call.text, Answer(replace(behavior, patch=patch), sure, source, written))


def _chosen_rows(call: Call, state: State, respondent: Respondent) -> Step | None:
    """A filtered listing of processes or files, derived from the full listing."""
    if call.words[:1] not in ((LISTS,), (WALKS,)):
        return None
    taken = respondent.parse(call, state)
    if taken is None or taken.form.guessed:
        return None

    def shown(text: str, place: State) -> str | None:
        asked = Call.parse(text)
        step = respondent.look_up(asked, place) or respondent.remember(asked, place)
        if step is None:
            return None
        sure = step.answer.confidence >= VOLATILE / 2 or any(not far for _, far in step.nearest)
        return step.answer.behavior.output.decode() if sure else None

    said = chosen_rows(taken.form, state, respondent.world.state(), shown)
    if said is None:
        return None
    sure = VOLATILE if said.volatile else 1.0
    return Step(call.text, Answer(said, sure, "rows of a list, by rule"))


def _unnamed_directory(call: Call, state: State, respondent: Respondent) -> Step | None:
    """The answer for a command that works on its working directory without naming it.

    The answer to the same command with the directory's name is used. If no file has changed yet,
    that command is asked in the machine's start directory.
    """
    if not unnamed(call.text, state, respondent.world.start):
        return None
    name: str = state.before.document["cwd"]
    fresh = respondent.world.state(state.cwd)
    if fresh.before.document["fs"] == state.before.document["fs"]:
        state = respondent.world.state()
        name = name.removeprefix(f"{state.cwd}/")
    step = respondent.ask(Call(insert_directory(call.text, name)), state)
    said: Behavior = without_name(step.answer.behavior, name)
    return replace(step, input=call.text, answer=replace(step.answer, behavior=said))


EFFECT = "effect"
"""The rule that knows the contents of the files that a command writes."""

BEFORE_RECORDS: Mapping[str, Rule] = MappingProxyType({"program": _program})
"""The rules that are tried before records, by name."""

AFTER_RECORDS: Mapping[str, Rule] = MappingProxyType(
    {
        "other spelling": _other_spelling,
        "usage": _usage,
        "refusal": _refusal,
        "refusal of a filter": _refusal_of_a_filter,
        "in place": _in_place,
        "search": _search,
        "operands one by one": _operands_one_by_one,
        EFFECT: _effect,
        "host outside": _host_outside,
        "chosen rows": _chosen_rows,
        "unnamed directory": _unnamed_directory,
    }
)
"""The rules that are tried if there is no record of the same command, by name."""

RULES: Mapping[str, Rule] = MappingProxyType({**BEFORE_RECORDS, **AFTER_RECORDS})
"""All rules, by name, in order of application."""
