"""Which failures are misuse: the program says that its command line is wrong.

An input *fails as misuse* where its exit code is not 0 and a program complains about the command
line, whatever files there are:

- an option that is unknown, ambiguous, lacks its value, takes none, or excludes another one;
- an operand that is missing, or one too many;
- an argument that is not written as the program reads it (number, date, mode, format, pattern,
  address, keyword), or is out of the program's range.

A correct command line that cannot be obeyed is no misuse. Examples are a missing file, a directory,
an unknown user or device, missing permission, a refused connection, and a check that fails. This
count is ours, because the paper counts no failures.
"""

from __future__ import annotations

import re

_PROGRAM = r"(?:bash: line \d+: )?[\w./+-]+: "

_MESSAGES = (
    # what GNU programs, and those built like them, end every complaint about usage with
    r"Try ['`\"].*--help['\"].*",
    r"[Uu]sage:? ?.*",
    r"curl: try 'curl --help'.*",
    # options
    _PROGRAM + r"(?:.*: )?(?:invalid|unrecognized|unknown|illegal|bad) option\b.*",
    _PROGRAM + r"option .*(?:requires an argument|allow an argument|is ambiguous.*|: is .*)",
    _PROGRAM + r"option .*: (?:requires parameter|expected a proper numerical parameter).*",
    _PROGRAM + r"(?:unknown predicate|ambiguous option|unrecognized: ).*",
    _PROGRAM + r".*(?:mutually exclusive|are incompatible|cannot be (?:combined|used together)).*",
    _PROGRAM + r"(?:cannot|can't) (?:be )?(?:combine|both|do --|split in more|specify).*",
    _PROGRAM + r".*\bmay only be used with\b.*",
    _PROGRAM + r".*(?:both selected and excluded|used more than once|makes? (?:no )?sense).*",
    _PROGRAM + r".*(?:conflicts? with|cannot be used (?:together )?with|don't make sense).*",
    _PROGRAM + r"(?:multiple|only one) .*(?:specified|may be .*)",
    _PROGRAM + r".*requires either .*",
    r"(?:q/)?-q[/,]-*.*cannot be used together with .*",
    # operands
    _PROGRAM + r"(?:missing|extra|too (?:many|few)|not enough) .*",
    _PROGRAM + r".*(?:you must specify|must specify|must be specified|must end in X).*",
    _PROGRAM + r"(?:bad command line argument|bad usage).*",
    _PROGRAM + r".*\b(?:missing URL|no URL specified|missing host operand).*",
    # what arguments say
    _PROGRAM + r"(?!cannot ).*\b[Ii]nvalid (?!argument$|or incomplete|user|group|magic|cross).*",
    _PROGRAM + r".*\b(?:[Uu]nknown|unrecognized) (?:column|level|facility|time format|param).*",
    _PROGRAM + r".*\b(?:must be a single character|multi-character|is not (?:a )?positive).*",
    _PROGRAM
    + r".*\b(?:Unmatched |Invalid (?:regular expression|range|back ?reference|preceding)).*",
    _PROGRAM + r".*\b(?:positions|fields) are numbered from 1.*",
    _PROGRAM + r".*\b(?:failed to parse|argument failed|Numerical result out of range).*",
    _PROGRAM + r".*\b(?:not a valid identifier|numeric argument required|syntax error|[Ss]yntax).*",
    _PROGRAM + r"(?:tab size.* (?:cannot|must) be .*|cannot print .*)",
    _PROGRAM + r"-e expression #\d+, char \d+: .*",
    _PROGRAM + r".*(?:when translating|string2 must|range-endpoints|equivalence class|construct).*",
    _PROGRAM + r".*(?:ends with an unescaped backslash|option used in invalid context).*",
    r"[Ee]rror: .*(?:syntax error|conflicts with|makes no sense|[Gg]arbage option|unknown ).*",
    r"[Ee]rror: .*(?:is a garbage|is expected rather than|is duplicate|not allowed in this).*",
    r"[Ee]rror: argument \".*\" is wrong(?!: (?:Device|Invalid VRF|Not a valid VRF)).*",
    r"(?:Command|Object|Option) \".*\" is unknown, try .*",
    r"Unknown address family .*|ethtool \(.*\): unknown parameter .*",
    r"Error: duplicate \".*\": .*",
    r"Not enough information: .*",
    r"Flush requires arguments\.|preferred_lft is greater than valid_lft",
    r"Command line is not complete\..*",
    r"bash: -c: line \d+: syntax error.*",
)

_QUOTES = str.maketrans("\u2018\u2019", "''")
_MISUSE = re.compile("|".join(f"(?:{message})" for message in _MESSAGES))


def complaint(exit_code: int, output: str) -> str | None:
    """The line of the output that says what is wrong with the command line; None for no misuse.

    `output` has standard error in it. An input that ended with exit code 0 is no misuse. An input
    that a limit (124) or a signal (129 to 254) ended is none either.
    """
    if exit_code in {0, 124} or 128 < exit_code < 255:
        return None
    for line in output.translate(_QUOTES).splitlines():
        if _MISUSE.fullmatch(line):
            return line
    return None


def is_misuse(exit_code: int, output: str) -> bool:
    """Whether an input with this outcome failed as misuse."""
    return complaint(exit_code, output) is not None
