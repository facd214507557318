"""What the words of one command are expanded against."""

from __future__ import annotations

from collections.abc import Sequence

from shioenv.domain.runner import State
from shioenv.errors import Abstained


def known_place(left: str) -> str:
    """The directory of `State.left`. Errors: Abstained where nobody knows it."""
    if not left:
        raise Abstained("nobody knows where the shell was before")
    return left


class Variables:
    """A `Scope` for the words of one command: a state, and nothing that runs."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.arguments: Sequence[str] = ()

    def variable(self, name: str) -> str | None:
        """See `Scope.variable`."""
        document = self.state.before.document
        value = document["env"].get(name, document["settings"].get(name))
        if value is None and name == "OLDPWD":
            # each input follows a `cd` to where it starts
            return self.state.cwd if self.state.left is None else known_place(self.state.left)
        if value is None and name.isidentifier() and name.isascii():
            return None
        if not isinstance(value, str) or value.startswith(("declare -", "(")):
            raise Abstained(f"${name} is not known")
        return value

    def assign(self, name: str, value: str) -> None:
        """See `Scope.assign`; nothing can be set."""
        raise Abstained(f"{name} would be set to {value!r:.40}")

    def substitute(self, source: str) -> str:
        """See `Scope.substitute`; nothing can be run."""
        raise Abstained(f"{source!r:.40} would have to be run")

    def connect(self, source: str, *, reading: bool) -> str:
        """See `Scope.connect`; nothing can be run."""
        raise Abstained(f"{source!r:.40} would have to be run")
