"""What Bash knows by name without looking into a directory: its keywords and its builtins."""

from __future__ import annotations

KEYWORDS = frozenset(
    {
        *("!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi"),
        *("for", "function", "if", "in", "select", "then", "time", "until", "while"),
    }
)
"""Words that are reserved where a command may begin, as `compgen -k` lists them."""

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
"""Commands that Bash itself answers, as `compgen -b` lists them.

A program of the same name is never reached by that name."""

WITH_PROGRAMS = frozenset({"[", "echo", "false", "kill", "printf", "pwd", "test", "true"})
"""Builtins that are programs as well: whoever is no shell runs the program by that name."""

DECLARING = frozenset({"declare", "export", "local", "readonly", "typeset"})
"""Builtins whose operands set variables as assignments do: their values are not split."""

WITH_ARRAYS = DECLARING | {"alias", "eval", "let"}
"""Builtins whose operands may be arrays in parentheses."""

FILLING = frozenset({"getopts", "mapfile", "read", "readarray"})
"""Builtins that set the variables which their operands name."""

LEAVING_STDIN = BUILTINS - {
    *(".", "bind", "builtin", "compgen", "eval", "exec", "fc", "mapfile", "read", "readarray"),
    "source",
}
"""Builtins that leave standard input alone."""
