"""What an input did: exit code, output, context patch, and how far each can be trusted."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shioenv.domain.patch import ContextPatch

NOTHING = hashlib.sha256().hexdigest()
"""The content digest of an empty file."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """One execution's observable result (Appendix C).

    A command that fails or reaches a limit has a behavior. A sandbox that breaks is an exception.
    """

    exit_code: int
    """The exit code of the last command, 0 to 255; 124 where the wall time ran out."""
    output: bytes
    """Standard output and standard error in the order they arrived."""
    patch: ContextPatch = field(default_factory=ContextPatch)
    """Every change of the context, in canonical order."""
    content_digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 (hex) of each regular file that was added or whose content changed.

    The key is the file's name in `fs`."""
    stdout: bytes | None = None
    """Standard output alone, where the channels were separate."""
    stderr: bytes | None = None
    """Standard error alone, where the channels were separate."""
    timed_out: bool = False
    """Whether the wall time ran out."""
    output_truncated: bool = False
    """Whether more was written than is kept."""
    limits_hit: tuple[str, ...] = ()
    """The limits that the run reached, by their names in `Limits`."""
    patch_truncated: bool = False
    """Whether more changed than a patch may hold; `patch_digest` stands for the rest."""
    patch_digest: str | None = None
    """SHA-256 (hex) of the whole patch and the digests where these were cut, else None."""
    volatile: bool = False
    """Whether another run of the same input may do something else."""
    shell_state_known: bool = True
    """Whether the shell's dump could be read: the shell may have died before, or the dump be wrong.

    If not, the patch lacks all changes that the shell alone can tell."""
    died_by_signal: int | None = None
    """The signal that ended the shell itself, else None."""
    processes: int = field(default=0, compare=False)
    """How many processes and threads the run started, the shell among them; 0: nobody counted.

    The number says what a run costs, and is no part of what the input did.
    """
    inodes: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    """The inode numbers of the files that the run added or changed, by their names in `fs`.

    Empty where nobody looked. They tell a moved file from a copied one after a history, and are no
    part of what the input did.
    """

    def to_json(self) -> dict[str, Any]:
        """A JSON object with the keys of `shioenv run --json`, but for its input and its place."""
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
    """The output as text, and its base64 where the output is not UTF-8 (D-8)."""
    try:
        return output.decode("utf-8"), None
    except UnicodeDecodeError:
        return output.decode("utf-8", "replace"), base64.b64encode(output).decode("ascii")
