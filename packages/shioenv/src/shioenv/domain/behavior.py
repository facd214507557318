"""The result of an input: exit code, output, context patch, and their completeness."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shioenv.domain.patch import ContextPatch
from shioenv.text import html_table, short_repr

NOTHING = hashlib.sha256().hexdigest()
"""The content digest of an empty file."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """The observable result of one execution (Appendix C).

    A command that fails or reaches a limit has a behavior. A sandbox failure is an exception.
    """

    exit_code: int
    """The exit code of the last command, 0 to 255; 124 if the wall time ran out."""
    output: bytes
    """Standard output and standard error in order of arrival."""
    patch: ContextPatch = field(default_factory=ContextPatch)
    """Every change of the context, in canonical order."""
    content_digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 (hex) of each regular file that was added or whose content changed.

    The key is the file's name in `fs`."""
    stdout: bytes | None = None
    """Standard output alone, if the channels were separate."""
    stderr: bytes | None = None
    """Standard error alone, if the channels were separate."""
    timed_out: bool = False
    """Whether the wall time ran out."""
    output_truncated: bool = False
    """Whether output beyond the limit was dropped."""
    limits_hit: tuple[str, ...] = ()
    """The limits that the run reached, by their names in `Limits`."""
    patch_truncated: bool = False
    """Whether the patch was cut at its limit; `patch_digest` then identifies the whole."""
    patch_digest: str | None = None
    """SHA-256 (hex) of the complete patch and digests if these were cut, else None."""
    volatile: bool = False
    """Whether another run of the same input may have a different result."""
    shell_state_known: bool = True
    """Whether the shell's state could be read at its end. False if the shell was killed before it
    could dump its state, or if the dump is invalid. Then the patch lacks all changes of that state.
    """
    died_by_signal: int | None = None
    """The signal that killed the shell itself, else None."""
    processes: int = field(default=0, compare=False)
    """Number of processes and threads that the run started, including the shell; 0: not counted.

    The number measures the cost of a run and is not part of its result.
    """
    inodes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """The inode numbers of the files that the run added or changed, by their names in `fs`.

    Empty if they were not collected. They distinguish a moved file from a copied one if the input
    follows a history. They are not part of the result.
    """
    directories: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Size, link count and time of directories in which an entry was added or removed, by name.

    They are not in the patch. If a history removed a directory and the input creates it again, the
    attributes of the new directory are taken from here.
    """

    def __repr__(self) -> str:
        return short_repr(self)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        from shioenv.domain.readable import changes, outcome

        return html_table(
            {
                "result": outcome(self),
                "output": self.text,
                "changes": map(str, changes(self.patch.operations)),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return the behavior as a JSON object with the keys of `shioenv run --json`."""
        output, encoded = output_text(self.output)
        return {
            "exit_code": self.exit_code,
            "output": output,
            "output_b64": encoded,
            "context_patch": json.loads(self.patch.to_json()),
            "content_digests": dict(sorted(self.content_digests.items())),
            "timed_out": self.timed_out,
            "output_truncated": self.output_truncated,
            "limits_hit": list(self.limits_hit),
            "patch_truncated": self.patch_truncated,
            "shell_state_known": self.shell_state_known,
            "died_by_signal": self.died_by_signal,
            "volatile": self.volatile,
        }

    @property
    def text(self) -> str:
        """The output decoded as UTF-8, undecodable bytes as U+FFFD."""
        return self.output.decode("utf-8", "replace")


def output_text(output: bytes) -> tuple[str, str | None]:
    """Return the output as text, and as base64 if it is not UTF-8 (D-8)."""
    try:
        return output.decode("utf-8"), None
    except UnicodeDecodeError:
        return output.decode("utf-8", "replace"), base64.b64encode(output).decode("ascii")
