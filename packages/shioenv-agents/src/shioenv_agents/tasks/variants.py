"""Variants of a task's solution: near misses, and candidates for alternative solutions.

A candidate is verified by running it. `reaches` compares its effect with the goal fact by fact,
without the tolerance of a judge.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice, permutations, zip_longest
from typing import Final, TypeAlias

from shioenv.bash.read import read
from shioenv.bash.scan import Refused
from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.context import Context
from shioenv.domain.inputs import Argument, Input, Role, Token
from shioenv.domain.names import name_bytes
from shioenv.domain.readable import mode_of
from shioenv.grammar.arguments import ArgumentSplitter
from shioenv.grammar.library import load_grammar, names_of_grammars
from shioenv.recording.text_score import read_arguments
from shioenv.system.store import System
from shioenv_agents.tasks.goal_check import OWN
from shioenv_agents.tasks.make import wanted
from shioenv_agents.tasks.prompt import file_word
from shioenv_agents.tasks.task import Fact, GoalKind, Task

NEAR_MISSES: Final = 20
"""Maximum near misses of a task."""

NEIGHBOURS: Final = 8
"""Maximum near misses of a task that are other tasks' solutions."""

ALTERNATIVES: Final = 10
"""Maximum alternative solutions of a task."""

TRIED: Final = 24
"""Maximum candidates that are run to find alternative solutions."""

ORDERS: Final = 6
"""Maximum orders of a solution's lines that are tried."""


def reaches(task: Task, behavior: Behavior, before: Context) -> bool:
    """Whether the effect of a behavior since the task's start is exactly the goal.

    Each operation, content and line of the output must equal that of the goal. State that ends with
    the shell counts only if the goal contains it.
    """
    named = {fact.place for fact in task.goal.facts}

    def counted(facts: Iterable[Fact]) -> list[str]:
        kept = (one for one in facts if one.area not in OWN or one.place in named)
        return sorted(json.dumps(one.operation) for one in kept)

    done = map(Fact.of, wanted(behavior.patch, before).operations)
    if behavior.timed_out or counted(done) != counted(task.goal.facts):
        return False
    digests = task.goal.digests
    if any(digests.get(name) != digest for name, digest in behavior.content_digests.items()):
        return False
    return task.goal.output is None or behavior.text == task.goal.output


def near_misses(task: Task, neighbours: Iterable[str], system: System) -> list[str]:
    """Return distinct inputs that nearly equal a task's solution, at most `NEAR_MISSES`.

    They are the solution without each of its arguments, and the solutions of other tasks. If the
    solution makes a file, one input gives that file different content of the same size.
    """
    lines = lines_of(task.solution)
    shorter = [task.reduced, *_spoiled(task)]
    if len(lines) > 1:
        shorter += ["\n".join((*lines[:n], *lines[n + 1 :])) for n in range(len(lines))]
    for number, line in enumerate(lines):
        whole = read_arguments(line, system).input
        everything = range(whole.n_arguments)
        for out in everything:
            part = whole.keep(one for one in everything if one != out).text
            shorter.append("\n".join((*lines[:number], part, *lines[number + 1 :])))
    found = dict.fromkeys(chain(shorter, neighbours))
    return [text for text in found if text != task.solution][:NEAR_MISSES]


def _spoiled(task: Task) -> Iterator[str]:
    """Yield the solution followed by a change of a new file's first byte, for one file or none."""
    for fact in task.goal.facts:
        if fact.code != "a" or not fact.of_whole_file or fact.value["perms"][0] != "-":
            continue
        file = _word(fact.names[0])
        if file is not None and fact.value["size"]:
            spoiling = f"dd status=none conv=notrunc bs=1 count=1 if=/dev/zero of={file}"
            yield f"{task.solution}\n{spoiling}"
            return


