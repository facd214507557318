"""Function definitions in the format of `declare -f` (`print_cmd.c` of Bash 5.2)."""

from __future__ import annotations

import re

from shioenv.bash.program import (
    Case,
    Command,
    Counting,
    For,
    Function,
    Group,
    If,
    Job,
    Pipeline,
    Program,
    Redirect,
    Redirected,
    Simple,
    Verbatim,
    While,
)
from shioenv.bash.words import ansi
from shioenv.errors import Abstained

_STEP = 4
_ANSI = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_NESTED = re.compile(r"\$\((?!\()|<\(|>\(")
_PLAIN_INSIDE = re.compile(r"(?:[\w ./$\"'{}@*%+:,=-]| \| )*")
"""The text of a substitution of only words and pipes, which Bash prints unchanged."""


def definition(function: Function) -> str:
    """Format the body of a function as `declare -f` prints it after the header.

    Errors: Abstained for constructs whose format is not implemented.
    """
    body, redirects = function.body, ""
    if isinstance(body, Redirected):
        redirects = "".join(f" {_redirect(each)}" for each in body.redirects)
        body = body.command
    if isinstance(body, Group) and not body.subshell:
        return f"{{ \n{_program(body.body, _STEP)}\n}}{redirects}"
    return f"{{ \n{' ' * _STEP}{_command(body, _STEP)}{redirects}\n}}"


def command_text(command: Command) -> str | None:
    """Return a command as `$BASH_COMMAND` shows it; None if its format is not implemented."""
    try:
        if isinstance(command, For):
            word = "select" if command.menu else "for"
            words = ['"$@"'] if command.words is None else map(_word, command.words)
            return f"{word} {command.name} in {' '.join(words)}"
        if isinstance(command, Case):
            return f"case {_word(command.word)} in "
        return _command(command, 0)
    except Abstained:
        return None


def _program(program: Program, indent: int) -> str:
    """Format a list of commands, one per line; the last one has no `;`."""
    return " " * indent + _inline(program, indent)


def _job(job: Job, indent: int) -> str:
    parts = []
    for operator, pipeline in job.pipelines:
        parts.append(f"{operator} {_pipeline(pipeline, indent)}".lstrip())
    return " ".join(parts)


def _pipeline(pipeline: Pipeline, indent: int) -> str:
    if pipeline.timed or not pipeline.stages:
        raise _beyond("time")
    stages = _command(pipeline.stages[0], indent)
    for merged, stage in zip(pipeline.merged, pipeline.stages[1:], strict=False):
        stages += (" 2>&1 | " if merged else " | ") + _command(stage, indent)
    return ("! " if pipeline.negated else "") + stages


def _body(program: Program, indent: int) -> str:
    """Format the body of a compound command; here the last command ends with `;` too."""
    end = "" if program[-1].background else ";"
    return f"{_program(program, indent + _STEP)}{end}\n{' ' * indent}"


def _command(command: Command, indent: int) -> str:
    space = " " * indent
    if isinstance(command, Simple):
        return _simple(command)
    if isinstance(command, Redirected):
        redirects = "".join(f" {_redirect(each)}" for each in command.redirects)
        return _command(command.command, indent) + redirects
    if isinstance(command, Verbatim):
        return _verbatim(command)
    if isinstance(command, Group):
        if command.subshell:
            return f"( {_inline(command.body, indent)} )"
        return f"{{ \n{_program(command.body, indent + _STEP)}\n{space}}}"
    if isinstance(command, If):
        return _if(command.branches, command.otherwise, indent)
    if isinstance(command, While):
        word = "while" if command.wanted else "until"
        condition = _inline(command.condition, indent)
        return f"{word} {condition}; do\n{_body(command.body, indent)}done"
    if isinstance(command, For):
        words = ['"$@"'] if command.words is None else map(_word, command.words)
        word = "select" if command.menu else "for"
        head = f"{word} {command.name} in {' '.join(words)};"
        return f"{head}\n{space}do\n{_body(command.body, indent)}done"
    if isinstance(command, Counting):
        head = f"for (({'; '.join(each.strip() for each in command.expressions)}))"
        return f"{head}\n{space}do\n{_body(command.body, indent)}done"
    if isinstance(command, Case):
        return _case(command, indent)
    raise _beyond("a definition inside of another one")


def _if(branches: tuple[tuple[Program, Program], ...], otherwise: Program, indent: int) -> str:
    (condition, body), *more = branches
    text = f"if {_inline(condition, indent)}; then\n{_body(body, indent)}"
    inner = indent + _STEP
    if more:
        nested = " " * inner + _if(tuple(more), otherwise, inner)
        text += f"else\n{nested};\n{' ' * indent}"
    elif otherwise:
        text += f"else\n{_body(otherwise, indent)}"
    return f"{text}fi"


def _case(command: Case, indent: int) -> str:
    outer, inner = " " * (indent + _STEP), indent + 2 * _STEP
    text = f"case {_word(command.word)} in \n"
    for patterns, body, end in command.items:
        text += f"{outer}{' | '.join(map(_word, patterns))})\n"
        text += f"{_program(body, inner)}\n" if body else "\n"
        text += f"{outer}{end}\n"
    return f"{text}{' ' * indent}esac"


def _inline(program: Program, indent: int) -> str:
    """Format a list of commands that starts on the current line."""
    text = ""
    for number, job in enumerate(program):
        text += _job(job, indent)
        if number < len(program) - 1:
            text += " & " if job.background else f";\n{' ' * indent}"
        elif job.background:
            text += " &"
    return text


def _simple(command: Simple) -> str:
    parts = [_word(each) for each in (*command.assignments, *command.words)]
    return " ".join((*parts, *map(_redirect, command.redirects)))


def _redirect(redirect: Redirect) -> str:
    operator, number = redirect.operator, redirect.descriptor
    if isinstance(number, str) or (operator in ("<<", "<<-") or operator.startswith("<>")):
        raise _beyond("this redirection")
    target = _word(redirect.target)
    if operator in (">&", "<&"):
        if not target.isdigit() and target != "-":
            return f"{'' if number is None else number}{operator}{target}"
        default = 1 if operator == ">&" else 0
        return f"{default if number is None else number}{operator}{target}"
    standard = 0 if operator.startswith("<") else 1
    shown = "" if number is None or number == standard else str(number)
    return f"{shown}{operator} {target}"


def _verbatim(command: Verbatim) -> str:
    if command.text.startswith("(("):
        return command.text
    return f"[[ {' '.join(map(_word, command.parts))} ]]"


def _word(word: str) -> str:
    """Return a word unchanged. Errors: Abstained if Bash reformats a substitution."""
    for match in _NESTED.finditer(word):
        inside = word[match.end() : word.rfind(")")]
        if not _PLAIN_INSIDE.fullmatch(inside) or inside != inside.strip() or "  " in inside:
            raise _beyond("this substitution")
    return _ANSI.sub(_unescaped, word)


def _unescaped(match: re.Match[str]) -> str:
    """Rewrite `$'…'` as Bash stores it: in single quotes, with decoded escapes."""
    if match[1] is None:
        return match[0]
    text = ansi(match[1])
    if "'" in text:
        raise _beyond("a quote in $'…'")
    return f"'{text}'"


def _beyond(what: str) -> Abstained:
    return Abstained(f"the format in which Bash prints {what} is not supported")
