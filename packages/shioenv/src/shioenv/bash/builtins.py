"""Bash's keywords and builtins."""

from __future__ import annotations

KEYWORDS = frozenset(
    {
        *("!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi"),
        *("for", "function", "if", "in", "select", "then", "time", "until", "while"),
    }
)
"""Words that are reserved at the start of a command, as listed by `compgen -k`."""

BUILTINS = frozenset(
    {
        *(".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command"),
        *("compgen", "complete", "compopt", "continue", "declare", "dirs", "disown", "echo"),
        *("enable", "eval", "exec", "exit", "export", "false", "fc", "fg", "getopts", "hash"),
        *("help", "history", "jobs", "kill", "let", "local", "logout", "mapfile", "popd", "printf"),
        *("pushd", "pwd", "read", "readarray", "readonly", "return", "set", "shift", "shopt"),
        *("source", "suspend", "test", "times", "trap", "true", "type", "typeset", "ulimit"),
        *("umask", "unalias", "unset", "wait"),
    }
)
"""Bash's builtin commands, as listed by `compgen -b`.

A program of the same name cannot be run by that name alone."""

WITH_PROGRAMS = frozenset({"[", "echo", "false", "kill", "printf", "pwd", "test", "true"})
"""Builtins that also exist as programs; `env`, `xargs` and the like run these programs."""

DECLARING = frozenset({"declare", "export", "local", "readonly", "typeset"})
"""Builtins whose operands set variables like assignments: their values are not split."""

WITH_ARRAYS = DECLARING | {"alias", "eval", "let"}
"""Builtins whose operands may be arrays in parentheses."""

FILLING = frozenset({"getopts", "mapfile", "read", "readarray"})
"""Builtins that set the variables named by their operands."""

LEAVING_STDIN = BUILTINS - {
    *(".", "bind", "builtin", "compgen", "eval", "exec", "fc", "mapfile", "read", "readarray"),
    "source",
}
"""Builtins that do not read standard input."""