def neighbours(tasks: Sequence[Task]) -> list[list[str]]:
    """Return other tasks' solutions for each task: first those with the same commands.

    Tasks with the same goal are omitted, because their solutions are no near misses.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, task in enumerate(tasks):
        for key in _groups(task):
            groups.setdefault(key, []).append(number)
    places = {name: {number: at for at, number in enumerate(of)} for name, of in groups.items()}
    found = []
    for number, task in enumerate(tasks):
        near: dict[str, None] = {}
        for name in _groups(task):
            group, place = groups[name], places[name][number]
            around = [tasks[group[(place + step) % len(group)]] for step in range(NEIGHBOURS + 1)]
            near |= dict.fromkeys(one.solution for one in around if one.goal != task.goal)
        found.append(list(near)[:NEIGHBOURS])
    return found


def _groups(task: Task) -> tuple[tuple[str, ...], ...]:
    """Return the groups in which a task has neighbours, the nearest first."""
    return ("commands", *task.commands), ("kind", task.kind.value)


def candidates(task: Task, system: System) -> list[str]:
    """Return inputs that may also solve a task, at most `TRIED`, drawn from several kinds.

    The kinds: other spellings of options, another order, other names of files, other ways to call
    the program, other tools that achieve the goal's facts.
    """
    lines = lines_of(task.solution)
    sorts: list[Iterator[str]] = [_by_facts(task), _called_otherwise(task)]
    if len(lines) > 1:
        sorts.append("\n".join(order) for order in islice(permutations(lines), 1, ORDERS))
    for number, line in enumerate(lines):
        whole = read_arguments(line, system).input
        for rewrite in (_other_spellings, _other_orders, partial(_other_names, cwd=task.cwd)):
            texts = _each(whole, rewrite)
            sorts.append("\n".join((*lines[:number], text, *lines[number + 1 :])) for text in texts)
    mixed = chain.from_iterable(zip_longest(*sorts))
    found = dict.fromkeys(text for text in mixed if text and text != task.solution)
    return list(found)[:TRIED]


def lines_of(solution: str) -> list[str]:
    """Return the lines of a solution if each is an input by itself, otherwise the solution."""
    lines = solution.split("\n")
    try:
        for line in lines:
            read(line)
    except Refused:
        return [solution]
    return lines


Rewrite: TypeAlias = Callable[[str, list[Argument]], Iterator[list[Argument]]]


def _each(whole: Input, rewrite: Rewrite) -> Iterator[str]:
    """Yield the input with one of its commands rewritten, in each way."""
    for start, stop in whole.spans():
        tokens = whole.tokens[start:stop]
        head = tokens[0].argument.text
        places = [n for n, token in enumerate(tokens) if token.role is Role.ARGUMENT]
        for arguments in rewrite(head, [tokens[n].argument for n in places]):
            new = list(tokens)
            for place, argument in zip(places, arguments, strict=True):
                new[place] = Token(argument, tokens[place].role)
            yield Input((*whole.tokens[:start], *new, *whole.tokens[stop:])).text


@cache
def _splitter(command: str) -> ArgumentSplitter | None:
    return ArgumentSplitter(load_grammar(command)) if command in names_of_grammars() else None


def _other_spellings(command: str, arguments: list[Argument]) -> Iterator[list[Argument]]:
    """Replace an option by another of its names, or separate bundled letters."""
    splitter = _splitter(command)
    if splitter is None:
        return
    if any(one.joins_left for one in arguments):
        yield [
            Argument(f"-{one.text}") if one.joins_left else Argument(one.text) for one in arguments
        ]
    for number, argument in enumerate(arguments):
        text = argument.text
        if not text.startswith("-") or argument.joins_left or argument.joins_right:
            continue
        for other in _names(splitter, text):
            if other != text:
                yield [*arguments[:number], Argument(other), *arguments[number + 1 :]]


def _names(splitter: ArgumentSplitter, text: str) -> Iterator[str]:
    """Yield an option with its value, by each of its names."""
    if text.startswith("--"):
        name, sign, value = text[2:].replace(" ", "=", 1).partition("=")
        spec = splitter.long(name)
    else:
        spec, value = splitter.shorts.get(text[1:2]), text[2:].removeprefix(" ")
        sign = value
    if spec is None or bool(sign) != (spec.value != "none"):
        return
    for long in spec.longs:
        yield f"--{long}={value}" if sign else f"--{long}"
    for short in spec.shorts:
        if not sign:
            yield f"-{short}"
        elif spec.value == "required" and not spec.joined:
            yield f"-{short} {value}"
        else:
            yield f"-{short}{value}"


def _other_orders(command: str, arguments: list[Argument]) -> Iterator[list[Argument]]:
    """Put options after operands, or in another order, if the program accepts that."""
    splitter = _splitter(command)
    if splitter is None or any(one.joins_left or one.joins_right for one in arguments):
        return
    options = [one for one in arguments if one.text.startswith("-") and one.text != "-"]
    operands = [one for one in arguments if one not in options]
    if any(one.text == "--" for one in arguments):
        return
    if splitter.permutes and options and operands:
        yield operands + options
        yield options + operands
    if len(options) > 1:
        yield options[::-1] + operands
    if len(operands) > 1:
        yield options + operands[::-1]


def _other_names(command: str, arguments: list[Argument], *, cwd: str) -> Iterator[list[Argument]]:
    """Replace an operand by its absolute path, or prefix it with `./`."""
    for number, one in enumerate(arguments):
        if one.text.startswith(("-", "/", "~", "$", "'", '"', "+")) or "=" in one.text:
            continue
        for begin in (cwd.rstrip("/") + "/", "./"):
            other = Argument(begin + one.text, one.joins_left, one.joins_right)
            yield [*arguments[:number], other, *arguments[number + 1 :]]


def _called_otherwise(task: Task) -> Iterator[str]:
    """Yield the solution after `command`, in braces, in a subshell, and after `ls`."""
    text = task.solution
    yield f"{{ {text}\n}}" if "\n" in text else f"{{ {text}; }}"
    if "\n" not in text and task.commands[0] in names_of_grammars():
        yield f"command {text}"
    if task.kind is GoalKind.OUTPUT:
        yield f"({text}) | cat"
        yield f'output=$({text}); printf "%s\\n" "$output"'
    yield f"ls -la > /dev/null; {text}"


def _by_facts(task: Task) -> Iterator[str]:
    """Yield commands of other tools that achieve all facts; nothing for unsupported ones."""
    if task.goal.output is not None or not task.goal.facts:
        return
    for second in (False, True):
        lines = [_done(task, fact, second=second) for fact in task.goal.facts]
        if all(line is not None for line in lines):
            yield "\n".join(line for line in lines if line)


def _done(task: Task, fact: Fact, *, second: bool) -> str | None:
    """Return a command that achieves a fact; empty if other facts imply it, None if none can."""
    if fact.area == "env" and len(fact.names) == 1 and fact.code != "m":
        if fact.code == "r":
            return f"unset {fact.names[0]}"
        return f"declare -x {fact.names[0]}={quoted(str(fact.value), always=True)}"
    if fact.area == "cwd":
        return f"cd {quoted(str(fact.value))}"
    file = None if fact.file is None else _word(fact.file)
    if file is None or fact.file is None:
        return None
    if fact.moved_to is not None:
        target = _word(fact.moved_to)
        return None if target is None else f"cp -a {file} {target} && rm -r {file}"
    if fact.attribute is not None:
        return changing(file, fact.attribute, fact.value)
    if fact.code == "r":
        return f"rm -rf {file}"
    entry = fact.value
    kind, mode = entry["perms"][0], octal(entry["perms"])
    if second and kind == "d":
        return f"install -d -m {mode} -o {entry['owner']} -g {entry['group']} {file}"
    own = f"chown -h {entry['owner']}:{entry['group']} {file}"
    if kind == "l":
        return f"ln -s {quoted(str(entry.get('target', '')))} {file}; {own}"
    if kind == "d":
        return f"mkdir {file}; {own}; chmod {mode} {file}"
    if kind == "p":
        return f"mkfifo {file}; {own}; chmod {mode} {file}"
    if kind != "-" or entry["links"] > 1 or fact.file not in task.goal.digests:
        return None
    return _written(task, fact.file, file, f"{own}; chmod {mode} {file}", second=second)


def changing(file: str, key: str, value: object) -> str | None:
    """Return the command that changes a file's attribute; None if there is none.

    The file's name is already quoted for Bash.
    """
    if key == "perms":
        return f"chmod {octal(str(value))} {file}"
    if key in ("owner", "group"):
        return f"ch{'own' if key == 'owner' else 'grp'} -h {value} {file}"
    return None


def _written(task: Task, name: str, file: str, after: str, *, second: bool) -> str | None:
    """Return a command that writes the content in the prompt, or copies the file named there."""
    said = f"- `{file_word(name)}` "
    for line in task.prompt.splitlines():
        if line == f"{said}is empty":
            return f"{'truncate -s 0' if second else ': >'} {file}; {after}"
        if line.startswith(f"{said}has the original content of `"):
            like = line.split("` has the original content of `", 1)[1].removesuffix("`")
            if like.startswith("-"):
                return None
            copied = f"dd status=none if={like} of={file}" if second else f"cat {like} > {file}"
            return f"{copied}; {after}"
    text = _shown(task.prompt, name)
    if text is None:
        return None
    if second:
        code = f"open({posixpath.join(task.cwd, name)!r}, 'w').write({text!r})"
        return f"python3 -c {quoted(code, always=True)}; {after}"
    return f"printf %s {quoted(text, always=True)} > {file}; {after}"


def _shown(prompt: str, name: str) -> str | None:
    """Return a file's complete content from a fenced block in a prompt; None if there is none."""
    for end, how in (("\n", "with"), ("", "without")):
        begin = f"- `{file_word(name)}` contains exactly this text, {how} a newline at the end:\n"
        _, found, rest = prompt.partition(begin)
        fence, _, rest = rest.partition("\n")
        if found:
            return rest.partition(f"\n{fence}")[0] + end
    return None


def octal(perms: str) -> str:
    """Convert permissions in the form of `ls` to an octal number."""
    return f"{mode_of(perms):04o}"


def _word(name: str) -> str | None:
    """Quote a file's name for Bash; None if it is not valid UTF-8, or begins with a dash."""
    try:
        text = name_bytes(name).decode()
    except UnicodeDecodeError:
        return None
    return None if text.startswith("-") else quoted(text)
