"""Lines that say themselves whether they are whole: each behind its checksum."""

from __future__ import annotations

import zlib


def checksummed(content: bytes) -> bytes:
    """A line as journals hold it: behind its CRC-32, as eight hexadecimal digits."""
    return b"%08x %b" % (zlib.crc32(content), content)


def sound(line: bytes) -> bytes | None:
    """What `checksummed` made a line of; None where the checksum is another's."""
    content = line[9:]
    return content if checksummed(content) == line else None
