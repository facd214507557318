"""`xargs` and `find -exec`, taken apart into the commands that they run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from shioenv.bash.program import Simple
from shioenv.composition.call import Call
from shioenv.composition.channels import Sink, Stdin
from shioenv.composition.environment import Environment
from shioenv.composition.unrolling import Found, arguments_passed, found
from shioenv.domain.behavior import Behavior


class Callers:
    """Asks about what commands of an environment call, one by one."""

    def __init__(self, here: Environment) -> None:
        self._here = here

    def run(self, command: Simple, fds: Mapping[int, Sink], stdin: Stdin) -> bool:
        """Whether what `xargs` or `find -exec` runs was asked about, one by one. Where one of these
        commands goes wrong in a way that its caller tells, nothing was.
        """
        if command.assignments or any(map(self._here.is_unknown, command.words)):
            return False
        words = [field for word in command.words for field in self._here.expander.fields(word)]
        if words[0] == "find":
            search = found(words)
            listed = self._listed(search) if search else None
            calls = search.calls(listed[0]) if search and listed else None
        else:
            search, listed = None, None
            calls = None if stdin.shared or stdin.endless else arguments_passed(words, stdin.data)
        if calls is None:
            return False
        mark = self._here.asking.mark()
        behaviors = self._called(calls, separate=fds[1] is not fds[2])
        if behaviors is not None and search and listed and not self._finds_no_more(search, listed):
            behaviors = None
        if behaviors is None:
            self._here.asking.back_to(mark)
            return False
        with self._here.to(fds, stdin):
            for behavior in behaviors:
                if fds[1] is fds[2]:
                    self._here.write(fds[1], behavior.output)
                else:
                    self._here.write(fds[1], behavior.stdout)
                    self._here.write(fds[2], behavior.stderr)
        failed = any(behavior.exit_code for behavior in behaviors)
        if search is None:
            self._here.status = 123 if failed else 0
        else:
            self._here.status = int(failed and search.together)
        return True

    def _called(self, calls: Sequence[Sequence[str]], *, separate: bool) -> list[Behavior] | None:
        behaviors = []
        for call in calls:
            asked = Call.of(call)
            behavior = self._here.ask(asked, separate=separate)
            if behavior.exit_code > 125 or behavior.timed_out or behavior.output_truncated:
                return None
            self._here.asking.learn(asked.text, behavior)
            self._here.advance(asked.text, behavior)
            behaviors.append(behavior)
        return behaviors

    def _listed(self, search: Found) -> tuple[bytes, frozenset[bytes]] | None:
        """What a `find` finds; None where it complains."""
        behavior = self._here.ask(Call.of(search.listing), separate=True)
        if behavior.exit_code or behavior.stderr or behavior.output_truncated:
            return None
        data = behavior.stdout or b""
        return data, frozenset(data.split(b"\0"))

    def _finds_no_more(self, search: Found, listed: tuple[bytes, frozenset[bytes]]) -> bool:
        """Whether what was run changed nothing of what there is to be found, but for files that
        are gone.
        """
        start = self._here.start
        names = map(os.fsdecode, filter(None, listed[1]))
        entries = ((name, start.entry(name)) for name in names)
        directories = [name for name, entry in entries if entry and entry.perms[0] == "d"]
        if any(self._here.state.entry(name) is None for name in directories):
            return False
        now = self._listed(search)
        return now is not None and now[1] <= listed[1]
