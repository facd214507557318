"""JSON Pointers (RFC 6901), which address a value in a document."""

from __future__ import annotations

from shioenv.errors import PatchError


def escape(key: str) -> str:
    """Escape a key for use in a pointer: `~` becomes `~0`, `/` becomes `~1`."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(token: str) -> str:
    """Return the key that a pointer's token stands for."""
    return token.replace("~1", "/").replace("~0", "~")


def pointer(*keys: str) -> str:
    """Build the pointer to the value at these keys; "", the whole document, for no keys."""
    return "".join(f"/{escape(key)}" for key in keys)


def keys(path: str) -> list[str]:
    """Split a pointer into its keys. PatchError if it is not a pointer."""
    if not path:
        return []
    if not path.startswith("/"):
        raise PatchError(
            f"not a JSON Pointer: {path!r}", hint="a pointer starts with / or is empty"
        )
    return [unescape(token) for token in path[1:].split("/")]
