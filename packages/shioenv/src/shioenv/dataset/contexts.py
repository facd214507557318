"""The contexts to which a dataset's patches apply: a file for each start directory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from shioenv.dataset.manifest import CONTEXTS, ContextFile, read_manifest
from shioenv.domain.context import Context
from shioenv.errors import ContextError, DatasetCorruptError
from shioenv.files.durable import atomic_write
from shioenv.files.regular import read_regular

_REPAIR = "shioenv dataset repair writes it again"


def write_context(directory: Path, number: int, context: Context) -> ContextFile:
    """Write the context of a start directory through to the disk; its entry for the manifest.

    `number` is the place of the start directory in the plan. The file holds one JSON object on one
    line, with every field of a context. The same context gives the same bytes.
    """
    (directory / CONTEXTS).mkdir(exist_ok=True)
    content = context.to_json().encode() + b"\n"
    file = f"{CONTEXTS}/{number:05}.json"
    atomic_write(directory / file, content)
    digest = hashlib.sha256(content).hexdigest()
    return ContextFile(cwd=context.document["cwd"], file=file, sha256=digest)


def read_contexts(directory: str | Path) -> dict[str, Context]:
    """By start directory: the contexts before a dataset's inputs, to which their patches apply.

    Empty for records that this package did not execute, or that have no manifest of their own.
    Errors: UnknownDatasetError. DatasetCorruptError for a file that is gone or was changed.
    """
    manifest = read_manifest(directory)
    contexts = {}
    for kept, context in checked_contexts(Path(directory), manifest.contexts):
        if isinstance(context, str):
            raise DatasetCorruptError(f"{Path(directory) / kept.file} {context}", hint=_REPAIR)
        contexts[kept.cwd] = context
    return contexts


def checked_contexts(
    directory: Path, contexts: Iterable[ContextFile]
) -> Iterator[tuple[ContextFile, Context | str]]:
    """Each listed file with the context that it holds, read once.

    In place of the context stands a text that says what is wrong, where a file is not as the
    manifest says.
    """
    for kept in contexts:
        try:
            content = read_regular(directory / kept.file)
            digest = hashlib.sha256(content).hexdigest()
            if digest != kept.sha256:
                yield kept, f"was changed: its SHA-256 is {digest}, not {kept.sha256}"
                continue
            context = Context.from_json(content.decode())
            right = context.document.get("cwd") == kept.cwd
            yield kept, context if right else f"is not of {kept.cwd}"
        except OSError as error:
            yield kept, f"cannot be read: {error.strerror}"
        except (ContextError, UnicodeDecodeError) as error:
            yield kept, f"holds no context: {error}"


def context_problems(directory: Path, contexts: Iterable[ContextFile]) -> Iterator[tuple[str, str]]:
    """The files of contexts that are not as the manifest says, each with what is wrong."""
    for kept, context in checked_contexts(directory, contexts):
        if isinstance(context, str):
            yield kept.file, context
