"""Original files of the packages from which a built system was made."""

from __future__ import annotations

import re
import tarfile

from shioenv.files.durable import cache_directory
from shioenv.system.store import System


def of_the_c_library(system: System, name: str) -> bytes:
    """Return Debian's path of the C library's or its loader's file of that name."""
    key = system.source.partition(":")[2]
    (base,) = cache_directory().glob(f"bases/*-{key}.tar")
    wanted = re.compile(rf"\./(usr/)?lib/x86_64-linux-gnu/{re.escape(name)}")
    with tarfile.open(base) as archive:
        for member in archive:
            if wanted.fullmatch(member.name):
                file = archive.extractfile(member)
                assert file is not None
                return file.read()
    raise AssertionError(f"the base has no {name}")
