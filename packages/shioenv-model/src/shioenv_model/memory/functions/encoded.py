"""Texts in other letters, and digests of texts."""

from __future__ import annotations

import base64
import hashlib
import re

from shioenv_model.memory.functions.space import Flags, Given, Result, Roles, check_length, width_of

DIGESTS = ("md5", "sha1", "sha256", "sha512", "sha224", "sha384", "blake2b")
"""Kinds of digests, as `hashlib` names them."""

_ESCAPED = re.compile(r"[\\\n\r]")


def digest_of(given: Given, roles: Roles, flags: Flags) -> Result | None:
    """The digest of each text and the name of its file, `-` for standard input (md5sum(1)).

    None where a name would be escaped.
    """
    texts, names = given.texts or (given.text or "",), given.operands or ("-",)
    if any(_ESCAPED.search(name) for name in names):
        return None
    made = (
        f"{hashlib.new(flags['of'], text.encode('latin-1'), usedforsecurity=False).hexdigest()}"
        f"  {name}\n"
        for text, name in zip(texts, names, strict=True)
    )
    return "".join(made), 0


def in_base64(given: Given, roles: Roles, flags: Flags) -> Result | None:
    """The text in base64, on lines of a width; without lines where the width is 0 (base64(1))."""
    width = width_of(roles.get("width", "76"))
    whole = base64.b64encode((given.text or "").encode("latin-1")).decode()
    check_length(2 * len(whole))
    if not width:
        return whole, 0
    return "".join(f"{whole[at : at + width]}\n" for at in range(0, len(whole), width)), 0
