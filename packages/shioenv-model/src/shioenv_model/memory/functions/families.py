"""Families of text functions, for commands that print.

A function takes a text and some words, and returns a text. The families are handwritten: they do
what text tools do, in the formats of coreutils. No family contains the name of a command. Each
family has variants, and roles for the words of a command. The family, roles and variant of a
command are induced from its observed behavior (`shioenv_model.memory.explain`): programming by
example.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from itertools import permutations, product

from shioenv_model.memory.functions.characters import (
    DIGESTS,
    exchange,
    format_digests,
    in_base64,
    say,
)
from shioenv_model.memory.functions.counting import (
    COLUMNS_OF_FIGURES,
    counts,
    counts_of_each,
    dump,
)
from shioenv_model.memory.functions.edit import edit
from shioenv_model.memory.functions.lines import (
    cut_columns,
    join_lines,
    number_lines,
    part_of,
    parts_of_each,
    reverse,
    same_text,
    show_invisible,
    side_by_side,
    tabs_to_blanks,
    wrap,
)
from shioenv_model.memory.functions.match import matching_lines, matching_lines_of_each
from shioenv_model.memory.functions.order import order_lines, runs_of_lines
from shioenv_model.memory.functions.program import run_program
from shioenv_model.memory.functions.space import (
    Beside,
    Family,
    Flags,
    Given,
    Roles,
    TextFunction,
    as_lines,
)


def path_names(given: Given, roles: Roles, flags: Flags) -> str:
    """Return the base name or the directory of each path (basename(1), dirname(1))."""
    made = []
    for each in given.operands:
        part = above(each) if flags["part"] == "directory" else last_part(each)
        if "suffix" in roles and part != roles["suffix"]:
            part = part.removesuffix(roles["suffix"])
        made.append(part)
    return as_lines(made)


def last_part(name: str) -> str:
    """Return the base name (basename(1)); for a name that consists of slashes, a slash."""
    return posixpath.basename(name.rstrip("/")) or name[:1]


def above(name: str) -> str:
    """Return the directory of a name (dirname(1))."""
    directory, slash, _ = name.rstrip("/").rpartition("/")
    return directory.rstrip("/") or ("/" if slash or name.startswith("/") else ".")


MOST_PLACES = 3
"""Maximum number of words with roles. More words could have thousands of combinations of roles."""


def functions(
    places: Sequence[str], *, reads: bool, several: bool = False
) -> Iterator[TextFunction]:
    """Yield every function that has a role for each word, simple ones first.

    `places` names the words by their position in the command. `reads`: the functions take an input
    text. `several`: include families that process each of several texts separately. All other
    families read the concatenated texts.
    """
    if len(places) > MOST_PLACES:
        return
    for family in FAMILIES:
        if family.reads != reads or len(places) > len(family.roles):
            continue
        if family.several and not several:
            continue
        kinds = family.variants or {}
        variants = [dict(zip(kinds, values, strict=True)) for values in product(*kinds.values())]
        for roles in permutations(family.roles, len(places)):
            if not set(family.needs) <= set(roles):
                continue
            cast = tuple(zip(roles, places, strict=True))
            for flags in variants:
                if family.means is None or family.means(flags):
                    yield TextFunction(family, cast, flags)


_COUNTS = Family("counts", counts, variants={"what": COLUMNS_OF_FIGURES})

FAMILIES: tuple[Family, ...] = (
    Family("the text", same_text),
    Family("part", part_of, ("count",), variants={
        "which": ("first", "last"), "of": ("lines", "bytes"),
    }, of_bytes=True),
    Family("backwards", reverse, variants={"of": ("lines", "characters")}),
    Family("count", counts, variants={
        "what": ("lines", "words", "bytes", "characters", "longest"),
    }, beside=Beside(_COUNTS, "what")),
    _COUNTS,
    Family("order", order_lines, ("key", "separator"), variants={
        "by": ("", "number", "size", "any number", "folded", "letters", "month"),
        "backwards": ("", "backwards"), "once": ("", "once"),
    }, of_bytes=True),
    Family("runs", runs_of_lines, ("fields", "characters", "width"), variants={
        "which": ("", "repeated", "single", "every repeated"),
        "counted": ("", "counted"), "case": ("", "any case"),
    }, of_bytes=True),
    Family("columns", cut_columns, ("list", "separator", "joint"), ("list",), variants={
        "of": ("fields", "bytes"), "marked": ("", "marked"), "others": ("", "others"),
    }, of_bytes=True),
    Family("lines", matching_lines, (
        "pattern", "after", "before", "around", "most",
    ), ("pattern",), variants={
        "syntax": ("basic", "extended", "fixed", "perl"), "case": ("", "any case"),
        "negated": ("", "without"), "whole": ("", "words", "lines"),
        "shown": ("", "count", "numbered", "only", "nothing", "name", "name without"),
    }),
    Family("part of each", parts_of_each, ("count",), variants={
        "which": ("first", "last"), "of": ("lines", "bytes"),
    }, of_bytes=True, several=True),
    Family("counts of each", counts_of_each, variants={
        "what": ("lines", "words", "bytes", "lines and words and bytes", "characters"),
    }, several=True),
    Family("side by side", side_by_side, ("by",), several=True),
    Family("lines of each", matching_lines_of_each, ("pattern",), ("pattern",), variants={
        "syntax": ("basic", "extended", "fixed", "perl"), "case": ("", "any case"),
        "negated": ("", "without"), "whole": ("", "words", "lines"),
        "shown": ("", "count", "numbered", "only", "name", "name without"),
    }, several=True),
    Family("exchanged", exchange, ("these", "by"), ("these",), variants={
        "how": ("", "deleted", "squeezed", "cut"), "others": ("", "others"),
    }, of_bytes=True),
    Family("wrapped", wrap, ("width",), variants={"at": ("", "blanks")}, of_bytes=True),
    Family("tabs", tabs_to_blanks, ("width",), variants={"which": ("spaces",)}, of_bytes=True),
    Family("numbered", number_lines, (
        "width", "joint", "style", "which", "first", "step",
    ), variants={
        "which": ("filled", "all", "none"), "indented": ("indented", ""), "ended": ("", "ended"),
    }),
    Family("joined", join_lines, ("by",)),
    Family("edited", edit, ("script",), ("script",), variants={
        "syntax": ("basic", "extended"), "quiet": ("", "quiet"), "apart": ("", "apart"),
    }),
    Family("program", run_program, ("program", "separator", "assigned"), ("program",)),
    Family("program", run_program, ("separator", "assigned"), reads=False),
    Family("shown", show_invisible, variants={
        "as": ("", "ends", "tabs", "visible", "visible and tabs", "all"), "blank": ("", "one"),
    }, of_bytes=True),
    Family("dumped", dump, ("address", "type", "count", "skip"), variants={
        "as": ("o2", "x2", "c", "x1", "o1", "u2", "d2", "x4"),
    }, of_bytes=True),
    Family("digest", format_digests, variants={"of": DIGESTS}, of_bytes=True),
    Family("base64", in_base64, ("width",), of_bytes=True),
    Family("words", say, variants={
        "each": ("", "each"), "end": ("end", ""), "escapes": ("", "escapes"),
    }, reads=False),
    Family("name", path_names, ("suffix",), variants={"part": ("last", "directory")}, reads=False),
)  # fmt: skip
"""All families. Families with short and general descriptions come first."""
