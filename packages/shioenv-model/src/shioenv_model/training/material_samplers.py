"""Samplers of training inputs: commands after a pipe, and inputs with exchanged operands.

A stage is a command after a pipe. Its standard input is the recorded output of another command. The
stage's behavior is in the record of the combined input, its standard input in the record of the
first command alone.

Crossed inputs put operands of every class, and other numbers, modes and dates, into every kind of
input. Random sampling seldom finds special cases: a directory instead of a file, a misspelt name, a
missing file. Classes and values are our choice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

from shioenv.bash.normal import normal
from shioenv.dataset.record_reader import read_records
from shioenv.domain.inputs import Argument, Input, Role, without_start
from shioenv.domain.record import Record
from shioenv.errors import ModelError
from shioenv.grammar.library import load_grammar, shipped_headers
from shioenv.grammar.symbols import reachable
from shioenv.seeding import generator
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.mistakes import slip
from shioenv.synthesis.sample import sample
from shioenv.system.catalogue import catalogue, quoted_name
from shioenv.system.store import System
from shioenv_model.composition.composed_inputs import is_single_query
from shioenv_model.composition.reading import read_program

PIPED = "stages"
"""The sampler's name in the records of inputs with a stage."""

LONGEST = 2000
"""Maximum size of a stage's standard input in bytes (our choice: nine of ten pipes in use carry
less)."""

_PIPE = " | "
_DRAWN_PIPED = 6
_EACH = 200
"""To find `n` stages, at most `_EACH + _DRAWN_PIPED * n` composed inputs are drawn."""


def parted(text: str) -> tuple[str, str]:
    """Split an input of `stage_inputs` into its two commands."""
    first, _, stage = text.rpartition(_PIPE)
    return first, stage


def is_source(record: Record) -> bool:
    """Whether the output of a record is what its input writes into a pipe.

    The input is a single command without a history. It printed 1 to `LONGEST` bytes, all on
    standard output. It ended with exit code 0, changed nothing and is not volatile.
    """
    _, text = without_start(record.input)
    printed = 0 < len(record.output_bytes) <= LONGEST
    done = not (record.exit_code or record.stderr or record.volatile or record.history)
    return printed and done and record.context_patch == "[]" and _is_command(text)


