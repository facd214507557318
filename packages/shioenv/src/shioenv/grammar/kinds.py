"""Kinds of value, such as numbers, modes and patterns: recognition and generation.

A kind is declared once, as a tree of parts. Every part has a language (a regular expression, for
recognition) and a generator of texts in that language. `wide` combines a generator with a larger
language. For example, any mode of four digits is recognised, and the usual modes are drawn. Texts
are unquoted; `shioenv.grammar.spelling` adds the quotes that the shell needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shioenv.grammar.notation import NO_SPACE
from shioenv.grammar.parts import LONGEST, Part, items_of, known, maybe, number, one_of, row, wide
from shioenv.grammar.spelling import BLANK, SUBSTITUTION, VARIABLE


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value.

    `about` describes the kind for the documentation, `part` is its language and generator.
    `dashed`: a value that is a whole word may begin with a dash, like a mode. `seeded`: values are
    drawn by varying the numbers in the grammar's own alternatives, so that units, signs and bounds
    fit the program. `drawn` is False if only the grammar knows which values make sense (columns,
    directives).
    """

    name: str
    about: str
    part: Part
    dashed: bool = False
    seeded: bool = False
    drawn: bool = True

    @property
    def language(self) -> re.Pattern[str]:
        """The recognised texts: the part's language, and any text that consists of expansions."""
        if self.name not in _COMPILED:
            expansions = f"[{SUBSTITUTION}{VARIABLE}]+"
            _COMPILED[self.name] = re.compile(f"(?:{self.part.pattern}|{expansions})", re.DOTALL)
        return _COMPILED[self.name]

    def ends(self, word: str, offset: int) -> list[int]:
        """Return the possible end offsets of a value of this kind that begins at `offset`.

        The word is unquoted text. A no-space mark ends a value, and so does a blank that was not
        quoted.
        """
        stop = _END.search(word, offset)
        last = stop.start() if stop else len(word)
        if last - offset > LONGEST:
            return []
        if not offset and not self.dashed and last > 1 and word.startswith("-"):
            return []
        match = self.language.fullmatch
        return [end for end in range(offset, last + 1) if match(word, offset, end)]


_COMPILED: dict[str, re.Pattern[str]] = {}
_END = re.compile(rf" |{NO_SPACE}")

# Languages --------------------------------------------------------------------------------------

ANY = r"[^ \x00\x06-\x1f]"
"""A pattern for one character of a plain word."""

_CLOSED = rf"(?>(?:\\{ANY}|\[\^?\]?(?>(?:\[[:.=][^\]]*[:.=]\]|[^\]])*)\]|[^\\\[ \x00\x06-\x1f])*)"
"""A pattern for texts in which a character follows every backslash, and bracket expressions are
closed."""

_SUFFIX = r"(?:[kKMGTPEZYRQ](?:i?B)?|[bcwB])"
_RANGE = r"(?:[0-9]+(?:-[0-9]*)?|-[0-9]+)"
_CLAUSE = r"[ugoa]*(?:[-+=](?:[rwxXst]*|[ugo]))+"
_TIME_WORDS = (
    "january|february|march|april|may|june|july|august|september|october|november|december|"
    "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|"
    "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tues?|wed(?:nes)?|thu(?:rs)?|"
    "fri|sat|sun|"
    "years?|months?|fortnights?|weeks?|days?|hours?|minutes?|mins?|seconds?|secs?|"
    "ago|next|last|this|today|yesterday|tomorrow|now|noon|midnight|at|of|"
    "a\\.?m\\.?|p\\.?m\\.?|utc|gmt|[ecmp][sd]t|cest?|cet|bst|jst|z|"
    "first|third|fourth|fifth|sixth|[0-9]+(?:st|nd|rd|th)"
)
_TIME_TOKEN = rf"(?>[-+]?[0-9][0-9:./T+-]*Z?|@-?[0-9.]+|(?i:{_TIME_WORDS})(?![A-Za-z])|[-+,])"

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNITS = ("day", "days", "week", "weeks", "month", "months", "hours", "minutes", "year", "years")
_STEMS = (
    "test", "file", "data", "notes", "report", "output", "result", "list", "backup", "log", "tmp",
    "config", "old", "new", "copy", "summary", "names", "users", "image", "index", "main", "a", "b",
    "foo", "project", "archive", "script", "draft", "final", "todo",
)  # fmt: skip
_ENDINGS = (".txt", ".log", ".csv", ".sh", ".py", ".md", ".tar.gz", ".bak", ".conf", ".html", ".c")

