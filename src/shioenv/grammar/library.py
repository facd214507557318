"""Grammars by name: the shipped ones, and own ones beside them."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

from shioenv.errors import UnknownGrammarError, did_you_mean, nearest
from shioenv.grammar.check import check
from shioenv.grammar.examples import check_examples, check_values
from shioenv.grammar.faults import Fault, FaultyGrammarError
from shioenv.grammar.fitting import check_traits
from shioenv.grammar.load import Loaded, read_grammar, read_header
from shioenv.grammar.own import OwnGrammars, content_of
from shioenv.grammar.symbols import Grammar, Header

COMMANDS = Path(__file__).parent / "commands"


def names_of_grammars(
    directory: Path = COMMANDS, own: OwnGrammars | None = None
) -> tuple[str, ...]:
    """The names of all grammar files in `directory` and of all own grammars, sorted."""
    names = {path.stem for path in directory.glob("*.grammar")}
    return tuple(sorted(names.union(own.names if own else ())))


def load_grammar(
    name: str, *, versions: Mapping[str, str] | None = None, directory: Path = COMMANDS
) -> Grammar:
    """The grammar called `name`, checked.

    `versions` is `System.versions` of the target system. A package that `versions` lacks has the
    version of the manual line. A shipped grammar is read once in a process. Errors:
    UnknownGrammarError with the nearest name. FaultyGrammarError with all faults of the grammar.
    """
    if directory == COMMANDS:
        return _shipped(name, frozenset((versions or {}).items()))
    return _checked(name, versions, directory)


@lru_cache(maxsize=256)  # all shipped grammars for two systems
def _shipped(name: str, versions: frozenset[tuple[str, str]]) -> Grammar:
    return _checked(name, dict(versions), COMMANDS)


def _checked(name: str, versions: Mapping[str, str] | None, directory: Path) -> Grammar:
    path = directory / f"{name}.grammar"
    if not path.is_file():
        raise _unknown(name, directory)
    loaded = _read(path, versions)
    faults = (*loaded.faults, *check(loaded))
    if faults:
        raise FaultyGrammarError(faults)
    return loaded.grammar


def _unknown(name: str, directory: Path, own: OwnGrammars | None = None) -> UnknownGrammarError:
    known = names_of_grammars(directory, own)
    if directory == COMMANDS:
        hint = did_you_mean(name, known)
        if nearest(name, known) is None and re.fullmatch(r"[\w.+-]+", name):
            hint = f"shioenv grammar draft {name} > DIR/{name}.grammar, then --grammars DIR"
        return UnknownGrammarError(f"no grammar is called {name!r}", hint=hint)
    path, like = directory / f"{name}.grammar", nearest(name, known)
    hint = f"shioenv grammar draft {name} > {path} writes a first one"
    if like is not None:
        hint = f"did you mean {directory / like}.grammar?"
    return UnknownGrammarError(f"there is no file {path}", hint=hint)


def _read(path: Path, versions: Mapping[str, str] | None) -> Loaded:
    # bytes that are no text become U+FFFD, which is a fault of its line like any other
    text = content_of(path).decode("utf-8-sig", "replace").replace("\0", "\ufffd")
    return read_grammar(text, path.name, versions)


def load_grammars(
    names: Iterable[str] | None = None,
    *,
    versions: Mapping[str, str] | None = None,
    directory: Path = COMMANDS,
    own: OwnGrammars | None = None,
) -> tuple[Grammar, ...]:
    """These grammars (default: all), checked, in the order given (default: by name).

    `own` grammars stand beside those of `directory`, and before those of the same name. `versions`
    is as `load_grammar` takes it. Errors: UnknownGrammarError; FaultyGrammarError with the faults
    of *all* the files.
    """
    faults: list[Fault] = []
    with _uncollected():
        grammars = tuple(_faultless(names, versions, directory, faults, own))
    if faults:
        raise FaultyGrammarError(faults)
    return grammars


@contextmanager
def _uncollected() -> Iterator[None]:
    """The garbage collector is off inside. It would take a fifth of the time of loading grammars.

    Loading makes hundreds of thousands of objects, which all stay.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _faultless(
    names: Iterable[str] | None,
    versions: Mapping[str, str] | None,
    directory: Path,
    faults: list[Fault],
    own: OwnGrammars | None = None,
) -> Iterator[Grammar]:
    """The grammars without a fault; the faults of the other grammars are put into `faults`."""
    for name in names if names is not None else names_of_grammars(directory, own):
        there = own.directory if own and name in own.names else directory
        if own and not (there / f"{name}.grammar").is_file():
            raise _unknown(name, directory, own)
        try:
            yield load_grammar(name, versions=versions, directory=there)
        except FaultyGrammarError as error:
            faults += error.faults


@cache
def shipped_headers() -> Mapping[str, Header]:
    """The headers of the shipped grammars, by name; nothing else of the files is read."""
    return {
        name: read_header((COMMANDS / f"{name}.grammar").read_text(encoding="utf-8"), name)
        for name in names_of_grammars()
    }


def check_grammars(
    names: Iterable[str] | None = None, *, directory: Path = COMMANDS
) -> tuple[Fault, ...]:
    """Every fault of these grammars (default: all), those of their examples and headers included.

    Nothing is executed. Errors: UnknownGrammarError.
    """
    faults: list[Fault] = []
    for grammar in _faultless(names, None, directory, faults):
        faults += [*check_examples(grammar), *check_values(grammar), *check_traits(grammar)]
    return tuple(faults)
