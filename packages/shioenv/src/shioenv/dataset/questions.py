"""Lists of inputs to be run, each with its initial state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from shioenv.bash.normal import is_single
from shioenv.errors import SuiteError, UsageError
from shioenv.files.documents import parse_json
from shioenv.files.regular import LARGEST_LIST, lines_of, read_regular

PUBLIC = "public"
"""The inputs that come with the package; `public-dev` and `public-test` are its halves."""

STEPS = ("single", "multi")
_KEYS = ("id", "input", "cwd", "kind", "steps", "history")


@dataclass(frozen=True)
class Question:
    """An input with its initial state."""

    id: str
    input: str
    cwd: str | None = None
    """The start directory, or None for the system's first one."""
    kind: str | None = None
    """The kind of the input's source, as named in its file."""
    steps: str = "single"
    """One of `STEPS`."""
    history: tuple[str, ...] = ()
    """The inputs that were typed before in the same shell, oldest first."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of the input in the file."""

    def to_json(self) -> dict[str, Any]:
        """Return the question as a line of a file; `question_of` parses it."""
        known = {name: getattr(self, name) for name in _KEYS}
        known["history"] = list(self.history) or None
        return {name: value for name, value in known.items() if value is not None} | dict(
            self.extra
        )


def question_of(document: Mapping[str, Any], number: int, source: str) -> Question:
    """Parse the JSON object of a line. Errors: SuiteError, which names the line."""

    def wrong(what: str) -> SuiteError:
        return SuiteError(f"{source}:{number}: {what}")

    text = document.get("input")
    if not isinstance(text, str) or "\0" in text:
        raise wrong(f"expected text as `input`, got {text!r:.60}")
    history = document.get("history") or ()
    if not isinstance(history, list | tuple) or not all(isinstance(one, str) for one in history):
        raise wrong(f"expected a list of texts as `history`, got {history!r:.60}")
    steps = document.get("steps") or ("single" if is_single(text) else "multi")
    if steps not in STEPS:
        raise wrong(f"expected single or multi as `steps`, got {steps!r:.60}")
    for name in ("cwd", "kind"):
        if not isinstance(document.get(name), str | None):
            raise wrong(f"expected text as `{name}`, got {document[name]!r:.60}")
    return Question(
        id=str(document.get("id") or number),
        input=text,
        cwd=document.get("cwd"),
        kind=document.get("kind"),
        steps=steps,
        history=tuple(history),
        extra={name: value for name, value in document.items() if name not in _KEYS},
    )


def read_questions(inputs: str | Path) -> list[Question]:
    """Read the inputs of a file, or the shipped `public`, `public-dev` or `public-test`.

    There is one input per line. A line is plain text, or a JSON object with `input`, and optionally
    `id`, `cwd`, `kind`, `steps` and `history`. Empty lines and lines that begin with `#` are
    skipped.

    If the file has no `steps`, they are `single` for one command without operator, redirection or
    substitution, else `multi`. Errors: SuiteError for a file that cannot be read or has no inputs,
    and for a line that is no input. SuiteError for two inputs with equal ids. UsageError for a name
    such as `public-x` that is not a file.
    """
    questions = list(_read(inputs))
    if not questions:
        raise SuiteError(
            f"{inputs} has no inputs", hint="write one input per line, as text or JSON"
        )
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise SuiteError(f"{inputs}: two inputs have the id {question.id}")
        seen.add(question.id)
    return questions


def _read(inputs: str | Path) -> Iterator[Question]:
    name = str(inputs)
    if name.split("-")[0] == PUBLIC and not Path(name).exists():
        part = name.removeprefix(PUBLIC).removeprefix("-")
        if part not in ("", "dev", "test"):
            raise UsageError(
                f"unknown set of inputs {name}", hint="known: public, public-dev, public-test"
            )
        lines = _lines(files("shioenv.dataset").joinpath("inputs/public.jsonl"), name)
        for question in _questions(lines, name):
            if part in ("", question.extra.get("split")):
                yield question
        return
    yield from _questions(_lines(Path(inputs), name), name)


def _lines(path: Any, name: str) -> list[str]:
    try:
        own = not isinstance(path, Path)  # packaged in an archive
        content = path.read_bytes() if own else read_regular(path, LARGEST_LIST)
        return lines_of(content.decode("utf-8-sig"))
    except OSError as error:
        raise SuiteError(f"{name} cannot be read: {error.strerror}", named=error) from None
    except UnicodeDecodeError:
        raise SuiteError(f"{name} is not UTF-8") from None


def _questions(lines: Iterable[str], source: str) -> Iterator[Question]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if line.startswith("{"):
            try:
                document = parse_json(line)
                json.dumps(document, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise SuiteError(
                    f"{source}:{number}: invalid Unicode: a JSON escape names a lone surrogate"
                ) from None
            except ValueError:
                document = None
            if isinstance(document, dict) and "input" in document:
                yield question_of(document, number, source)
                continue
            if document is not None or line.startswith('{"'):
                raise SuiteError(
                    f"{source}:{number}: expected a JSON object with `input`: {line[:60]!r}"
                )
        if not line.lstrip().startswith("#"):
            yield question_of({"input": line}, number, source)
