"""The digests of files' content are SHA-256, on processors with instructions for it and without."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from shioenv import native

PROGRAM = r"""
#include <stdio.h>
#include "sha256.h"

int main(void)
{
    static unsigned char data[1 << 21], digest[32];
    struct sha256 hash;
    size_t length = fread(data, 1, sizeof data, stdin);
    sha256_start(&hash);
    /* in two pieces, so that blocks begin in one and end in the other */
    sha256_add(&hash, data, length / 3);
    sha256_add(&hash, data + length / 3, length - length / 3);
    sha256_end(&hash, digest);
    fwrite(digest, 1, 32, stdout);
}
"""


@pytest.fixture(scope="module", params=["instructions", "portable"])
def digest(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[bytes], bytes]:
    directory = tmp_path_factory.mktemp(request.param)
    source = directory / "digest.c"
    source.write_text(PROGRAM)
    code = Path(native.__file__).with_name("around")
    compiler = shutil.which("cc") or "gcc"
    flags = ["-O2", "-I", str(code), *(["-DSHIOENV_PORTABLE"] * (request.param == "portable"))]
    program = str(directory / "digest")
    subprocess.run([compiler, *flags, "-o", program, source, code / "sha256.c"], check=True)
    return lambda data: subprocess.run([program], input=data, stdout=-1, check=True).stdout


@pytest.mark.parametrize("length", [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 128, 4097, 1_000_003])
def test_digest_is_that_of_the_library(digest: Callable[[bytes], bytes], length: int) -> None:
    data = Random(length).randbytes(length)
    assert digest(data) == hashlib.sha256(data).digest()
