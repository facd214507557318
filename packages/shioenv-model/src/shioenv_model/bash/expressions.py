"""POSIX regular expressions, translated to those of Python."""

from __future__ import annotations

import re
from collections.abc import Sequence

from shioenv.errors import Abstained
from shioenv_model.bash.patterns import bracket
from shioenv_model.bash.work import spend

_MOST_GROUPS = 40
"""Maximum number of groups in a pattern. Too many nested groups would exhaust Python's stack."""

_NESTED = re.compile(r"[*+?}|][^()]*\)[*+{]|\)[*+?}][^()]*\)[*+{]")
"""A repeated group that contains a repetition or a choice."""
_LONGEST = {True: 24, False: 2_000}
"""Maximum length of a text if the expression has (True) or has no (False) such group."""


def found_groups(parts: Sequence[tuple[str, bool]], text: str, *, folds: bool) -> list[str] | None:
    """Return the match of an extended expression in a text, and its groups; None without a match.

    `parts` are the pieces of the expression; the flag marks quoted pieces, which match literally.
    Errors: Abstained for invalid and costly expressions.
    """
    source = "".join(
        re.sub(r"[\\^$.\[\]|()+*?{}]", r"\\\g<0>", part) if quoted else part
        for part, quoted in parts
    )
    if len(text) > _LONGEST[_NESTED.search(source) is not None] or len(source) > 1_000:
        raise Abstained("the regular expression may take long to match")
    spend(len(source) * (1 + len(text)))
    try:
        found = re.search(
            translated(source, "extended"), text, re.DOTALL | (re.IGNORECASE if folds else 0)
        )
    except (ValueError, re.error):
        raise Abstained(
            f"the regular expression {source!r:.40} is invalid or not supported"
        ) from None
    return None if found is None else [found[0], *(group or "" for group in found.groups())]


def translated(source: str, syntax: str) -> str:
    """Translate a POSIX regular expression to Python. Errors: ValueError if it is invalid.

    `syntax` is `basic` or `extended`.
    """
    special = frozenset("(){}|+?")
    made: list[str] = []
    if len(re.findall(r"\(", source)) > _MOST_GROUPS:
        raise ValueError("too many groups")
    index = 0
    while index < len(source):
        character = source[index]
        if character == "[":
            found = bracket(source, index + 1, shell=False)
            if found is None:
                raise ValueError("a bracket is not closed")
            made.append(found[0])
            index = found[1]
            continue
        index += 1
        if character == "\\":
            follows = source[index : index + 1]
            if not follows:
                raise ValueError("a backslash at the end")
            index += 1
            if follows in "<>":
                made.append(r"\b")
            elif follows in "wWsSbB" or follows.isdigit():
                made.append(f"\\{follows}")
            elif syntax == "basic" and follows in special:
                made.append(follows)
            else:
                made.append(re.escape(follows))
        elif syntax == "basic" and character in special:
            made.append(re.escape(character))
        elif character == "*" and (not made or made[-1] in ("(", "|", "^")):
            made.append(r"\*")
        elif character == "$":
            made.append(r"\Z")
        elif character == "^" and syntax == "basic" and made and made[-1] not in ("(", "|"):
            made.append(r"\^")
        elif character in special or character in ".*^":
            made.append(character)
        else:
            made.append(re.escape(character))
    return "".join(made)
