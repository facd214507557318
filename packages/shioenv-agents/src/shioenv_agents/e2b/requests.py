"""Parts of every request to a sandbox: the sandbox, the user, and errors in the SDK's form."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.request import RequestContext

from shioenv.errors import InputError, ShioenvError
from shioenv_agents.e2b.sandboxes import ClientSandbox
from shioenv_agents.tasks.entered_machine import Finished

CURRENT: Final = ContextVar[ClientSandbox]("sandbox")
"""The sandbox of the present request. The request had its token."""

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")

REFUSALS: Final[Mapping[str, Code]] = {
    "No such file or directory": Code.NOT_FOUND,
    "does not exist": Code.UNAUTHENTICATED,  # a user, as `runuser` says
    "Permission denied": Code.PERMISSION_DENIED,
    "No space left on device": Code.RESOURCE_EXHAUSTED,
    "Is a directory": Code.INVALID_ARGUMENT,
    "Not a directory": Code.INVALID_ARGUMENT,
    "File exists": Code.INVALID_ARGUMENT,
    "File name too long": Code.INVALID_ARGUMENT,
}
"""The code of a failed operation, by a part of the message that a program printed."""


def checked_user(name: str) -> str | None:
    """Return the name of a user; None for the default one. Errors: ConnectError."""
    if name and not _USER.fullmatch(name):
        raise ConnectError(Code.UNAUTHENTICATED, f"{name!r:.80} is no user")
    return name or None


def given_user(ctx: RequestContext[Any, Any]) -> str | None:
    """Return the user that a request names by basic authentication. Errors: ConnectError."""
    kind, _, encoded = ctx.request_headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ConnectError(Code.UNAUTHENTICATED, "the user cannot be read") from None
    return checked_user(text.partition(":")[0])


def sandbox_path(sandbox: ClientSandbox, path: str) -> str:
    """Return the absolute path of a client's path. Errors: ConnectError."""
    if not path or "\0" in path:
        raise ConnectError(Code.INVALID_ARGUMENT, "the path is empty, or has a NUL character")
    return posixpath.normpath(posixpath.join(sandbox.home, path))


def refusal_of(done: Finished) -> ConnectError:
    """Return the error of a program that failed."""
    printed = done.errors.decode("utf-8", "replace").strip()
    code = next((code for text, code in REFUSALS.items() if text in printed), Code.INTERNAL)
    return ConnectError(code, f"{printed:.300}" or f"the program ended with {done.exit_code}")


@contextmanager
def as_connect_errors() -> Iterator[None]:
    """Convert errors of machines to those of the protocol."""
    try:
        yield
    except InputError as error:
        raise ConnectError(Code.INVALID_ARGUMENT, error.message) from None
    except ShioenvError as error:
        raise ConnectError(Code.INTERNAL, error.message) from None
