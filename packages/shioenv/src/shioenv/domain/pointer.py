"""JSON Pointers (RFC 6901): how a patch says where in a document something changes."""

from __future__ import annotations

from shioenv.errors import PatchError


def escape(key: str) -> str:
    """One key as it stands in a pointer: `~` is `~0`, `/` is `~1`."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(token: str) -> str:
    """The key that a pointer's token names."""
    return token.replace("~1", "/").replace("~0", "~")


def pointer(*keys: str) -> str:
    """The pointer that leads through these keys; "", the whole document, for no keys."""
    return "".join(f"/{escape(key)}" for key in keys)


def keys(path: str) -> list[str]:
    """The keys that a pointer leads through. PatchError where it is not a pointer."""
    if not path:
        return []
    if not path.startswith("/"):
        raise PatchError(f"not a JSON Pointer: {path!r}", hint="it starts with / or is empty")
    return [unescape(token) for token in path[1:].split("/")]
