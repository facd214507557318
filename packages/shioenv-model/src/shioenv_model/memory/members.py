"""Read the files of a model, which may be damaged or made by somebody else.

The caller passes the expected shape of each file. Any other content raises ModelError.
"""

from __future__ import annotations

import io
import os
import re
import weakref
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
    refuse_surrogates(content)
    msgspec.convert(document, shape)
    return document


def refuse_surrogates(content: bytes) -> None:
    """Raise ValueError for a JSON document with an escaped surrogate."""
    if _SURROGATE.search(content):
        raise ValueError("it contains characters that are not text")


class StoredFile:
    """A file whose parts are read on demand, so that they do not stay in the process's memory."""

    def __init__(self, path: Path) -> None:
        """Open a file. Errors: ModelError."""
        self._path = path
        with raise_model_errors(path), open_regular(path) as file:
            self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)
            self.size = os.fstat(self._descriptor).st_size

    def read(self, first: int, end: int) -> bytes:
        """Return the bytes from `first` up to `end`. Errors: ModelError if the file lacks some."""
        content = os.pread(self._descriptor, end - first, first)
        if len(content) != end - first:
            with raise_model_errors(self._path):
                raise ValueError("it was cut after it had been opened")
        return content


class StoredArray:
    """A NumPy file's one-dimensional array, whose parts are read on demand."""

    def __init__(self, path: Path, dtype: npt.DTypeLike) -> None:
        """Open an array of this dtype. Errors: ModelError."""
        mapped = array_member(path, dtype)
        assert isinstance(mapped, np.memmap)
        self._first, self._length = mapped.offset, len(mapped)
        self._dtype = mapped.dtype
        self._file = StoredFile(path)

    def __len__(self) -> int:
        return self._length

    def read(self, first: int, end: int) -> npt.NDArray[Any]:
        """Return the elements from `first` up to `end`. Errors: those of `StoredFile.read`."""
        size = self._dtype.itemsize
        content = self._file.read(self._first + first * size, self._first + end * size)
        return np.frombuffer(content, self._dtype)

    def bytes_of(self, number: int, count: int = 1) -> bytes:
        """Return the bytes of `count` elements. Errors: those of `StoredFile.read`."""
        size = self._dtype.itemsize
        first = self._first + number * size
        return self._file.read(first, first + count * size)

    def parts(self) -> Iterator[npt.NDArray[Any]]:
        """Yield all elements in parts of moderate size."""
        for first in range(0, len(self), _PART):
            yield self.read(first, min(first + _PART, len(self)))


_PART = 1 << 15


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
