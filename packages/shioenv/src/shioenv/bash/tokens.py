"""A tokenizer for operators, reserved words, words and here-documents."""

from __future__ import annotations

import re

from shioenv.bash.builtins import KEYWORDS
from shioenv.bash.program import Job, Redirect, Simple
from shioenv.bash.scan import Scanner

_OPERATORS = (
    *("&>>", "<<<", "<<-", ";;&", "&&", "||", ";;", ";&", "|&", "&>", ">>", "<<", ">|", "<>"),
    *("<&", ">&", ";", "&", "|", "(", ")", "<", ">", "\n"),
)
_BY_FIRST = {
    first: tuple(operator for operator in _OPERATORS if operator[0] == first)
    for first in "&<;|>()\n"
}
_DESCRIPTOR = re.compile(r"([0-9]{1,9}|\{[A-Za-z_]\w*(\[[^]\s]*\])?\})(?=[<>])(?![<>]\()", re.ASCII)
_COMMENT = re.compile(r"#[^\n]*")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)*")
_LINE = re.compile(r"[^\n]*\n?")
_JOINED_LINE = re.compile(r"(?:[^\\\n]|\\.?)*\n?", re.DOTALL)
BEFORE_RESERVED = frozenset(
    {
        *("", "$(", "\n", ";", "&", "|", "|&", "&&", "||", "(", ")", ";;", ";&", ";;&", "((…))"),
        *("!", "{", "}", "do", "done", "elif", "else", "esac", "fi", "if", "then", "time"),
        *("coproc", "until", "while", "]]"),
    }
)
"""Tokens after which a word may be a reserved word."""
_BEFORE_TIME = BEFORE_RESERVED - {
    *("$(", "|", "|&", "}", "done", "esac", "fi", "coproc", "]]", "((…))")
}


