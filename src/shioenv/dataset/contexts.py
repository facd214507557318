"""The states that a dataset's patches apply to: a file for each start directory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from shioenv.dataset.manifest import CONTEXTS, ContextFile, read_manifest
from shioenv.domain.context import Context
from shioenv.errors import ContextError, DatasetCorruptError
from shioenv.files.durable import atomic_write, sha256_of

_REPAIR = "shioenv dataset repair writes it again"


def write_context(directory: Path, number: int, context: Context) -> ContextFile:
    """Writes the context of the plan's start directory of this number through to the disk; what a
    manifest says of it.

    It is one JSON object on one line, every field of a context there. The same context gives the
    same bytes.
    """
    (directory / CONTEXTS).mkdir(exist_ok=True)
    content = context.to_json().encode() + b"\n"
    file = f"{CONTEXTS}/{number:05}.json"
    atomic_write(directory / file, content)
    digest = hashlib.sha256(content).hexdigest()
    return ContextFile(cwd=context.document["cwd"], file=file, sha256=digest)


def read_contexts(directory: str | Path) -> dict[str, Context]:
    """The contexts before the inputs of a dataset, by start directory: what patches apply to.

    None of records that this package did not execute. Errors: UnknownDatasetError,
    DatasetCorruptError for a file that is gone or was changed.
    """
    manifest = read_manifest(directory)
    for file, why in context_problems(Path(directory), manifest.contexts):
        raise DatasetCorruptError(f"{Path(directory) / file} {why}", hint=_REPAIR)
    return {
        context.cwd: Context.from_json((Path(directory) / context.file).read_text(encoding="utf-8"))
        for context in manifest.contexts
    }


def context_problems(directory: Path, contexts: Iterable[ContextFile]) -> Iterator[tuple[str, str]]:
    """Files of contexts that are not what the manifest says, with what is wrong."""
    for context in contexts:
        path = directory / context.file
        try:
            digest = sha256_of(path)
            if digest != context.sha256:
                yield context.file, f"was changed: its SHA-256 is {digest}, not {context.sha256}"
            elif Context.from_json(path.read_text("utf-8")).document.get("cwd") != context.cwd:
                yield context.file, f"is not of {context.cwd}"
        except OSError as error:
            yield context.file, f"cannot be read: {error.strerror}"
        except (ContextError, UnicodeDecodeError) as error:
            yield context.file, f"holds no context: {error}"
