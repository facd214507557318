"""The Bash parser's tree of a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import tree_sitter
import tree_sitter_bash

from shioenv.errors import InputError

_HASH_IN_WORD = re.compile(rb"(?<=[^\s;&|()<>${#])#")


def source_of(text: str) -> bytes:
    """The bytes of a text that trees are over. Errors: InputError for a text that has none."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InputError(f"the input cannot be encoded: {error}") from None


def read_tree(text: str) -> tree_sitter.Node | None:
    """The tree of a text, over its bytes; None where the parser cannot read all of it.

    Errors: those of `source_of`.
    """
    source = source_of(text)
    root = _parser().parse(source).root_node
    if root.has_error:  # it cannot read `#` inside a word: `curl -0#`
        root = _parser().parse(_HASH_IN_WORD.sub(b"H", source)).root_node
    return None if root.has_error else root


@cache
def _parser() -> tree_sitter.Parser:
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def nodes(root: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """A node and all below it, from left to right, each before what it holds; however deep."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.children)


def text_of(source: bytes, node: tree_sitter.Node) -> str:
    """What a node stands for in the bytes that its tree is over."""
    return source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")