_word = known("Word", ("error", "user", "data", "test"), rf"{ANY}+")
_small = number(1, 100)
_two = wide("[0-9]{2}", one_of(*(f"{n:02}" for n in range(1, 13))))
_year = one_of("2025", "2024", "2023")
_day = wide(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", row(_year, "-", _two, "-", _two))
_stem = wide(r"[\w.-]+", one_of(*_STEMS, (row(one_of(*_STEMS), number(1, 20)), 8.0)))
_file_name = wide(r"[\w.-]+", row(_stem, one_of(("", 3.0), *_ENDINGS)))
_extension = one_of(*_ENDINGS)
_beginning = one_of(*"abcdilmnprst", "app", "data", "re", "no")
_glob = one_of(
    (row("*", one_of((".txt", 6.0), (".log", 2.0), (".csv", 2.0), (".sh", 2.0), *_ENDINGS)), 5.0),
    (row("*", _beginning, "*"), 1.5),
    (row(_beginning, "*"), 1.5),
    row(_stem, "*"),
    row(_beginning, "?*"),
    row("[", one_of("a-m", "0-9", "A-Z", "abc"), "]*"),
    "*",
)
_regex = one_of(
    (_word, 2.0),
    (one_of(*"aeinorst0123", "er", "in", "on", "[a-z]", "o.", "s$", "^."), 8.0),
    row("^", _word),
    row(_word, "$"),
    row(_word, ".*", _word),
    row("[", one_of("0-9", "a-z", "A-Z", "aeiou", "[:digit:]", "[:upper:]"), "]", maybe("*")),
    row("^[", one_of("0-9", "a-z", "^#", "A-Z"), "]"),
    row("\\.", one_of("txt", "log", "sh", "conf"), "$"),
)
_any_text = wide(
    rf"{ANY}*",
    one_of(
        (_word, 5.0),
        row(_word, " ", _word),
        row(_word, " ", _word, " ", _word),
        _small,
        row(_word, ": ", _word),
    ),
)
_where = one_of("/tmp", "/etc", "/var/log", "/usr", "/home", "/opt", "/usr/share", "/proc", "/")
_path_text = wide(
    rf"-|(?!-){ANY}+",
    one_of(
        (known("File", ("documents/notes.txt",), ANY), 6.0),
        (known("Directory", ("documents",), ANY), 3.0),
        (_file_name, 3.0),
        (_stem, 2.0),
        (row(_where, "/", _file_name), 1.5),
        (_where, 1.0),
        (row(known("Directory", ("documents",), ANY), "/", _file_name), 1.0),
        (row(_stem, "/"), 0.5),
        (row("~/", _file_name), 0.7),
        (row("./", _file_name), 0.7),
        ("..", 0.5),
        (row("../", _stem), 0.4),
        (_glob, 1.0),
        (row(known("Directory", ("documents",), ANY), "/*", maybe(_extension)), 0.8),
    ),
)
_user = known("Username", ("root", "ubuntu"), r"(?:[A-Za-z_.][\w.-]*\$?|\+?[0-9]+)")
_group = known("Groupname", ("root", "users"), r"(?:[A-Za-z_.][\w.-]*\$?|\+?[0-9]+)")
_host = known("Hostname", ("localhost",), r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]|[0-9A-Fa-f:.]+)")
_field = wide(r"[A-Za-z%_][\w%:. \x01-]*=?[^, \x00-\x1f]*", one_of("name", "size", "type"))
_mode_clause = row(
    one_of("u", "g", "o", "a", "", "ug", "go"),
    one_of(("+", 3.0), ("-", 2.0), "="),
    one_of(("x", 3.0), "r", "w", "rw", "rx", "rwx", "X"),
)

