"""Several operands of which one is missing: what a command does to each, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shioenv.domain.behavior import Behavior
from shioenv.domain.runner import Answer, State
from shioenv.grammar.traits import PATHS
from shioenv_model.composition.call import Call, option_words
from shioenv_model.composition.changes import composed
from shioenv_model.memory.facts import Operand
from shioenv_model.memory.forms import ASSIGNMENT, Form

EACH = frozenset(
    {
        "cat", "chgrp", "chmod", "chown", "cksum", "cut", "md5sum", "mkdir", "rm", "rmdir",
        "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "stat", "tac", "touch",
    }
)  # fmt: skip
"""Commands that do the same to each operand, whatever the others are."""

ALONG = frozenset({"nl", "sed"})
"""Commands that read their operands as one text: as `EACH` where one operand is there."""

_OF_ALL = frozenset({ASSIGNMENT, "--reference", "-I", "--interactive"})
"""Options that say something of all operands together, or of what is missing."""


def one_by_one(
    form: Form, operands: Sequence[Operand], state: State, ask: Callable[[Call], Answer]
) -> Answer | None:
    """What a command does where some of its operands are missing, or are there and should not be.

    `ask` says what the command does with one operand. None for any other command.
    """
    if form.utility not in EACH | ALONG or len(form.roles) != len(operands):
        return None
    paths = [one for one, role in zip(operands, form.roles, strict=True) if role in PATHS]
    before = [one for one, role in zip(operands, form.roles, strict=True) if role not in PATHS]
    if (
        len(paths) < 2
        or len({each.word for each in paths}) < len(paths)
        or any(each.kind == "x" for each in paths)
    ):
        return None
    missing = [each for each in paths if each.kind in "mM"]
    there = len(paths) - len(missing)
    if form.utility in ALONG and there > 1:
        return None
    if form.utility == "cat" and there > 1 and form.options:
        return None  # numbers go on from one file to the next
    wrong = there if form.utility in ("mkdir", "rmdir") else len(missing)
    names = {name for name, _ in form.options}
    if not wrong or names & _OF_ALL or (form.utility == "touch" and names & {"-r", "-h"}):
        return None
    if any(each.word.startswith("-") for each in operands):
        return None
    words = [form.command, *(word for each in form.options for word in option_words(each))]
    words += [each.word for each in before]
    answers = [ask(Call.of([*words, each.word])) for each in paths]
    behaviors = [each.behavior for each in answers]
    if any(each.stdout is None or each.output_truncated for each in behaviors):
        return None
    document = state.before.document
    return Answer(
        Behavior(
            max(each.exit_code for each in behaviors),
            b"".join(each.output for each in behaviors),
            composed(document, [each.patch for each in behaviors], state.cwd),
            stdout=b"".join(each.stdout or b"" for each in behaviors),
            stderr=b"".join(each.stderr or b"" for each in behaviors),
            volatile=any(each.volatile for each in behaviors),
            content_digests={k: v for each in behaviors for k, v in each.content_digests.items()},
        ),
        min(each.confidence for each in answers),
        "operands one by one, by rule",
        {k: v for each in answers for k, v in each.written.items()},
    )