def stage_inputs(
    system: System, datasets: Sequence[Path], count: int, seed: int, policy: str
) -> list[str]:
    """Return at most `count` inputs of two commands, as lines of a command list.

    They are drawn by the seed. The first command is from the datasets. The second one is a command
    that the policy writes after a pipe. Every distinct output is equally likely.

    Errors: ModelError if the datasets have no suitable output, or if no stage is drawn.
    """
    sources = list(_sources(datasets))
    stages = list(_stages(system, max(count // 2, 1), seed, policy))
    if not sources or not stages:
        raise ModelError(
            "no earlier part has output for a pipe", hint="place parts of stages after the others"
        )
    rng = generator(seed, PIPED)
    made: dict[str, None] = {}
    for _ in range(4 * count):
        cwd, first = rng.choice(sources)
        line = {"input": f"{first}{_PIPE}{rng.choice(stages)}", "cwd": cwd}
        made[json.dumps(line, ensure_ascii=False)] = None
        if len(made) == count:
            break
    return list(made)


def _sources(datasets: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Yield the first input for each distinct output: its start directory and its text."""
    seen: set[bytes] = set()
    for each in datasets:
        for record in read_records(each):
            if is_source(record) and record.output_bytes not in seen:
                seen.add(record.output_bytes)
                cwd, text = without_start(record.input)
                yield cwd, text


def _stages(system: System, count: int, seed: int, policy: str) -> Iterator[str]:
    drawing = Drawing(policy=policy, seed=seed, composite_share=1.0)
    seen: set[str] = set()
    for drawn in sample(drawing, system=system, count=_EACH + _DRAWN_PIPED * count):
        for command in behind_pipes(drawn.input):
            text = command.text
            if text not in seen and _is_command(text):
                seen.add(text)
                yield text
        if len(seen) >= count:
            return


def behind_pipes(shell_input: Input) -> Iterator[Input]:
    """Yield the commands of an input that follow a `|`."""
    tokens = shell_input.tokens
    for begin, end in shell_input.spans():
        if begin and tokens[begin - 1].argument.text == "|":
            yield Input(tokens[begin:end])


def _is_command(text: str) -> bool:
    """Whether a text is one simple command on one line, without a pipe at which `parted` splits."""
    if "\n" in text or _PIPE in text or text.startswith("#"):
        return False
    return is_single_query(text) and bool(read_program(text))


CROSSED = "crossed"
"""The name of the sampler of crossed inputs."""

PATHS = (
    "TextFile", "EmptyFile", "HiddenFile", "ScriptFile", "Executable", "TarFile", "GzipFile",
    "ZipFile", "CpioFile", "CsvFile", "ImageFile", "JsonFile", "LogFile", "HtmlFile", "Symlink",
    "Directory", "GlobalFile", "GlobalDirectory", "GlobalExecutable",
)  # fmt: skip
"""Classes of paths (`shioenv.system.catalogue`). One path of each class replaces another path.

Named pipes are left out, because nearly every command blocks on them until its time limit.
"""

NAMES = ("Username", "Groupname", "Interface", "BlockDevice", "EnvVar", "Hostname", "IpAddress")
"""Classes of other names. All names of a class replace another name of the class."""

OTHERS = ("..", "-", "/dev/null", "nosuch", "nosuch/file.txt", "'two words'")
"""Further replacements of a path. These are the parent directory, standard input, the null device,
a missing file, a file in a missing directory, and a name with a blank."""

NUMBERS = (0, 1, 2, 3, 5, 8, 10, 16, 25, 50, 100, 1000, 65536)
LETTERS = ("c", "k", "K", "M", "G")
"""Suffixes of sizes."""

MODES = (
    "000", "400", "444", "600", "640", "644", "660", "666", "700", "711", "750", "755", "775",
    "777", "1777", "2755", "4755", "u+x", "g-w", "o=", "a+r", "+x", "-w", "u=rw,go=r", "g+s", "+t",
)  # fmt: skip
DATES = (
    "now", "today", "yesterday", "tomorrow", "'2 days ago'", "'1 week ago'", "'next month'",
    "'last friday'", "'next year'", "'+3 hours'", "@0", "@1700000000", "2024-02-29", "2025-12-31",
    "'2025-01-01 12:30'", "12:00",
)  # fmt: skip

_NUMBER = re.compile(r"((?:--?[a-zA-Z][\w-]*[ =]|-[a-zA-Z]|)[+-]?)\d+([a-zA-Z]?)")
_MODE = re.compile(r"(-m ?|--mode[ =]|)(?:[0-7]{3,4}|[ugoa]*[-+=][rwxXst]*)")
_DATE = re.compile(r"(-d ?|--date[= ])\S.*")
_DRAWN = 50
"""Maximum number of inputs drawn for each requested crossed input."""


def crossed(system: System, count: int, seed: int, policy: str) -> list[str]:
    """Return at most `count` distinct crossed inputs, drawn by the seed.

    Inputs of one kind differ only in numbers and names (`shioenv.bash.normal`). The kinds come in
    the order in which the policy draws them. In one input of each kind, the operands and values are
    replaced, one at a time.
    """
    start = system.declaration.start_directory
    names = catalogue(system, start)
    made: dict[str, None] = {}
    kinds: set[str] = set()
    drawing = Drawing(policy=policy, seed=seed, composite_share=0.0)
    for drawn in sample(drawing, system=system, count=_DRAWN * count):
        kind = normal(drawn.input.text)
        if kind is None or kind in kinds or drawn.cwd != start:
            continue
        kinds.add(kind)
        for text in variants(drawn.input, names, generator(seed, CROSSED, kind)):
            made[text] = None
            if len(made) == count:
                return list(made)
    return list(made)


def variants(
    shell_input: Input, names: Mapping[str, Sequence[str]], random: Random
) -> Iterator[str]:
    """Yield variants of the input in which one of its arguments is replaced.

    A path is replaced by one path of every class, by each of `OTHERS`, and by a misspelling. A name
    is replaced by all names of its class, and by a misspelling. A number, a mode or a date is
    replaced by others. Arguments joined to a neighbour are unchanged.
    """
    known = {
        quoted_name(name): token for token in (*NAMES, *names) for name in names.get(token, ())
    }
    tokens = shell_input.tokens
    command = next((one.argument.text for one in tokens if one.role is Role.COMMAND), "")
    for place, token in enumerate(tokens):
        argument = token.argument
        if token.role is not Role.ARGUMENT or argument.joins_left or argument.joins_right:
            continue
        for text in _others(command, argument.text, known, names, random):
            if text != argument.text:
                changed = replace(token, argument=Argument(text))
                yield Input((*tokens[:place], changed, *tokens[place + 1 :])).text


@cache
def _value_kinds(command: str) -> frozenset[str]:
    """Return the kinds of values in inputs of a command; none without a shipped grammar."""
    if command not in shipped_headers():
        return frozenset()
    grammar = load_grammar(command)
    used = reachable(grammar.productions, grammar.starts)
    return frozenset(grammar.kinds[symbol] for symbol in used if symbol in grammar.kinds)


def _others(
    command: str,
    text: str,
    known: Mapping[str, str],
    names: Mapping[str, Sequence[str]],
    random: Random,
) -> Iterable[str]:
    token = known.get(text)
    if token in NAMES:
        return [*map(quoted_name, names[token]), slip(text, random)]
    if token is not None:
        drawn = [quoted_name(random.choice(names[each])) for each in PATHS if names.get(each)]
        return [*drawn, *OTHERS, slip(text, random)]
    kinds = _value_kinds(command)
    if "mode" in kinds and (found := _MODE.fullmatch(text)):
        return [f"{found[1]}{mode}" for mode in MODES]
    if "time" in kinds and (found := _DATE.fullmatch(text)):
        return [f"{found[1]}{date}" for date in DATES]
    if found := _NUMBER.fullmatch(text):
        head, letter = found[1], found[2]
        numbers = [f"{head}{number}{letter}" for number in NUMBERS]
        if "size" in kinds:
            numbers += [f"{head}2{each}" for each in LETTERS]
        return numbers
    return ()