KINDS: Mapping[str, ValueKind] = {
    kind.name: kind
    for kind in (
        ValueKind("number", "digits: `5`, `1000`", _small, seeded=True),
        ValueKind(
            "signed",
            "a number that may have a sign: `+5`, `-3`",
            wide(r"[-+]?[0-9]{1,20}", row(one_of("+", "-", ""), _small)),
            dashed=True,
            seeded=True,
        ),
        ValueKind(
            "decimal",
            "a number with or without a fraction: `0.5`, `2`, `10s`",
            wide(r"[0-9]*\.?[0-9]+[smhd]?", one_of(_small, row(number(0, 9), ".", number(1, 9)))),
            seeded=True,
        ),
        ValueKind(
            "size",
            "a size with or without sign and unit: `10M`, `+100k`, `512`",
            wide(
                rf"[-+<>/%]?(?:[0-9]+(?:\.[0-9]+)?{_SUFFIX}?%?|{_SUFFIX})",
                row(_small, one_of("", "K", "M", "k")),
            ),
            dashed=True,
            seeded=True,
        ),
        ValueKind(
            "duration",
            "a time to wait: `5`, `0.2`, `1.5m`",
            wide(r"[0-9]*\.?[0-9]+[smhd]?", one_of(number(1, 10), row("0.", number(1, 9)))),
            seeded=True,
        ),
        ValueKind(
            "mode",
            "permissions: `644`, `u+x,go-w`, `a=r`",
            wide(
                rf"[-/+=]?[0-7]{{1,5}}|[-/]?{_CLAUSE}(?:,{_CLAUSE})*",
                one_of(
                    (one_of("644", "755", "600", "700", "777", "664", "775", "640", "400"), 3.0),
                    (items_of(_mode_clause, ",", 2), 2.0),
                ),
            ),
            dashed=True,
        ),
        ValueKind(
            "time",
            "a date, a time, or words for one: `2025-10-01 12:00`, `yesterday`, `2 days ago`",
            wide(
                rf"(?>(?:[{BLANK},]*+{_TIME_TOKEN})+)",
                one_of(
                    _day,
                    row(_day, " ", _two, ":", _two),
                    row(number(1, 30), " ", one_of(*_UNITS), " ago"),
                    row(one_of("+", "-"), number(1, 30), " ", one_of(*_UNITS)),
                    row("@", number(1_000_000_000, 1_760_000_000)),
                    one_of("yesterday", "tomorrow", "now", "today", "next week", "last month"),
                    row(one_of(*_MONTHS), " ", number(1, 28), " ", one_of("2025", "2024")),
                ),
            ),
            dashed=True,
        ),
        ValueKind(
            "stamp",
            "a time as `touch -t` and `date` take it: `202510011200.30`",
            wide(
                r"(?:[0-9]{2}){0,2}[0-9]{8}(?:\.[0-9]{2})?",
                row(_two, _two, _two, _two, one_of("2025", "2024", "25", "")),
            ),
        ),
        ValueKind(
            "key",
            "a sort key: `2`, `2,2n`, `1.3,1.5`",
            wide(
                r"[0-9]+(?:\.[0-9]+)?[bdfghiMnRrV]*(?:,[0-9]+(?:\.[0-9]+)?[bdfghiMnRrV]*)?",
                row(number(1, 6), one_of(("", 3.0), ("n", 2.0), "r", "nr", "V"), maybe(",3", 0.1)),
            ),
        ),
        ValueKind(
            "ranges",
            "a list of ranges: `1`, `2-4`, `1,3-`, `-5`",
            wide(
                rf"{_RANGE}(?:[,{BLANK}]{_RANGE})*",
                one_of(
                    (number(1, 12), 4.0),
                    row(number(1, 5), "-", number(5, 30)),
                    row(number(1, 10), "-"),
                    row("-", number(2, 10)),
                    row(number(1, 3), ",", number(3, 9)),
                ),
            ),
        ),
        ValueKind(
            "delimiter",
            "one character, or an escape for one: `,`, `:`, `\\t`",
            wide(rf"(?:{ANY}|\\{ANY}{{1,3}})?", one_of(*",:;|-./=_@#\t ")),
            dashed=True,
        ),
        ValueKind(
            "format",
            "a text with directives: `%Y-%m-%d`, `%s %n`, `%p\\n`",
            wide(rf"(?!-){ANY}+", row("%", one_of(*"YmdHMSFTsnaAbB"))),
            drawn=False,
        ),
        ValueKind(
            "fields",
            "a list of columns: `pid,user`, `NAME,SIZE`, `-rss`",
            wide(
                rf"[-+]?[A-Za-z%_][^, \x00-\x1f]*(?:[,{BLANK}][-+]?[A-Za-z%_][^, \x00-\x1f]*)*",
                items_of(_field, ","),
            ),
            drawn=False,
        ),
        ValueKind(
            "command",
            "a command that this one runs, parsed with that command's grammar: `rm {} \\;`",
            wide("(?!)", row("echo {} \\;")),
            drawn=False,
        ),
        ValueKind(
            "choices",
            "a list of the definition's own words, in any order: `source,size`",
            wide(rf"{ANY}+", _field),
            drawn=False,
        ),
        ValueKind("pattern", "a regular expression, every bracket closed", wide(_CLOSED, _regex)),
        ValueKind(
            "glob", "a shell pattern: `*.txt`, `notes?`, or a name", wide(rf"(?!-){ANY}+", _glob)
        ),
        ValueKind(
            "word", "text in the program's own syntax: a script, an expression, a style", _any_text,
            drawn=False,
        ),
        ValueKind("text", "any text: a word, a phrase, nothing", _any_text),
        ValueKind("path", "a file or directory, there or not: `a/b`, `~/x`, `..`, `-`", _path_text),
        ValueKind("name", "a name without a slash", wide(r"(?!-)[^ /\x00\x06-\x1f]+", _file_name)),
        ValueKind(
            "suffix",
            "the end of a name: `.bak`, `~`",
            wide(rf"(?!-){ANY}*", one_of(*_ENDINGS, "~", ".old", ".orig", "_old")),
        ),
        ValueKind("user", "a user's name or number", _user),
        ValueKind("group", "a group's name or number", _group),
        ValueKind(
            "owner",
            "a user, a group or both: `root:users`, `:adm`",
            wide(
                rf"{_user.pattern}?[:.]?{_group.pattern}?",
                one_of(
                    (_user, 2.0), (row(_user, ":", _group), 3.0), row(_user, ":"), row(":", _group)
                ),
            ),
        ),
        ValueKind(
            "users",
            "a list of users: `root,ubuntu`",
            wide(rf"{_user.pattern}(?:[,{BLANK}]{_user.pattern})*", items_of(_user, ",", 2)),
        ),
        ValueKind(
            "pid",
            "numbers of processes: `1`, `1,2`",
            wide(rf"[0-9]+(?:[,{BLANK}][0-9]+)*", one_of(("1", 3.0), number(2, 32768))),
        ),
        ValueKind("host", "a host: its name or address", _host),
        ValueKind(
            "url",
            "a web address, or a host",
            wide(
                rf"(?!-){ANY}+",
                row(
                    one_of(("http://", 6.0), ("https://", 3.0), ("", 2.0), ("ftp://", 0.3)),
                    one_of(("localhost", 6.0), ("127.0.0.1", 2.0), _host),
                    maybe(row(":", one_of("8080", "8000", "3000", "8888")), 0.15),
                    one_of(
                        ("", 2.0),
                        ("/", 2.0),
                        (row("/", _file_name), 4.0),
                        (row("/", _stem, "/", _file_name), 1.5),
                        (row("/", _stem, "/"), 1.0),
                    ),
                ),
            ),
        ),
        ValueKind(
            "address",
            "a network address, with its prefix: `10.0.0.1/24`, `::1`",
            wide(
                r"[0-9A-Fa-f:.]+(?:/[0-9.]+)?|[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}",
                one_of(
                    known("IpAddress", ("127.0.0.1",), ANY),
                    row("10.", number(0, 255), ".", number(0, 255), ".", number(1, 254)),
                    row("192.168.", number(0, 255), ".0/24"),
                ),
            ),
        ),
        ValueKind(
            "interface",
            "a network interface",
            known("Interface", ("lo", "eth0"), r"[A-Za-z][\w.@:-]*"),
        ),
        ValueKind(
            "header",
            "a header line: `Accept: text/html`",
            wide(
                rf"[^: \x00-\x1f]+[:;]{ANY}*|@{ANY}+",
                one_of("Accept: text/html", "Accept: */*", row("X-Test: ", _word)),
            ),
            drawn=False,
        ),
        ValueKind(
            "variable",
            "the name of a variable",
            known("EnvVar", ("HOME", "PATH"), r"[A-Za-z_]\w*"),
        ),
        ValueKind(
            "assignment",
            "an assignment: `NAME=value`",
            wide(
                rf"[A-Za-z_]\w*\+?={ANY}*",
                row(one_of("FOO", "NAME", "DEBUG", "TZ"), "=", one_of(_small, _stem, _word)),
            ),
        ),
        ValueKind(
            "setting",
            "a name with a value: `key=value`, `name:value`",
            wide(rf"(?!-)[^= ]+[=:]{ANY}*", row(_stem, "=", _word)),
            drawn=False,
        ),
        ValueKind(
            "set",
            "characters as `tr` reads them: `a-z`, `[:upper:]`, `\\n`",
            wide(
                rf"(?!-){ANY}+",
                one_of(
                    "a-z", "A-Z", "0-9", "a-zA-Z", "[:lower:]", "[:upper:]", "[:digit:]",
                    "[:space:]", "[:punct:]", "[:alnum:]", "\\n", "\\t", " ", ",", ":", ".",
                ),
            ),
        ),
    )
}  # fmt: skip
"""All kinds by name."""

COMMAND = "command"
"""The kind of a nested command, which is recognised by grammars instead of a language."""

CLOSED = "closed"
"""The word that replaces a kind in a definition that lists all valid values."""

TOKEN_KINDS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "File", "TextFile", "CsvFile", "LogFile", "ScriptFile", "TarFile", "GzipFile",
            "ZipFile", "CpioFile", "HtmlFile", "JsonFile", "ImageFile", "HiddenFile", "HardLink",
            "Fifo", "EmptyFile", "Symlink", "Executable", "Directory", "GlobalFile",
            "GlobalDirectory", "GlobalExecutable", "NewFile", "NewDirectory", "MissingFile",
            "MissingDirectory", "MountPoint", "Device",
        ),
        "path",
    ),
    "MissingUser": "user", "Username": "user", "Groupname": "group", "Interface": "interface",
    "BlockDevice": "name", "EnvVar": "variable", "Pid": "pid", "Hostname": "host",
    "IpAddress": "address", "Word": "text", "Pattern": "pattern", "Glob": "glob",
}  # fmt: skip
"""The name of the kind of each system token's values."""
