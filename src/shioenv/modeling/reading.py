"""Text read as a Bash program, by the grammar of Bash's manual.

What cannot be read (Bash refuses it, or it is beyond this: aliases, `coproc`, `time`, `select`) is
abstained from: what it does is not put together from commands.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from shioenv.errors import Abstained
from shioenv.modeling.program import (
    Case,
    Command,
    Counting,
    For,
    Function,
    Group,
    If,
    Job,
    Pipeline,
    Program,
    Redirect,
    Redirected,
    Simple,
    Verbatim,
    While,
)
from shioenv.modeling.work import spend

RESERVED = frozenset(
    {
        *("!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi"),
        *("for", "function", "if", "in", "select", "then", "time", "until", "while"),
    }
)
"""Words that mean something where a command may begin."""

_OPERATORS = (
    *("&>>", "<<<", "<<-", ";;&", "&&", "||", ";;", ";&", "|&", "&>", ">>", "<<", ">|", "<>"),
    *("<&", ">&", ";", "&", "|", "(", ")", "<", ">", "\n"),
)
_REDIRECTING = frozenset({"<", ">", ">>", ">|", "<>", "<&", ">&", "&>", "&>>", "<<<", "<<", "<<-"})
_META = frozenset(" \t\n;&|<>()")
_DIGITS = re.compile(r"\d+(?=[<>])")
_VARIABLE_DESCRIPTOR = re.compile(r"\{\w+\}(?=[<>])")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PARENTHESES = re.compile(r"[ \t]*\([ \t]*\)")
_COMMENT = re.compile(r"#[^\n]*")
_DEEPEST = 80
"""Programs and expansions in each other at most; ours: what is deeper would end Python's stack."""
_MOST_DIGITS = 9


def read_program(text: str) -> Program:
    """The program that `text` is; empty where it holds no command.

    Errors: Abstained for what cannot be read, with where.
    """
    spend(len(text))
    return _read(text)


@lru_cache(maxsize=512)
def _read(text: str) -> Program:
    reader = Reader(text)
    try:
        program = reader.program(frozenset())
    except RecursionError:
        raise reader.refusal("it is nested too deeply") from None
    if reader.token():
        raise reader.refusal(f"{reader.token()!r} begins no command")
    return program


