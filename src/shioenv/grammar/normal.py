"""What an input is made of, whatever it names: its normal form, its utilities, one step or several.

Two inputs of one normal form differ in their numbers and names alone: who has seen one has seen the
kind of the other. The definition is that of the statistics of usage: utilities, options (letters of
a bundle sorted) and operators are kept, numbers become `N`, every other word `A`, runs of `A` one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import tree_sitter

from shioenv.grammar.parse import is_assignment
from shioenv.grammar.tree import nodes, read_tree, source_of, text_of
from shioenv.grammar.words import split_words

_OBJECTS = ("address", "link", "route")
"""What `ip` is asked about, each a utility of its own."""
_LONG_VALUE = re.compile(r"^(--[a-zA-Z][^=]*)=.*", re.DOTALL)
_BUNDLE = re.compile(r"^-([A-Za-z]+)(\d*)$")
_NUMBER_FIRST = re.compile(r"^-\d+([A-Za-z]+)$")
_NUMBER = re.compile(r"^[+-]?\d+([.,-]\d*)*[a-zA-Z%]?$")
_RUNS = {"-exec", "-execdir", "-ok", "-okdir"}
_WITH_VALUE = {
    "xargs": frozenset(
        {
            "-I",
            "-n",
            "-P",
            "-d",
            "-L",
            "-s",
            "-a",
            "-E",
            "--max-args",
            "--max-procs",
            "--delimiter",
            "--arg-file",
            "--replace-str",
        }
    ),
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
}
_WHOLE = frozenset(
    {
        "for_statement",
        "c_style_for_statement",
        "while_statement",
        "if_statement",
        "case_statement",
        "function_definition",
        "compound_statement",
        "subshell",
        "heredoc_redirect",
    }
)
"""What has no normal form: the definition knows lists, pipelines, simple commands."""
_SEVERAL = _WHOLE | {
    "list",
    "pipeline",
    "redirected_statement",
    "file_redirect",
    "herestring_redirect",
    "command_substitution",
    "process_substitution",
    "negated_command",
}
_COMMANDS = frozenset({"command", "declaration_command", "unset_command", "test_command"})
_REDIRECTS = frozenset({"file_redirect", "herestring_redirect"})


@dataclass(slots=True)
class Command:
    """A simple command: its words with quotes removed, behind its assignments."""

    words: list[str] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    """`word`, `assignment` or `redirect`, and its text, in the order they are written."""


def normal(text: str) -> str | None:
    """The normal form of an input; None where it has none: loops, here-documents, brackets, what no
    Bash parser can read, hundreds of commands joined by `&&`, nothing at all.
    """
    root = read_tree(text)
    if root is None or any(node.type in _WHOLE for node in nodes(root)):
        return None
    parts: list[str] = []
    try:
        pieces = list(_pieces(root, source_of(text)))
    except RecursionError:  # a list is a list and one more command
        return None
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(piece)
        else:
            _normalised(piece, parts)
    while parts and parts[-1] == ";":
        parts.pop()
    return " ".join(parts) or None


def utilities(text: str) -> tuple[str, ...]:
    """The programs and builtins that an input calls by name, each once, in the order they stand,
    those in substitutions and behind `find -exec`, `xargs`, `env` and `sudo` too. `ip` is told
    apart by its object (`ip-addr`).
    """
    root = read_tree(text)
    found: dict[str, None] = {}
    if root is None:
        words = _plain(split_words(text))
        return tuple(_called(words))
    source = source_of(text)
    for node in nodes(root):
        if node.type in _COMMANDS:
            found.update(dict.fromkeys(_called(_command(node, source).words)))
    return tuple(found)


def is_single(text: str) -> bool:
    """Whether an input is one command without operator, redirection or substitution.

    What no Bash parser can read is single where it holds none of the operators' characters.
    """
    root = read_tree(text)
    if root is None:
        return not re.search(r"[|;&<>`\n]|\$\(", text.strip())
    commands = [node for node in root.children if node.is_named and node.type != "comment"]
    separators = [node for node in root.children if node.type == "&"]
    several = any(node.type in _SEVERAL for node in nodes(root))
    return len(commands) <= 1 and not separators and not several


def _pieces(node: tree_sitter.Node, source: bytes) -> Iterator[Command | str]:
    """Commands and the operators between them, from left to right."""
    if node.type in _COMMANDS or node.type in ("variable_assignment", "variable_assignments"):
        yield _command(node, source)
    elif node.type == "redirected_statement":
        body = node.child_by_field_name("body")
        pieces = [] if body is None else list(_pieces(body, source))
        last = pieces[-1] if pieces and isinstance(pieces[-1], Command) else Command()
        if not pieces:
            pieces.append(last)
        for redirect in node.children_by_field_name("redirect"):
            _redirect(redirect, source, last)
        yield from pieces
    elif node.type in ("program", "list", "pipeline", "negated_command"):
        before = False
        for child in node.children:
            if child.type == "comment":
                continue
            if not child.is_named:
                if child.type.strip() and child.type != "!":
                    yield ";" if child.type == ";;" else child.type
                    before = False
                continue
            if before:
                yield ";"  # a newline
            yield from _pieces(child, source)
            before = True


def _command(node: tree_sitter.Node, source: bytes) -> Command:
    made = Command()
    if node.type in ("variable_assignment", "variable_assignments"):
        made.events.append(("assignment", text_of(source, node)))
        return made
    for child in node.children:
        if child.type in _REDIRECTS:
            _redirect(child, source, made)
        elif child.type == "variable_assignment" and not made.words:
            made.events.append(("assignment", text_of(source, child)))
        else:
            word = _unquoted(text_of(source, child))
            made.events.append(("word", word))
            made.words.append(word)
    return made


def _redirect(node: tree_sitter.Node, source: bytes, command: Command) -> None:
    sign = next((child.type for child in node.children if not child.is_named), "")
    command.events.append(("redirect", sign))
    for extra in node.children_by_field_name("destination")[1:]:
        word = _unquoted(text_of(source, extra))
        command.events.append(("word", word))
        command.words.append(word)


def _normalised(command: Command, parts: list[str]) -> None:
    first, utility = True, ""
    for kind, text in command.events:
        if kind == "assignment":
            parts.append("X=")
        elif kind == "redirect":
            parts.append(text)
        elif not (first and text == "sudo"):
            if first:
                utility = _base(text)
            word = utility if first else _normal_word(text, utility)
            first = False
            if word != "A" or not parts or parts[-1] != "A":
                parts.append(word)


def _normal_word(word: str, utility: str) -> str:
    if re.match(r"^--[a-zA-Z]", word):
        return _LONG_VALUE.sub(r"\1=V", word)
    bundle = _BUNDLE.match(word) or _NUMBER_FIRST.match(word)
    if bundle:
        letters = bundle[1] if utility == "find" else "".join(sorted(bundle[1]))
        return f"-{letters}" + (" N" if re.search(r"\d", word) else "")
    if re.match(r"^-\d+$", word):
        return "-N"
    if re.match(r"^-[A-Za-z].", word, re.DOTALL):
        return word[:2] + (" N" if re.match(r"^[\d,-]+$", word[2:]) else " A")
    if word.startswith("-") and len(word) > 1:
        return re.sub(r"\d+", "N", word[:3])
    return "N" if _NUMBER.match(word) else "A"


def _called(words: Sequence[str], depth: int = 0) -> Iterator[str]:
    """The utility that words call, and those it is told to call itself."""
    words = list(words)
    while words and (words[0] == "sudo" or (depth and is_assignment(words[0]))):
        words.pop(0)
    if not words or depth > 4:
        return
    name = _base(words[0])
    if name == "ip":
        words_of_ip = [word for word in words[1:] if not word.startswith("-")]
        asked = words_of_ip[0] if words_of_ip else ""
        known = [about for about in _OBJECTS if asked and about.startswith(asked)]
        known = ["address"] if asked == "addr" else known
        name = f"ip-{'addr' if known[0] == 'address' else known[0]}" if known else "ip"
    yield name
    for inner in _inner(name, words):
        yield from _called(inner, depth + 1)


def _inner(name: str, words: list[str]) -> Iterator[list[str]]:
    """The commands that a command is told to run, each as its words."""
    if name == "find":
        for place, word in enumerate(words):
            if word in _RUNS:
                rest = words[place + 1 :]
                ends = [end for end, text in enumerate(rest) if text in (";", "+")]
                yield rest[: ends[0]] if ends else rest
    elif name in _WITH_VALUE:
        place = 1
        while place < len(words) and (
            words[place].startswith("-") or (name == "env" and is_assignment(words[place]))
        ):
            place += 2 if words[place] in _WITH_VALUE[name] else 1
        if place < len(words):
            yield words[place:]


def _base(word: str) -> str:
    return word.rstrip("/").rpartition("/")[2].lstrip("\\") or word


def _plain(words: Sequence[str]) -> list[str]:
    return [_unquoted(word) for word in words]


def _unquoted(word: str) -> str:
    """A word as bash would pass it on, as far as quotes go; as it stands where they do not fit."""
    try:
        parts = shlex.split(word)
    except ValueError:
        return word
    return " ".join(parts)
