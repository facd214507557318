"""The files of a model, which somebody else may have made, or a disk may have damaged. It says what
each file has to be, and raises one error for whatever else it is.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from shioenv.errors import ModelError, ShioenvError
from shioenv.files.documents import parse_json
from shioenv.files.regular import open_regular, read_regular

LARGEST = 64 * 1024 * 1024
"""Bytes of a member that is read whole, and of an array in it."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@contextmanager
def judged(file: Path, said: str = "is damaged") -> Iterator[None]:
    """Whatever is wrong with a file of a model ends in one error that names it, and what is `said`.

    What is read there is no value of ours: a parser raises what it likes. Errors: ModelError.
    """
    try:
        yield
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}", hint=_HINT) from None
    except MemoryError:
        raise ModelError(f"{file} {said}: it claims to hold too much", hint=_HINT) from None
    except RecursionError:
        raise ModelError(f"{file} {said}: it is nested too deeply", hint=_HINT) from None
    except Exception as error:
        reason = error.message if isinstance(error, ShioenvError) else str(error)
        reason = reason or type(error).__name__
        raise ModelError(f"{file} {said}: {reason:.200}", hint=_HINT) from None


_HINT = "get the model again, or make it again: shioenv train memory"


def json_member(file: Path, shape: Any) -> Any:
    """The document in a JSON file, of this shape (see `parsed`). Errors: ModelError."""
    with judged(file):
        return parsed(read_regular(file, LARGEST), shape)


def parsed(content: bytes, shape: Any) -> Any:
    """The document that JSON says, where it is of this shape: a type that msgspec can convert to.

    Errors: ValueError.
    """
    document = parse_json(content)
    if _SURROGATE.search(content):
        raise ValueError("it holds characters that are no text")
    msgspec.convert(document, shape)
    return document


def array_member(file: Path, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The rows in a NumPy file, of this type, mapped into memory. Errors: ModelError."""
    with judged(file):
        open_regular(file).close()
        array = np.lib.format.open_memmap(file, mode="r")
        if array.dtype != np.dtype(dtype) or array.ndim != 1:
            raise ValueError(f"it holds {array.ndim} dimensions of {array.dtype}")
        return array


def arrays_member(file: Path) -> dict[str, npt.NDArray[Any]]:
    """The arrays of numbers in a file that `np.savez` wrote, by name. Errors: ModelError."""
    with judged(file), zipfile.ZipFile(io.BytesIO(read_regular(file, LARGEST))) as archive:
        found: dict[str, npt.NDArray[Any]] = {}
        left = LARGEST
        for info in archive.infolist():
            if info.file_size > left:
                raise ValueError("it claims to hold too much")
            with archive.open(info) as member:
                content = member.read(info.file_size + 1)
            left -= len(content)
            name = info.filename.removesuffix(".npy")
            if name in found:
                raise ValueError(f"it holds {name!r:.40} twice")
            array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
            if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
                raise ValueError(f"{name!r:.40} holds what is no number")
            found[name] = array
        return found
