"""What people write, crossed with what a machine holds: every kind of input with each of its
operands of every class, and each number, mode and date with other values.

Where behavior turns (a directory for a file, an empty one, a name that is misspelt; 0, a negative
number, more than there is) is seldom come to by chance. Classes and values are ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from shioenv.bash.normal import normal
from shioenv.domain.argument import Argument
from shioenv.domain.inputs import Input, Role
from shioenv.seeding import generator
from shioenv.synthesis.drawing import Drawing
from shioenv.synthesis.mistakes import slip
from shioenv.synthesis.sample import sample_on
from shioenv.system.catalogue import catalogue, quoted
from shioenv.system.store import System

CROSSED = "crossed"
"""The sampler of such inputs."""

PATHS = (
    "TextFile", "EmptyFile", "HiddenFile", "ScriptFile", "Executable", "TarFile", "GzipFile",
    "ZipFile", "CpioFile", "CsvFile", "ImageFile", "JsonFile", "LogFile", "HtmlFile", "Symlink",
    "Directory", "GlobalFile", "GlobalDirectory", "GlobalExecutable",
)  # fmt: skip
"""Classes of paths (`shioenv.system.catalogue`), of which one each stands in for another. Named
pipes are not among them: nearly every command waits at one until its time is over."""

NAMES = ("Username", "Groupname", "Interface", "BlockDevice", "EnvVar", "Hostname", "IpAddress")
"""Classes of other names, of which all stand in for another."""

OTHERS = ("..", "-", "/dev/null", "nosuch", "nosuch/file.txt", "'two words'")
"""What stands in for a path as well: the directory above, standard input, nothing, what is missing,
with its directory or without."""

NUMBERS = (0, 1, 2, 3, 5, 8, 10, 16, 25, 50, 100, 1000, 65536)
LETTERS = ("c", "k", "K", "M", "G")
"""What a size may end in."""

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
_WITH_MODES = frozenset({"chmod", "install", "mkdir", "mkfifo", "mknod", "umask"})
_WITH_DATES = frozenset({"date", "touch"})
_WITH_SIZES = frozenset({"dd", "du", "find", "head", "ls", "split", "tail", "truncate"})
_DRAWN = 50
"""Inputs drawn for each one that is wanted, at most."""


def crossed(system: System, count: int, seed: int, policy: str) -> list[str]:
    """So many inputs, all different, drawn by the seed: kinds of inputs, in the order in which a
    policy comes to them, each with one operand or one value after the other replaced.

    Inputs of one kind differ in numbers and names alone (`shioenv.bash.normal`).
    """
    start = system.declaration.start_directory
    names = catalogue(system, start)
    made: dict[str, None] = {}
    kinds: set[str] = set()
    drawing = Drawing(policy=policy, seed=seed, composite_share=0.0)
    for sample in sample_on(system, drawing, _DRAWN * count):
        kind = normal(sample.input.text)
        if kind is None or kind in kinds or sample.cwd != start:
            continue
        kinds.add(kind)
        for text in variants(sample.input, names, generator(seed, CROSSED, kind)):
            made[text] = None
            if len(made) == count:
                return list(made)
    return list(made)


def variants(
    shell_input: Input, names: Mapping[str, Sequence[str]], random: Random
) -> Iterator[str]:
    """An input with each of its arguments in turn replaced by others: a path by one of every class,
    a name by all of its class, a number, a mode or a date by others; and by a name misspelt.
    """
    known = {quoted(name): token for token in (*NAMES, *names) for name in names.get(token, ())}
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


def _others(
    command: str,
    text: str,
    known: Mapping[str, str],
    names: Mapping[str, Sequence[str]],
    random: Random,
) -> Iterable[str]:
    token = known.get(text)
    if token in NAMES:
        return [*map(quoted, names[token]), slip(text, random)]
    if token is not None:
        drawn = [quoted(random.choice(names[each])) for each in PATHS if names.get(each)]
        return [*drawn, *OTHERS, slip(text, random)]
    if command in _WITH_MODES and (found := _MODE.fullmatch(text)):
        return [f"{found[1]}{mode}" for mode in MODES]
    if command in _WITH_DATES and (found := _DATE.fullmatch(text)):
        return [f"{found[1]}{date}" for date in DATES]
    if found := _NUMBER.fullmatch(text):
        head, letter = found[1], found[2]
        numbers = [f"{head}{number}{letter}" for number in NUMBERS]
        if command in _WITH_SIZES:
            numbers += [f"{head}2{each}" for each in LETTERS]
        return numbers
    return ()
