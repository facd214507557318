"""Read the files of a model, which may be damaged or made by somebody else.

The caller passes the expected shape of each file. Any other content raises ModelError.
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
from shioenv.files.documents import refuse_deep
from shioenv.files.regular import open_regular, read_regular

LARGEST = 64 * 1024 * 1024
"""Maximum bytes of a file that is read at once, and of all arrays in it together."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


@contextmanager
def raise_model_errors(file: Path, said: str = "is damaged") -> Iterator[None]:
    """Convert every error in the block into a ModelError with the file's name and `said`.

    Every kind of error is caught, because a parser may raise any error for an untrusted file. A
    ModelError passes through. An OSError becomes "cannot be read" instead of `said`.
    """
    try:
        yield
    except ModelError:
        raise
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror or error}", hint=_HINT) from None
    except MemoryError:
        raise ModelError(f"{file} {said}: its declared size is too large", hint=_HINT) from None
    except RecursionError:
        raise ModelError(f"{file} {said}: it is nested too deeply", hint=_HINT) from None
    except Exception as error:
        reason = error.message if isinstance(error, ShioenvError) else str(error)
        reason = reason or type(error).__name__
        raise ModelError(f"{file} {said}: {reason:.200}", hint=_HINT) from None


_HINT = "download the model again, or train it again: shioenv train memory"


def json_member(file: Path, shape: Any) -> Any:
    """Return the document in a JSON file of this shape (see `parse_member`). Errors: ModelError."""
    with raise_model_errors(file):
        return parse_member(read_regular(file, LARGEST), shape)


def parse_member(content: bytes, shape: Any) -> Any:
    """Parse a JSON document of this shape, a type that msgspec can convert to.

    Errors: ValueError for any other document, and for one with an escaped surrogate.
    """
    document = msgspec.json.decode(content)  # takes a third of the time of `json`
    refuse_deep(document)
    if _SURROGATE.search(content):
        raise ValueError("it contains characters that are not text")
    msgspec.convert(document, shape)
    return document


def array_member(file: Path, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Map a NumPy file's one-dimensional array of this dtype into memory.

    Errors: ModelError.
    """
    with raise_model_errors(file):
        open_regular(file).close()
        array = np.lib.format.open_memmap(file, mode="r")
        if array.dtype != np.dtype(dtype) or array.ndim != 1:
            raise ValueError(f"it has {array.ndim} dimensions of {array.dtype}")
        return array


def arrays_member(file: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of finite numbers in an `np.savez` file, by name. Errors: ModelError."""
    with (
        raise_model_errors(file),
        zipfile.ZipFile(io.BytesIO(read_regular(file, LARGEST))) as archive,
    ):
        found: dict[str, npt.NDArray[Any]] = {}
        left = LARGEST
        for info in archive.infolist():
            if info.file_size > left:
                raise ValueError("its declared size is too large")
            with archive.open(info) as member:
                content = member.read(info.file_size + 1)
            left -= len(content)
            name = info.filename.removesuffix(".npy")
            if name in found:
                raise ValueError(f"it contains {name!r:.40} twice")
            array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
            if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
                raise ValueError(f"{name!r:.40} contains a value that is not a finite number")
            found[name] = array
        return found
