"""Where commands, words and variables stand in an input's text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tree_sitter

from shioenv.grammar.tree import nodes, read_tree, source_of, text_of
from shioenv.grammar.words import split_words

_WORDS = frozenset(
    {
        "word",
        "string",
        "raw_string",
        "ansi_c_string",
        "translated_string",
        "concatenation",
        "number",
        "simple_expansion",
        "expansion",
    }
)
_COMMANDS = frozenset({"command", "declaration_command", "unset_command"})
_READERS = frozenset({"read", "mapfile", "readarray", "getopts"})


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, the target of a redirection, or what a loop goes through."""

    text: str
    """As it is written, quotes included."""
    start: int
    """In bytes of the text, in UTF-8 with `surrogateescape`."""
    end: int
    sign: str = ""
    """The operator before it, where it is the target of a redirection."""


@dataclass(frozen=True, slots=True)
class Places:
    """What stands where in a text. Of one that no Bash parser can read, words alone."""

    commands: tuple[str, ...]
    """The text of every simple command, however deep, without its redirections."""
    words: tuple[Word, ...]
    """Names of commands included; none of them lies in another."""
    uses: tuple[tuple[str, int], ...]
    """Variables that are expanded as they are, each with where (`${x:-y}` is none: it says what
    else)."""
    sets: frozenset[str]
    """Variables that are given a value somewhere."""
    sudo: tuple[tuple[int, int], ...]
    """Where `sudo` with its options stands before a command."""
    parsed: bool


def read_places(text: str) -> Places:
    """What stands where in a text."""
    source = source_of(text)
    root = None if "\0" in text else read_tree(text)
    if root is None:
        words = tuple(_split(text))
        return Places((text,), words, (), frozenset(), tuple(_sudo(words)), parsed=False)
    commands: list[str] = []
    words_found: list[Word] = []
    uses: list[tuple[str, int]] = []
    sets: set[str] = set()
    sudo: list[tuple[int, int]] = []
    for node in nodes(root):
        if node.type in _COMMANDS:
            found = [
                _word(source, child.children[0] if child.type == "command_name" else child)
                for child in node.children
                if child.type in _WORDS or child.type == "command_name"
            ]
            words_found += found
            commands.append(_command(source, node))
            sudo += _sudo(found)
            if node.type == "declaration_command" or (found and found[0].text in _READERS):
                sets.update(word.text for word in found)
        elif node.type == "file_redirect":
            targets = node.children_by_field_name("destination")
            sign = next((child.type for child in node.children if not child.is_named), "")
            words_found += [
                _word(source, target, sign if not index else "")
                for index, target in enumerate(targets)
            ]
        elif node.type == "for_statement":
            sets.update(text_of(source, child) for child in node.children_by_field_name("variable"))
            words_found += [
                _word(source, child)
                for child in node.children_by_field_name("value")
                if child.type in _WORDS
            ]
        elif node.type == "variable_assignment":
            sets.update(text_of(source, child) for child in node.children_by_field_name("name"))
        elif node.type == "function_definition":
            sets.update(("@", "*", *"123456789"))
        elif node.type == "simple_expansion" or (
            node.type == "expansion" and [child.type for child in node.children] == _PLAIN
        ):
            name = text_of(source, node)[1:].strip("{}")
            uses.append((name, node.start_byte))
    return Places(
        tuple(commands),
        tuple(sorted(words_found, key=lambda word: word.start)),
        tuple(uses),
        frozenset(sets),
        tuple(sudo),
        parsed=True,
    )


_PLAIN = ["${", "variable_name", "}"]
_WITH_VALUE = frozenset({"-u", "-g", "-U", "-C", "-h", "-p", "-r", "-t", "-D", "-R", "-T"})
_BEFORE = frozenset({"-exec", "-execdir", "-ok", "-okdir", "xargs", "env", "nohup", "time"})


def _sudo(words: tuple[Word, ...] | list[Word]) -> Iterator[tuple[int, int]]:
    """Where `sudo` stands that is to run something: first, or behind what runs commands."""
    runs = bool(words) and words[0].text in _BEFORE
    for index, word in enumerate(words):
        before = words[index - 1].text if index else ""
        if word.text != "sudo" or not (
            not index or before in _BEFORE or (runs and before.startswith("-")) or before == "sudo"
        ):
            continue
        after = index + 1
        while after < len(words) and words[after].text.startswith("-"):
            after += 2 if words[after].text in _WITH_VALUE else 1
        yield word.start, words[after].start if after < len(words) else words[-1].end


def _command(source: bytes, node: tree_sitter.Node) -> str:
    """A command's text without redirections in it."""
    parts = [child for child in node.children if not child.type.endswith("_redirect")]
    return " ".join(text_of(source, part) for part in parts)


def _word(source: bytes, node: tree_sitter.Node, sign: str = "") -> Word:
    return Word(text_of(source, node), node.start_byte, node.end_byte, sign)


def _split(text: str) -> Iterator[Word]:
    place = 0
    for written in split_words(text):
        place = text.index(written, place)
        start = len(text[:place].encode("utf-8", "surrogateescape"))
        yield Word(written, start, start + len(written.encode("utf-8", "surrogateescape")))
        place += len(written)