class Tokens(Scanner):
    """Reads a text token by token; `place` is the next token, or blanks before it."""

    def __init__(
        self, text: str, place: int = 0, around: Tokens | None = None, *, extended: bool = False
    ) -> None:
        super().__init__(text, place, around, extended=extended)
        self._last, self._before_last = "$(" if around else "", ""
        """The last two tokens: each an operator, a reserved word, or `word`."""
        self._inner = around is not None
        """Whether this text is inside brackets: a `)` ends it and its here-documents."""
        self._pending: list[tuple[Redirect, str, bool]] = []
        """Here-documents whose text follows the next newline."""
        self.open_document: str | None = None
        """The newest here-document's delimiter, if the document is ended by the end of the text."""

    def peek(self) -> str:
        """Return the next operator or word without consuming it; "" at the end."""
        self._skip_blanks()
        if self.place >= len(self.text):
            return ""
        return self._operator() or self.text[self.place : self.word_end(self.place)]

    def _skip_blanks(self) -> None:
        match = _BLANKS.match(self.text, self.place)
        self.place = match.end() if match else self.place
        if self.text.startswith("#", self.place):
            comment = _COMMENT.match(self.text, self.place)
            self.place = comment.end() if comment else self.place

    def _operator(self) -> str:
        text, place = self.text, self.place
        for operator in _BY_FIRST.get(text[place : place + 1], ()):
            if text.startswith(operator, place):
                if operator in "<>" and text.startswith("(", place + 1):
                    return ""
                return operator
        return ""

    def _reserved(self) -> str:
        """Return the next token if it is a reserved word, else ""."""
        if self._last not in BEFORE_RESERVED and not (
            self._last == "word" and self._before_last in ("coproc", "function")
        ):
            return ""
        token = self.peek()
        if token not in KEYWORDS:
            return ""
        if token == "time" and (
            self._last not in _BEFORE_TIME or (self._last == "\n" and self._before_last == "|")
        ):
            return ""
        return token

    def _took(self, token: str, kind: str = "") -> None:
        """Consume `token`, which comes next, and remember its `kind`."""
        if token == "\n":
            self.place += 1
            self._read_documents()
            if self._last != "\n":
                self._before_last = self._last
        else:
            self.place += len(token)
            self._before_last = self._last
        self._last = kind or token

    def _ends_here(self, ends: frozenset[str]) -> bool:
        """Whether one of the operators or reserved words in `ends` comes next."""
        token = self.peek()
        return token in ends and (bool(self._operator()) or bool(self._reserved()))

    def _newlines(self) -> None:
        while self.peek() == "\n":
            self._took("\n")

    def _word(self) -> str:
        token = self.peek()
        if not token or self._operator() or self._descriptor():
            raise self.refusal("a word is missing")
        self._took(token, "word")
        return token

    def _descriptor(self) -> str:
        """Return the number or `{name}` directly before a redirection's operator, or ""."""
        found = _DESCRIPTOR.match(self.text, self.place)
        return found[0] if found else ""

    def _expect(self, *tokens: str) -> str:
        token = self.peek()
        if token not in tokens:
            raise self.refusal(f"{' or '.join(tokens)} is missing")
        self._took(token)
        return token

    def _expect_reserved(self, *tokens: str) -> str:
        token = self._reserved()
        if token not in tokens:
            raise self.refusal(f"{' or '.join(tokens)} is missing")
        self._took(token)
        return token

    # ---- here-documents ----

    def _read_documents(self) -> None:
        """Read the texts of the pending here-documents, which begin here."""
        pending, self._pending = self._pending, []
        for number, (document, delimiter, tabs) in enumerate(pending, 1):
            text, ended = self._document(delimiter, tabs=tabs, quoted=document.quoted)
            object.__setattr__(document, "target", text)  # the object is not shared yet
            object.__setattr__(document, "ended", ended)
            self.open_document = None if ended else delimiter
            within = ended and self.place < len(self.text) and self.text[self.place - 1] != "\n"
            if within and number < len(pending):
                raise self.refusal("a here-document ends within a line before another one")

    def _document(self, delimiter: str, *, tabs: bool, quoted: bool) -> tuple[str, bool]:
        """Return the text up to the delimiter's line, and whether there is such a line.

        In a substitution, a line that begins with the delimiter and contains a `)` also ends the
        document. Parsing continues directly after that delimiter.
        """
        lines: list[str] = []
        joint = "" if quoted else r"(?:\\\n)*"
        last = "".join(joint + re.escape(character) for character in delimiter)
        # with `<<-`, a delimiter that begins with tabs must be the whole line
        ending = re.compile(rf"(?>(?:{joint}\t)*){last}|{last}(?=\n?\Z)" if tabs else last)
        while self.place < len(self.text):
            start = self.place
            self.place = self._line_end(quoted=quoted)
            line = self.text[start : self.place]
            if found := ending.match(line):
                rest = line[found.end() :]
                if (rest if quoted else rest.replace("\\\n", "")) in ("", "\n"):
                    return "".join(lines), True
                if self._inner and ")" in rest:
                    self.place = start + found.end()
                    return "".join(lines), True
            line = line.lstrip("\t") if tabs else line
            lines.append(line if line.endswith("\n") else line + "\n")
        return "".join(lines), False

    def _line_end(self, *, quoted: bool) -> int:
        """Return the end of the current line.

        Unless `quoted`, a backslash at the end of a line continues it on the next line.
        """
        pattern = _LINE if quoted else _JOINED_LINE
        match = pattern.match(self.text, self.place)
        return match.end() if match else len(self.text)


def extends(job: Job, before: bool) -> bool:
    """Whether extended patterns are permitted after a job; `before`: whether they are before it."""
    for _, pipeline in job.pipelines:
        command = pipeline.stages[0] if len(pipeline.stages) == 1 else None
        words = command.words if isinstance(command, Simple) else ()
        if words[:1] == ("shopt",) and "extglob" in words:
            before = "-s" in words or ("-u" not in words and before)
    return before
