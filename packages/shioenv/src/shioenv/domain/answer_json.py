"""JSON serialization of behaviors, for suites, caches and external programs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch
from shioenv.errors import AnswerError, PatchError

FLAGS = ("timed_out", "output_truncated", "patch_truncated", "volatile")
"""Flags of a behavior. A flag is written only if it is true."""

_ALWAYS = ("exit_code", "output", "context_patch")
_WHERE_SET = ("output_b64", "content_digests", *FLAGS)


def behavior_json(behavior: Behavior) -> dict[str, Any]:
    """Convert a behavior to a JSON object with the keys of `shioenv run --json`.

    Empty `content_digests`, an unneeded `output_b64` and false flags are omitted.
    """
    return {
        name: value
        for name, value in behavior.to_json().items()
        if name in _ALWAYS or (name in _WHERE_SET and value)
    }


def behavior_of(document: Mapping[str, Any]) -> Behavior:
    """Parse the behavior in a JSON object.

    Defaults: 0 for `exit_code`, empty for `output` (or `output_b64`) and `context_patch`. The patch
    is a list, or the text of one. Besides these keys, only `content_digests` and `FLAGS` are used.
    Errors: AnswerError, with the fields parsed so far (`received`) if the output is valid.
    """
    try:
        output = _output(document)
    except (TypeError, ValueError, binascii.Error) as error:
        raise AnswerError(f"invalid output: {error}") from None
    exit_code = document.get("exit_code", 0)
    if type(exit_code) is not int or not 0 <= exit_code <= 255:
        raise AnswerError(
            f"invalid exit_code {exit_code!r:.40}, not 0 to 255",
            received=Behavior(exit_code=1, output=output),
        )
    received = Behavior(exit_code=exit_code, output=output)
    try:
        patch = ContextPatch.from_json(document.get("context_patch") or [])
    except (PatchError, TypeError, AttributeError) as error:
        raise AnswerError(f"invalid context_patch: {error}", received=received) from None
    digests = document.get("content_digests") or {}
    flags: dict[str, Any] = {name: bool(document.get(name)) for name in FLAGS}
    return replace(
        received,
        patch=patch,
        content_digests=digests if isinstance(digests, dict) else {},
        **flags,
    )


def _output(document: Mapping[str, Any]) -> bytes:
    encoded = document.get("output_b64")
    if encoded is not None:
        return base64.b64decode(encoded, validate=True)
    text = document.get("output", "")
    if not isinstance(text, str):
        raise ValueError(f"expected text, got {text!r:.40}")
    return text.encode("utf-8", "surrogatepass")
