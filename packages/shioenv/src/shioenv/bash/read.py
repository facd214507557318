"""A parser for Bash programs, by the grammar and the lexical rules of Bash 5.2.

The parser accepts and refuses the same texts as `bash -n`. It follows non-interactive shells: there
are no aliases. As in `bash -c`, extended patterns are accepted only in `[[ … ]]`, and after a line
that runs `shopt -s extglob`. As in Bash, the contents of backquotes, `$((…))`, `${…}` and
here-documents are parsed at expansion.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from shioenv.bash.builtins import WITH_ARRAYS
from shioenv.bash.program import (
    Case,
    Command,
    Coprocess,
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
    Source,
    Substitution,
    Verbatim,
    While,
)
from shioenv.bash.scan import META, Refused
from shioenv.bash.tokens import BEFORE_RESERVED, Tokens, extends
from shioenv.bash.words import unquoted
from shioenv.errors import InputError

_REDIRECTING = frozenset({"<", ">", ">>", ">|", "<>", "<&", ">&", "&>", "&>>", "<<<", "<<", "<<-"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[.*\])?\+?=", re.ASCII | re.DOTALL)
_ENDING = frozenset({"}", "do", "done", "elif", "else", "esac", "fi", "then"})
"""Keywords that end a command when they follow `coproc` and one word."""
_UNARY = re.compile(r"-[abcdefghknoprstuvwxzGLNORS]")
_BINARY = frozenset(
    {"=", "==", "!=", "=~", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"}
)


@lru_cache(maxsize=1024)
def read(text: str, *, extended: bool = False) -> Source:
    """Parse a text as `bash -c` does; `extended`: with extended patterns, as in `@(a|b)`.

    Errors: Refused if Bash refuses the text or the text is nested too deeply. InputError for a text
    that cannot be encoded as bytes.
    """
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InputError(f"the input cannot be encoded: {error}") from None
    reader = Reader(text, extended=extended)
    try:
        program = reader.whole()
    except RecursionError:
        raise reader.refusal("it is nested too deeply") from None
    return Source(
        text,
        program,
        tuple(reader.substitutions[place] for place in sorted(reader.substitutions)),
        tuple(sorted(((name, at) for at, name in reader.expansions.items()), key=lambda x: x[1])),
    )


class Reader(Tokens):
    """A parser of commands that starts at an offset of a text."""

    def _read_inner(self, place: int, *, kept: bool) -> int:
        inner = Reader(self.text, place + 2, self)
        try:
            program = inner.program(frozenset({")"}))
            if inner.peek() != ")":
                raise inner.refusal("a $( is never closed")
        except Refused:
            if kept:
                self._first.shortened = None
                return 0
            raise
        end = inner.place + 1
        self.substitutions[place] = Substitution(program, start=place, end=end)
        return end

    def _read_backquoted(self, place: int, end: int) -> None:
        text = re.sub(r"\\([`\\$])", r"\1", self.text[place + 1 : end - 1])
        self.substitutions[place] = Substitution((), start=place, end=end)
        with suppress(Refused, RecursionError), self._deeper():
            inner = Reader(text)
            inner._depth = self._depth
            program, shift = inner.whole(), place + 1
            self.substitutions[place] = Substitution(program, shift, start=place, end=end)
            for at, one in inner.substitutions.items():
                self.substitutions[shift + at] = replace(
                    one, shift=one.shift + shift, start=one.start + shift, end=one.end + shift
                )
            self.expansions |= {shift + at: name for at, name in inner.expansions.items()}

    # ---- lists and pipelines ----

    def whole(self) -> Program:
        """Parse all commands of the text and set the `end` of each job."""
        program = self.program(frozenset())
        if token := self.peek():
            raise self.refusal(f"{token!r} cannot begin a command")
        self._read_documents()
        return program

    def program(self, ends: frozenset[str]) -> Program:
        """Parse commands up to one of the words or operators in `ends`, which is not consumed."""
        with self._deeper():
            return self._program(ends)

    def _program(self, ends: frozenset[str]) -> Program:
        jobs: list[Job] = []
        ended = 0
        first: int | None = None
        while True:
            if not ends and self.peek() in ("", "\n"):
                line = self.line(self.place)
                jobs[ended:] = [replace(job, end=line) for job in jobs[ended:]]
                for job in jobs[ended:]:
                    self._first.extended = extends(job, self._first.extended)
                ended = len(jobs)
            self._newlines()
            if not self.peek() or self._ends_here(ends):
                if ends:
                    self._shorten(first, ":")
                return tuple(jobs)
            if first is None and not self._pending:
                first = self.place
            pipelines = [("", self._pipeline())]
            while (operator := self.peek()) in ("&&", "||"):
                self._took(operator)
                self._newlines()
                pipelines.append((operator, self._pipeline()))
            jobs.append(Job(tuple(pipelines), operator == "&"))
            if operator in (";", "&"):
                self._took(operator)
            elif operator not in ("", "\n") and not self._ends_here(ends):
                raise self.refusal(f"{operator!r} after a command")

    def _shorten(self, first: int | None, instead: str) -> None:
        """Set `shortened` if the text has ended.

        The caller guarantees that all parts from `first` on are complete.
        """
        at_end = self.place >= len(self.text) and self.open_document is None
        if first is not None and at_end:
            self._first.shortened = first, instead

    def _pipeline(self) -> Pipeline:
        negated = timed = alone = False
        self.peek()
        start = self.place
        while (token := self._reserved()) in ("!", "time"):
            self._took(token)
            alone = True
            if token == "!":
                negated = not negated
                continue
            timed = True
            for option in ("-p", "--"):
                if self.peek() == option:
                    self._took(option, "time")
        if alone and self.peek() in ("", "\n", ";"):
            return Pipeline((), (), negated, timed, start=start, end=self.place)
        stages, merged = [self._command()], []
        while (operator := self.peek()) in ("|", "|&"):
            self._took(operator)
            self._newlines()
            merged.append(operator == "|&")
            if (token := self._reserved()) in ("!", "time"):
                raise self.refusal(f"{token} after a pipe")
            stages.append(self._command())
        end = stages[-1].end
        return Pipeline(tuple(stages), tuple(merged), negated, timed, start=start, end=end)

    # ---- commands ----

    def _command(self) -> Command:
        self.peek()
        start, line = self.place, self.line(self.place)
        reserved = self._reserved()
        if reserved == "coproc":
            return self._coprocess(start, line)
        compound = self._compound(reserved, start, line)
        if compound is None:
            return self._simple()
        return compound if isinstance(compound, Function) else self._redirected(compound)

    def _redirected(self, compound: Command) -> Command:
        redirects: list[Redirect] = []
        while self._redirect(redirects):
            pass
        if not redirects:
            return compound
        return Redirected(compound, tuple(redirects), start=compound.start, end=redirects[-1].end)

    def _coprocess(self, start: int, line: int) -> Coprocess:
        self._took("coproc")
        name = "COPROC"
        body: Command | None = None
        self.peek()
        if not self._reserved() and self._operator() != "(":
            place, last = self.place, (self._last, self._before_last)
            token = self.peek()
            if token and not self._operator() and not _ASSIGNMENT.match(token):
                self._took(token, "word")
                end = self.place
                self.peek()
                if self._reserved() in _ENDING:
                    body = Simple(
                        (), (token,), (), self.line(place), places=(place,), start=place, end=end
                    )
                    return Coprocess(name, body, line, start=start, end=end)
                if self._reserved() not in ("", "coproc", "!", "time") or self._operator() == "(":
                    name = token
                    inner, at = self.place, self.line(self.place)
                    body = self._compound(self._reserved(), inner, at, definitions=False)
            if body is None:
                self.place, (self._last, self._before_last) = place, last
                body = self._simple()
                return Coprocess(name, body, line, start=start, end=body.end)
        else:
            body = self._compound(
                self._reserved(), self.place, self.line(self.place), definitions=False
            )
        if body is None:
            raise self.refusal("a command is missing")
        body = self._redirected(body)
        return Coprocess(name, body, line, start=start, end=body.end)

    def _compound(
        self, reserved: str, start: int, line: int, *, definitions: bool = True
    ) -> Command | None:
        if reserved == "{":
            self._took(reserved)
            body = self._body("}")
            return Group(body, subshell=False, line=line, start=start, end=self.place)
        if self._operator() == "(":
            return self._parenthesis(start, line)
        if reserved == "[[":
            return self._conditional(start, line)
        if reserved == "if":
            return self._if(start)
        if reserved in ("while", "until"):
            self._took(reserved)
            condition = self._body("do")
            body = self._body("done")
            wanted = reserved == "while"
            return While(condition, body, wanted, start=start, end=self.place)
        if reserved in ("for", "select"):
            return self._for(reserved, start, line)
        if reserved == "case":
            return self._case(start, line)
        if reserved and reserved != "function":
            raise self.refusal(f"{reserved} cannot begin a command")
        return self._function(reserved, start, line) if definitions else None

    def _parenthesis(self, start: int, line: int) -> Command:
        if self.text.startswith("((", start) and self._last in BEFORE_RESERVED:
            self._closed(start + 2, "(", ")")  # Bash scans to the `)` before it decides
            end = self.arithmetic_end(start + 2)
            if end:
                self._took(self.text[start:end], "((…))")
                return Verbatim(self.text[start:end], line, start=start, end=end)
        self._took("(")
        body = self._body(")")
        return Group(body, subshell=True, line=line, start=start, end=self.place)

    def _body(self, end: str) -> Program:
        body = self.program(frozenset({end}))
        if not body:
            raise self.refusal("a command is missing")
        if not self._ends_here(frozenset({end})):
            raise self.refusal(f"{end} is missing")
        self._took(end)
        return body

    def _if(self, start: int) -> If:
        branches: list[tuple[Program, Program]] = []
        otherwise: Program = ()
        token = "if"
        self._took(token)
        while token in ("if", "elif"):
            condition = self._body("then")
            then = self.program(frozenset({"elif", "else", "fi"}))
            if not then:
                raise self.refusal("a command is missing")
            branches.append((condition, then))
            token = self._expect_reserved("elif", "else", "fi")
        if token == "else":
            otherwise = self._body("fi")
        return If(tuple(branches), otherwise, start=start, end=self.place)

    def _for(self, reserved: str, start: int, line: int) -> Command:
        self._took(reserved)
        self._skip_blanks()
        if reserved == "for" and self.text.startswith("((", self.place):
            return self._counting(start, line)
        name = self._word()
        words: list[str] | None = None
        places: list[int] = []
        if self.peek() == ";":
            self._took(";")
            self._newlines()
        else:
            self._newlines()
            if self.peek() == "in":
                self._took("in")
                words = []
                while (token := self.peek()) not in ("", ";", "\n"):
                    if self._operator():
                        raise self.refusal(f"{token!r} among words")
                    places.append(self.place)
                    words.append(self._word())
                if self.peek() == ";":
                    self._took(";")
                self._newlines()
        body = self._loop_body()
        return For(
            name, None if words is None else tuple(words), body, line, reserved == "select",
            places=tuple(places), start=start, end=self.place,
        )  # fmt: skip

    def _loop_body(self) -> Program:
        """Parse `do …; done` or `{ …; }`. Here `do` and `{` are reserved words after any token."""
        token = self.peek()
        if token not in ("do", "{"):
            raise self.refusal("do is missing")
        self._took(token)
        return self._body("done" if token == "do" else "}")

    def _counting(self, start: int, line: int) -> Counting:
        self._closed(self.place + 2, "(", ")")
        end = self.arithmetic_end(self.place + 2)
        parts = self._expressions(self.place + 2, end - 2) if end else []
        if len(parts) != 3:
            raise self.refusal("for ((…)) has three expressions")
        self._took(self.text[self.place : end], "((…))")
        if self.peek() == ";":
            self._took(";")
        self._newlines()
        body = self._loop_body()
        expressions = (parts[0], parts[1], parts[2])
        return Counting(expressions, body, line, start=start, end=self.place)

    def _expressions(self, place: int, end: int) -> list[str]:
        """Split the text from `place` to `end` at unquoted semicolons."""
        parts, start = [], place
        while place < end:
            if self.text[place] == ";":
                parts.append(self.text[start:place])
                start = place + 1
            place = self.unit_end(place) if self.text[place] in "'\"\\`$" else place + 1
        return [*parts, self.text[start:end]]

    def _case(self, start: int, line: int) -> Case:
        self._took("case")
        word = self._word()
        self._newlines()
        self._expect("in")
        items: list[tuple[tuple[str, ...], Program, str]] = []
        self._newlines()
        first: int | None = None
        while self.peek() != "esac":
            self._shorten(first, "")
            if first is None and not self._pending:
                first = self.place
            if self.peek() == "(":
                self._took("(")
            patterns = [self._word()]
            while self.peek() == "|":
                self._took("|")
                patterns.append(self._word())
            self._expect(")")
            body = self.program(frozenset({";;", ";&", ";;&", "esac"}))
            end = ";;"
            if self._ends_here(frozenset({"esac"})):
                items.append((tuple(patterns), body, end))
                break
            end = self._expect(";;", ";&", ";;&")
            items.append((tuple(patterns), body, end))
            self._newlines()
        self._took("esac")
        return Case(word, tuple(items), line, start=start, end=self.place)

    def _function(self, reserved: str, start: int, line: int) -> Function | None:
        if reserved:
            self._took(reserved)
            name = self._word()
            if self.peek() == "(" and re.match(r"\((?:[ \t]|\\\n)*\)", self.text[self.place :]):
                self._took("(")
                self._expect(")")
        else:
            name = self.peek()
            if not name or self._operator() or self._descriptor() or _ASSIGNMENT.match(name):
                return None
            if not re.compile(r"(?:[ \t]|\\\n)*\(").match(self.text, self.place + len(name)):
                return None
            self._took(name, "word")
            self._expect("(")
            self._expect(")")
        self._newlines()
        self.peek()
        inner = self.place
        body = self._compound(self._reserved(), inner, self.line(inner), definitions=False)
        if body is None:
            raise self.refusal("the body of a function is missing")
        body = self._redirected(body)
        text = self.text[start : body.end]
        return Function(name, body, text, line, start=start, end=body.end)

    # ---- [[ … ]] ----

    def _conditional(self, start: int, line: int) -> Verbatim:
        self._took("[[")
        parts: list[str] = []
        self._condition(parts)
        if self.peek() != "]]":
            raise self.refusal("]] is missing")
        self._took("]]")
        text = self.text[start : self.place]
        return Verbatim(text, line, tuple(parts), start=start, end=self.place)

    def _condition(self, parts: list[str]) -> None:
        with self._deeper():
            while True:
                self._term(parts)
                self._newlines()
                if self.peek() not in ("&&", "||"):
                    return
                parts.append(self.peek())
                self._took(parts[-1])

    def _term(self, parts: list[str]) -> None:
        self._newlines()
        token = self.peek()
        if token == "!":
            parts.append(token)
            self._took(token)
            with self._deeper():
                self._term(parts)
            return
        if token == "(":
            parts.append(token)
            self._took(token)
            self._condition(parts)
            self._newlines()
            self._expect(")")
            parts.append(")")
            return
        if token == "]]" or not token or self._operator() or self._descriptor():
            raise self.refusal("an expression is missing")
        parts.append(token)
        self._took(token, "word")
        if _UNARY.fullmatch(token):
            if self.peek() in ("", "]]") or self._operator() or self._descriptor():
                raise self.refusal(f"{token} has no operand")
            parts.append(self.peek())
            self._took(parts[-1], "word")
            return
        operator = self.peek()
        if operator in ("]]", "&&", "||", ")"):
            return
        if operator not in _BINARY and operator not in ("<", ">"):
            raise self.refusal(f"{operator!r} is not an operator")
        parts.append(operator)
        self._took(operator, "word")
        self._skip_blanks()
        end = self.place if self._descriptor() else self._pattern_end(operator)
        if end == self.place or self.text[self.place : end] == "]]":
            raise self.refusal(f"{operator} has no operand")
        parts.append(self.text[self.place : end])
        self._took(parts[-1], "word")

    def _pattern_end(self, operator: str) -> int:
        """Return the end of an operator's operand: a regular expression, a pattern or a word."""
        text, place = self.text, self.place
        while place < len(text):
            character = text[place]
            if operator == "=~" and character in "(|":
                place = self._pattern_group_end(place + 1) if character == "(" else place + 1
            elif (
                operator in ("=", "==", "!=")
                and character in "?*+@!"
                and text.startswith("(", place + 1)
            ):
                place = self._pattern_group_end(place + 2)
            elif character in META and not (character in "<>" and text.startswith("(", place + 1)):
                break
            else:
                place = self.unit_end(place)
        return place

    # ---- simple commands ----

    def _simple(self) -> Command:
        assignments: list[str] = []
        words: list[str] = []
        places: list[int] = []
        redirects: list[Redirect] = []
        self.peek()
        start, line = self.place, self.line(self.place)
        end = start
        while True:
            if self._redirect(redirects):
                end = self.place
                continue
            if not self.peek() or self._operator():
                break
            may_assign = not words or words[0] in WITH_ARRAYS
            stop = self.word_end(self.place, subscript=may_assign)
            token = self.text[self.place : stop]
            if (
                may_assign
                and self.text.startswith("(", stop)
                and (found := _ASSIGNMENT.match(token))
                and found.end() == len(token)
            ):
                stop = self._array_end(stop)
                token = self.text[self.place : stop]
            places.append(self.place)
            is_assignment = not words and _ASSIGNMENT.match(token)
            self._took(token, "word")
            end = self.place
            (assignments if is_assignment else words).append(token)
        if not (assignments or words or redirects):
            raise self.refusal("a command is missing")
        if self.peek() == "(":
            alone = len(words) == 1 and not assignments and not redirects
            raise self.refusal("( after a word" if alone else "( after words")
        return Simple(
            tuple(assignments), tuple(words), tuple(redirects), line, places=tuple(places),
            start=start, end=end,
        )  # fmt: skip

    def _array_end(self, place: int) -> int:
        """Return the offset after an array's `)`; its elements are words on any number of lines."""
        inner = Reader(self.text, place + 1, self)
        inner._last = "array"
        first: int | None = None
        while (token := inner.peek()) != ")":
            if token == "\n":
                inner.place += 1
            elif not token:
                inner._shorten(first, "")
                raise inner.refusal("an array is never closed")
            elif inner._operator():
                raise inner.refusal(f"{token!r} among the elements of an array")
            else:
                end = inner.place
                first = end if first is None else first
                if inner.text[end] == "[":
                    with inner._deeper():
                        end = inner._subscript_end(end + 1)
                inner.place = inner.word_end(end)
        return inner.place + 1

    def _redirect(self, redirects: list[Redirect]) -> bool:
        """Parse a redirection, if one comes next; return whether there was one."""
        self._skip_blanks()
        start = self.place
        told = self._descriptor()
        descriptor = int(told) if told.isdigit() else told.strip("{}") or None
        self.place += len(told)
        operator = self._operator()
        if operator not in _REDIRECTING or (told and operator[0] == "&"):
            self.place = start
            return False
        self._took(operator)
        self._skip_blanks()
        word = ""
        if operator in ("<&", ">&"):
            word = "-" if self.text.startswith("-", self.place) else self._descriptor()
        if word:
            self._took(word, "word")
        else:
            word = self._word()
        if operator in ("<<", "<<-"):
            quoted = any(mark in word for mark in "'\"\\")
            document = Redirect(
                descriptor, "<<", "", quoted, ended=False, start=start, end=self.place
            )
            self._pending.append((document, unquoted(word), operator == "<<-"))
            redirects.append(document)
        else:
            redirects.append(Redirect(descriptor, operator, word, start=start, end=self.place))
        return True
