"""Spelling of a command's options with realistic frequencies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from random import Random

from shioenv.domain.inputs import OPERATORS
from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.symbols import Grammar, OptionSpec
from shioenv.synthesis.usage_tables import CommandUsage

EQUALS_SIGN = 0.9
"""Share of long options' values written with `=`, if a table has no counts."""

JOINED = 0.25
"""Share of short options' values that are joined, if a table has no counts."""

TRAILING = 0.05
"""Probability that options are moved behind the operands, where permitted. Some commands have no
options or operands, so the share is lower; in real usage it is 4%."""

DEPTH_LATER = 0.14
"""Share of `find` commands whose `-maxdepth` follows a test (from real usage). `find` prints a
warning about that."""

ONE_BEHIND = 0.04
"""Probability that only the last of several options is moved (2% of commands in real usage)."""


def depth_later(words: list[str]) -> list[str]:
    """Move `-maxdepth` of `find` after the test that follows it, if there is one."""
    for place, word in enumerate(words[:-1]):
        following = words[place + 1]
        if word.startswith("-maxdepth ") and re.match(r"-(?:i?name|type|size|mtime) ", following):
            return [*words[:place], following, word, *words[place + 2 :]]
    return words


def stays(word: str) -> bool:
    """Whether a word must keep its place: `--`, a redirection, the number of `head -5`."""
    return word == "--" or word in OPERATORS or re.match(r"-[0-9]", word) is not None


class OptionSpelling:
    """Spells the options of one command: joined, with `=`, in clusters, after operands."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar

    def respelt(self, words: Sequence[str], seed: int, usage: CommandUsage) -> tuple[str, ...]:
        """Respell options as joined, with `=` or in clusters, with the frequencies of `usage`.

        `seed` determines all random choices. Some options are also moved after operands.
        """
        random = Random(seed)
        own = self._own_options(words)
        shown = [*self._apart(words[:own])]
        shown = [self._value_respelt(word, random, usage) for word in shown]
        shown = [*self._merged(shown, random, usage), *words[own:]]
        chance = random.random()
        if self.permutes and chance < TRAILING + ONE_BEHIND and not any(map(stays, shown)):
            options = [word for word in shown[1:] if word.startswith(("-", NO_SPACE))]
            rest = [word for word in shown[1:] if not word.startswith(("-", NO_SPACE))]
            if chance < TRAILING:
                shown = [shown[0], *rest, *options]
            elif rest and len(options) > 1 and options[-1].startswith("-"):
                behind = 1 + int(random.random() * len(rest))
                rest.insert(behind, options.pop())
                shown = [shown[0], *options, *rest]
        if self.grammar.name == "find" and chance < DEPTH_LATER:
            shown = depth_later(shown)
        return tuple(shown)

    def _apart(self, words: Sequence[str]) -> Iterator[str]:
        """Split each cluster if all its members can be single options."""
        cluster: list[str] = []
        for word in words:
            if not cluster and not word.endswith(NO_SPACE):
                yield word
                continue
            cluster.append(word)
            if word.endswith(NO_SPACE):
                continue
            members = [f"-{one.replace(NO_SPACE, '').lstrip('-')}" for one in cluster]
            yield from members if all(map(self._member, members)) else cluster
            cluster = []
        yield from cluster

    def _own_options(self, words: Sequence[str]) -> int:
        """Return the index of the first word that may belong to a nested command (`xargs ls -l`).

        Options before this word belong to the command itself. If options may follow operands, all
        options belong to it.
        """
        if self.grammar.header.permutes:
            return len(words)
        operands = (
            place
            for place, word in enumerate(words)
            if place and not word.startswith(("-", NO_SPACE))
        )
        return next(operands, len(words))

    @cached_property
    def permutes(self) -> bool:
        """Whether options may follow operands: not if their order has a meaning."""
        header = self.grammar.header
        return header.permutes and not header.traits.ordered

    def _merged(self, shown: list[str], random: Random, usage: CommandUsage) -> list[str]:
        """Merge adjacent short options into one cluster, with the frequency of real usage."""
        if not self.clusters:
            return shown
        spellings = usage.spellings
        clustered = spellings.get("cluster", 0.0)
        share = (clustered + 1.0) / (clustered + 0.3 * spellings.get("short", 0.0) + 2.0)
        result: list[str] = []
        run: list[str] = []
        for word in (*shown, ""):
            if run and len(run[-1]) == 2 and self._member(word):
                run.append(word)
                continue
            if len(run) > 1 and random.random() < share:
                last = len(run) - 1
                for place, member in enumerate(run):
                    left = NO_SPACE if place else ""
                    right = NO_SPACE if place < last else ""
                    result.append(f"{left}{member[1:] if place else member}{right}")
            else:
                result += run
            run = []
            if word and self._member(word) and len(word) == 2:
                run = [word]
            elif word:
                result.append(word)
        return result

    @cached_property
    def clusters(self) -> Mapping[str, OptionSpec]:
        """The options that can be in clusters, by letter."""
        return {
            letter: spec
            for spec in reversed(self.grammar.options)
            if spec.clusters
            for letter in spec.shorts
        }

    def _member(self, word: str) -> bool:
        """Whether a word can be in a cluster: a flag, or at the end an option with a value."""
        if len(word) < 2 or word[0] != "-" or NO_SPACE in word or word[1] not in self.clusters:
            return False
        flag = self.clusters[word[1]].value == "none"
        return len(word) == 2 if flag else word[2:3] == " "

    def _value_respelt(self, word: str, random: Random, usage: CommandUsage) -> str:
        """Respell an option with a value as joined or separate; return other words unchanged."""
        mark = NO_SPACE if word.startswith(NO_SPACE) else ""
        text = word.removeprefix(NO_SPACE)
        if text.startswith("--"):
            name, blank, value = text.partition(" ")
            if not blank or name not in self._longs:
                return word
            styles = usage.styles.get(name, {})
            share = styles.get("=", 0.0) / sum(styles.values()) if styles else EQUALS_SIGN
            return f"{name}={value}" if random.random() < share else word
        letter = text[:1] if mark else text[1:2]
        rest = text[1:] if mark else text[2:]
        spec = self._valued.get(letter)
        if spec is None or not rest or (not mark and text[:1] != "-") or text.endswith(NO_SPACE):
            return word
        styles = usage.styles.get(f"-{letter}", {})
        joined = styles.get("joined", 0.0)
        share = joined / (joined + styles.get("separate", 0.0) or 1.0) if styles else JOINED
        value = rest.removeprefix(" ")
        if not value or (value[0] == "-" and rest[0] != " "):
            return word
        return f"{mark}{'' if mark else '-'}{letter}{'' if random.random() < share else ' '}{value}"

    @cached_property
    def _longs(self) -> frozenset[str]:
        return frozenset(
            f"--{name}"
            for spec in self.grammar.options
            if spec.value == "required" and not spec.separate
            for name in spec.longs
        )

    @cached_property
    def _valued(self) -> Mapping[str, OptionSpec]:
        """The options whose value may be joined or separate, by letter."""
        return {
            letter: spec
            for spec in self.grammar.options
            if spec.value == "required" and not spec.joined and not spec.separate
            for letter in spec.shorts
        }
