"""A runner that executes one command of an input in the state left by the earlier commands."""

from __future__ import annotations

import base64
import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shioenv.bash.words import quoted
from shioenv.domain.behavior import Behavior
from shioenv.domain.patch import ContextPatch, with_contents
from shioenv.domain.runner import Executing, Order, State
from shioenv.errors import Abstained
from shioenv_model.composition.changes import Changes

PIPES = re.compile(r"/dev/fd/6[0-3](?!\d)")
"""Paths of process substitutions in a state: the names that Bash gives them."""

_REMEMBERED = 64
_PRINTABLE = re.compile(rb"[\n -~]*")
_LONG = 2048


class Replay:
    """Runs a command in a state, after silently replaying the state's history on the same line.

    `runner` starts from the pristine machine each time. The command receives the state's standard
    input. If the command names a process substitution's path that is in `State.written`, a process
    substitution with the same data replaces the path. The patch contains only the command's own
    changes. Errors: those of the runner; Abstained if the input becomes too long, or the patch too
    large.
    """

    def __init__(self, runner: Executing) -> None:
        self._runner = runner
        self._ends: OrderedDict[tuple[str, str], tuple[Changes, dict[str, str]]] = OrderedDict()

    @property
    def seconds(self) -> float:
        """Total time of everything executed so far, in seconds."""
        return self._runner.seconds

    @property
    def waited(self) -> bool:
        """Whether the newest run timed out while sleeping."""
        return self._runner.waited

    def close(self) -> None:
        """Close the runner."""
        self._runner.close()

    def run(self, shell_input: str, state: State | None = None) -> Behavior:
        """Return the command's behavior in the state."""
        return self.execute(shell_input, state)

    def execute(
        self,
        shell_input: str,
        state: State | None = None,
        *,
        separate: bool = False,
        wall_seconds: float | None = None,
        sandboxes: int | None = None,
        order: Order = "as it comes",
    ) -> Behavior:
        """Run a command with settings for execution; see `Executing.execute`."""
        before = "".join(f"{silent(text)}; " for text in state.history) if state else ""
        text = before + connected(shell_input, state.written if state else {})
        if len(text) > 120_000:
            raise Abstained("the earlier commands take too long to repeat")
        start = replace(state, history=(), context=None, written={}) if state else None
        behavior = self._runner.execute(
            text,
            start,
            separate=separate,
            wall_seconds=wall_seconds,
            sandboxes=sandboxes,
            order=order,
        )
        if not before or state is None or start is None:
            return behavior
        # in output that shows the shell's command line, leave only the command
        ran, asked = os.fsencode(text), os.fsencode(shell_input)
        at = f"bash: line {1 + before.count(chr(10))}: ".encode()
        known = self._end(before, start)
        whole = Changes(start.before.document).add(_whole(behavior))
        digests = {
            name: digest
            for name, digest in behavior.content_digests.items()
            if known[1].get(name) != digest
        }

        def entry(name: str) -> Mapping[str, Any] | None:
            file = whole.file(name)
            return None if file is None else file.entry

        return replace(
            behavior,
            output=behavior.output.replace(at, b"bash: line 1: ").replace(ran, asked),
            stdout=behavior.stdout and behavior.stdout.replace(ran, asked),
            stderr=behavior.stderr and behavior.stderr.replace(at, b"bash: line 1: "),
            patch=with_contents(whole.since(known[0]), digests, entry),
            content_digests=digests,
        )

    def _end(self, before: str, start: State) -> tuple[Changes, dict[str, str]]:
        """Return the result of the history alone: changes, and digests of contents.

        It is cached.
        """
        key = start.cwd, before
        if key not in self._ends:
            behavior = self._runner.execute(before, replace(start, stdin=b""))
            changes = Changes(start.before.document).add(_whole(behavior))
            self._ends[key] = changes, dict(behavior.content_digests)
            if len(self._ends) > _REMEMBERED:
                self._ends.popitem(last=False)
        return self._ends[key]


def silent(text: str) -> str:
    """Wrap the commands to run silently: without input, output and exit status."""
    return "{ " + text + "; } </dev/null >/dev/null 2>&1 || :"


def write_commands(data: bytes) -> str:
    """Return commands that write these bytes to standard output; short texts use only builtins."""
    if not data:
        return ":"
    if _PRINTABLE.fullmatch(data) and len(data) < _LONG:
        return f"printf %s {quoted(data.decode())}"
    return f"printf %s {base64.b64encode(data).decode()} | base64 -d"


def fed(text: str, data: bytes) -> str:
    """Return the command with these bytes piped to its standard input."""
    return f"{{ {text}; }} < <({write_commands(data)})"


def connected(text: str, pipes: Mapping[str, bytes | None]) -> str:
    """Replace the paths of process substitutions in the commands by `<(…)`."""

    def pipe(match: re.Match[str]) -> str:
        data = pipes.get(match[0])
        return match[0] if data is None else f"<({write_commands(data)})"

    return PIPES.sub(pipe, text)


def _whole(behavior: Behavior) -> ContextPatch:
    if behavior.patch_truncated:
        raise Abstained("more changes than a patch can represent")
    return behavior.patch