class Reader:
    """Reads from a place in a text on; `place` and `line` are where it is."""

    def __init__(self, text: str, place: int = 0) -> None:
        self.text, self.place, self.line = text, place, 1
        self._depth = 0
        self._ends: dict[tuple[str, int], int] = {}
        """Where expansions and programs in them end, by where they begin: one comes by inner ones
        again and again."""
        self._documents: dict[int, int] = {}
        """Where lines end behind which here-documents stand, and where those end."""

    def refusal(self, why: str) -> Abstained:
        """What to raise where the text cannot be read."""
        around = self.text[max(0, self.place - 10) : self.place + 20]
        return Abstained(
            f"the input cannot be taken apart at {around!r}: {why}",
            hint="ask a runner that answers whole inputs",
        )

    def token(self) -> str:
        """The operator or word that comes next, read but not taken; "" at the end."""
        self._skip_blanks()
        if self.place >= len(self.text):
            return ""
        return self._operator() or self.text[self.place : self.word_end(self.place)]

    def program(self, ends: frozenset[str]) -> Program:
        """Commands up to one of these words or operators, which is left."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.refusal("it is nested too deeply")
        jobs: list[Job] = []
        ended = 0
        while True:
            self._skip_blanks()
            if not ends and self.token() in ("", "\n"):
                jobs[ended:] = [replace(job, end=self.line) for job in jobs[ended:]]
                ended = len(jobs)
            self._newlines()
            token = self.token()
            if not token or token in ends:
                self._depth -= 1
                return tuple(jobs)
            pipelines = [("", self._pipeline())]
            while (operator := self.token()) in ("&&", "||"):
                self._take(operator)
                self._newlines()
                pipelines.append((operator, self._pipeline()))
            background = operator == "&"
            jobs.append(Job(tuple(pipelines), background))
            if operator in (";", "&"):
                self._take(operator)
            elif operator not in ("", "\n", *ends):
                raise self.refusal(f"{operator!r} after a command")

    def word_end(self, place: int) -> int:
        """Where the word at `place` ends: at the first metacharacter outside all quotes."""
        text = self.text
        while place < len(text):
            character = text[place]
            if text.startswith(("<(", ">("), place):
                place = self._substitution_end(place + 2)
            elif character in _META:
                break
            else:
                place = self.unit_end(place)
        return place

    def unit_end(self, place: int) -> int:
        """Where the character, quotation or expansion at `place` ends."""
        text = self.text
        character = text[place]
        if character == "\\":
            return min(place + 2, len(text))
        if character == "'":
            return self._find("'", place + 1)
        if character == '"':
            return self.double_quote_end(place)
        if character == "`":
            return self._backquote_end(place)
        if character == "$":
            if text.startswith("$'", place):
                return self._ansi_end(place)
            if text.startswith('$"', place):
                return self.double_quote_end(place + 1)
            return self.expansion_end(place)
        return place + 1

    def double_quote_end(self, place: int) -> int:
        """Where the `"…"` at `place` ends."""
        place += 1
        while place < len(self.text):
            character = self.text[place]
            if character == '"':
                return place + 1
            if character == "\\":
                place += 2
            elif character == "`":
                place = self._backquote_end(place)
            elif character == "$":
                place = self.expansion_end(place)
            else:
                place += 1
        raise self.refusal('a " is never closed')

    def expansion_end(self, place: int) -> int:
        """Where the expansion of the `$` at `place` ends: behind the `$` where there is none."""
        if ("$", place) not in self._ends:
            self._depth += 1
            if self._depth > _DEEPEST:
                raise self.refusal("it is nested too deeply")
            self._ends["$", place] = self._expansion_end(place)
            self._depth -= 1
        return self._ends["$", place]

    def _expansion_end(self, place: int) -> int:
        text = self.text
        if text.startswith("$((", place):
            end = self.arithmetic_end(place + 3)
            if end:
                return end
        if text.startswith("$(", place):
            return self._substitution_end(place + 2)
        if text.startswith("${", place):
            return self._brace_end(place + 2)
        if text.startswith("$[", place):
            raise self.refusal("$[…] is not read")
        name = _NAME.match(text, place + 1)
        if name:
            return name.end()
        return place + 2 if text[place + 1 : place + 2] in set("0123456789?#@*$!-") else place + 1

    def _operator(self) -> str:
        for operator in _OPERATORS:
            if self.text.startswith(operator, self.place):
                if operator in "<>" and self.text.startswith("(", self.place + 1):
                    return ""
                return operator
        return ""

    def _skip_blanks(self) -> None:
        while self.place < len(self.text):
            if self.text[self.place] in " \t":
                self.place += 1
            elif self.text.startswith("\\\n", self.place):
                self.place, self.line = self.place + 2, self.line + 1
            elif self.text[self.place] == "#":
                comment = _COMMENT.match(self.text, self.place)
                self.place = comment.end() if comment else self.place
            else:
                return

    def _take(self, token: str) -> None:
        """Goes behind the token, and behind the here-documents that stand after a newline."""
        self.line += token.count("\n")
        behind = self._documents.get(self.place) if token == "\n" else None
        self.place += len(token)
        if behind is not None:
            self.line += self.text.count("\n", self.place, behind)
            self.place = behind

    def _newlines(self) -> None:
        while self.token() == "\n":
            self._take("\n")

    def _word(self) -> str:
        token = self.token()
        if not token or self._operator():
            raise self.refusal("a word is missing")
        self._take(token)
        return token

    def _expect(self, *tokens: str) -> str:
        token = self.token()
        if token not in tokens:
            raise self.refusal(f"{' or '.join(tokens)} is missing")
        self._take(token)
        return token

    def _pipeline(self) -> Pipeline:
        negated = False
        while self.token() == "!":
            self._take("!")
            negated = not negated
        stages, merged = [self._command()], []
        while (operator := self.token()) in ("|", "|&"):
            self._take(operator)
            self._newlines()
            merged.append(operator == "|&")
            stages.append(self._command())
        return Pipeline(tuple(stages), tuple(merged), negated)

    def _command(self) -> Command:
        token = self.token()
        if token in ("coproc", "time", "select"):
            raise self.refusal(f"{token} is beyond it")
        compound = self._compound(token)
        if compound is None:
            return self._simple()
        redirects: list[Redirect] = []
        while self._redirect(redirects):
            pass
        if redirects and isinstance(compound, Function):
            raise self.refusal("redirections of a function are beyond it")
        return Redirected(compound, tuple(redirects)) if redirects else compound

    def _compound(self, token: str) -> Command | None:
        line, start = self.line, self.place
        if token == "{":
            self._take(token)
            return Group(self._body("}"), subshell=False, line=line)
        if token == "(":
            if self.text.startswith("((", self.place):
                end = self.arithmetic_end(self.place + 2)
                if end:
                    self._take(self.text[self.place : end])
                    return Verbatim(self.text[start:end], line)
            self._take(token)
            return Group(self._body(")"), subshell=True, line=line)
        if token == "[[":
            return self._conditional()
        if token == "if":
            return self._if()
        if token in ("while", "until"):
            self._take(token)
            condition = self._body("do")
            return While(condition, self._body("done"), token == "while")
        if token == "for":
            return self._for()
        if token == "case":
            return self._case()
        if token in RESERVED and token != "function" and token not in ("in", "]]"):
            raise self.refusal(f"{token} begins no command")
        return self._function(token)

    def _body(self, end: str) -> Program:
        body = self.program(frozenset({end}))
        if not body:
            raise self.refusal("a command is missing")
        self._expect(end)
        return body

    def _if(self) -> If:
        branches: list[tuple[Program, Program]] = []
        otherwise: Program = ()
        token = "if"
        while token in ("if", "elif"):
            self._take(token) if token == "if" else None
            condition = self._body("then")
            then = self.program(frozenset({"elif", "else", "fi"}))
            if not then:
                raise self.refusal("a command is missing")
            branches.append((condition, then))
            token = self._expect("elif", "else", "fi")
        if token == "else":
            otherwise = self._body("fi")
        return If(tuple(branches), otherwise)

    def _for(self) -> Command:
        line = self.line
        self._take("for")
        self._skip_blanks()
        if self.text.startswith("((", self.place):
            end = self.arithmetic_end(self.place + 2)
            parts = self.text[self.place + 2 : end - 2].split(";")
            if not end or len(parts) != 3:
                raise self.refusal("for ((…)) is not read")
            self._take(self.text[self.place : end])
            self._separator()
            self._expect("do")
            return Counting((parts[0], parts[1], parts[2]), self._body("done"), line)
        name = self._word()
        if not _NAME.fullmatch(name):
            raise self.refusal(f"{name!r} is no name")
        words: list[str] | None = None
        self._newlines()
        if self.token() == "in":
            self._take("in")
            words = []
            while self.token() not in ("", ";", "\n"):
                words.append(self._word())
        self._separator()
        self._expect("do")
        return For(name, None if words is None else tuple(words), self._body("done"), line)

    def _separator(self) -> None:
        if self.token() == ";":
            self._take(";")
        self._newlines()

    def _case(self) -> Case:
        line = self.line
        self._take("case")
        word = self._word()
        self._newlines()
        self._expect("in")
        items: list[tuple[tuple[str, ...], Program, str]] = []
        self._newlines()
        while self.token() != "esac":
            if self.token() == "(":
                self._take("(")
            patterns = [self._word()]
            while self.token() == "|":
                self._take("|")
                patterns.append(self._word())
            self._expect(")")
            body = self.program(frozenset({";;", ";&", ";;&", "esac"}))
            end = ";;"
            if self.token() != "esac":
                end = self._expect(";;", ";&", ";;&")
            items.append((tuple(patterns), body, end))
            self._newlines()
        self._take("esac")
        return Case(word, tuple(items), line)

    def _conditional(self) -> Verbatim:
        line, start = self.line, self.place
        self._take("[[")
        while (token := self.token()) != "]]":
            if not token or token in (";", "&", "|"):
                raise self.refusal("]] is missing")
            self._take(token)
        self._take("]]")
        return Verbatim(self.text[start : self.place], line)

    def _function(self, token: str) -> Function | None:
        start, line = self.place, self.line
        if token == "function":
            self._take(token)
            name = self._word()
            if self.token() == "(":
                self._take("(")
                self._expect(")")
        else:
            if self._operator() or _VARIABLE_DESCRIPTOR.match(self.text, self.place):
                return None
            end = self.place + len(token)
            if not _PARENTHESES.match(self.text, end):
                return None
            self._take(token)
            self._expect("(")
            self._expect(")")
            name = token
        self._newlines()
        body = self._command()
        if isinstance(body, Simple) or not re.fullmatch(r"[\w.:-]+", name):
            self.place, self.line = start, line
            raise self.refusal("this definition of a function is not read")
        return Function(name, body, self.text[start : self.place], line)

    def _simple(self) -> Command:
        assignments: list[str] = []
        words: list[str] = []
        redirects: list[Redirect] = []
        self.token()
        line = self.line
        while True:
            if self._redirect(redirects):
                continue
            token = self.token()
            if not token or self._operator():
                break
            is_assignment = not words and _ASSIGNMENT.match(token)
            if is_assignment and self.text.startswith("(", self.place + len(token)):
                raise self.refusal("arrays are beyond it")
            self._take(token)
            (assignments if is_assignment else words).append(token)
        if not (assignments or words or redirects):
            raise self.refusal("a command is missing")
        if self.token() == "(":
            raise self.refusal("( after a word")
        return Simple(tuple(assignments), tuple(words), tuple(redirects), line)

    def _redirect(self, redirects: list[Redirect]) -> bool:
        """Takes a redirection where one comes next; whether one did."""
        self._skip_blanks()
        if _VARIABLE_DESCRIPTOR.match(self.text, self.place):
            raise self.refusal("descriptors in variables are beyond it")
        number = _DIGITS.match(self.text, self.place)
        before = self.place
        if number:
            self.place = number.end()
        operator = self._operator()
        if operator not in _REDIRECTING:
            self.place = before
            return False
        if number and operator in ("&>", "&>>"):
            raise self.refusal("a number before &>")
        if number and len(number[0]) > _MOST_DIGITS:
            raise self.refusal("no descriptor has such a number")
        descriptor = int(number[0]) if number else None
        self._take(operator)
        word = self._word()
        if operator in ("<<", "<<-"):
            quoted = any(mark in word for mark in "'\"\\")
            delimiter = re.sub(r"\\(.)|['\"]", r"\1", word)
            text = self._document(delimiter, tabs=operator == "<<-")
            redirects.append(Redirect(descriptor, "<<", text, quoted))
        else:
            redirects.append(Redirect(descriptor, operator, word))
        return True

    def _document(self, delimiter: str, *, tabs: bool) -> str:
        """The here-document that stands behind this line, and those before it."""
        newline = self.text.find("\n", self.place)
        place = self._documents.get(newline, newline + 1) if newline >= 0 else len(self.text)
        lines: list[str] = []
        while place < len(self.text):
            end = self.text.find("\n", place)
            end = len(self.text) if end < 0 else end
            line, place = self.text[place:end], min(end + 1, len(self.text))
            line = line.lstrip("\t") if tabs else line
            if line == delimiter:
                self._documents[newline] = place
                return "".join(lines)
            lines.append(line + "\n")
        raise self.refusal(f"the here-document {delimiter} never ends")

    def _find(self, mark: str, place: int) -> int:
        end = self.text.find(mark, place)
        if end < 0:
            raise self.refusal(f"a {mark} is never closed")
        return end + 1

    def _ansi_end(self, place: int) -> int:
        match = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL).match(self.text, place)
        if not match:
            raise self.refusal("a $' is never closed")
        return match.end()

    def _backquote_end(self, place: int) -> int:
        match = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL).match(self.text, place)
        if not match:
            raise self.refusal("a ` is never closed")
        return match.end()

    def _substitution_end(self, place: int) -> int:
        if ("(", place) not in self._ends:
            inner = Reader(self.text, place)
            inner.line, inner._depth, inner._ends = self.line, self._depth, self._ends
            inner.program(frozenset({")"}))
            if inner.token() != ")":
                raise self.refusal("a $( is never closed")
            self._ends["(", place] = inner.place + 1
        return self._ends["(", place]

    def _brace_end(self, place: int) -> int:
        while place < len(self.text):
            if self.text[place] == "}":
                return place + 1
            place = self.unit_end(place)
        raise self.refusal("a ${ is never closed")

    def arithmetic_end(self, place: int) -> int:
        """Behind the `))` of what begins here; 0 where it is none."""
        nesting = 0
        while place < len(self.text):
            character = self.text[place]
            if character == "(":
                nesting += 1
            elif character == ")":
                if not nesting:
                    return place + 2 if self.text.startswith("))", place) else 0
                nesting -= 1
            elif character in "'\"\\`$":
                place = self.unit_end(place)
                continue
            place += 1
        return 0
