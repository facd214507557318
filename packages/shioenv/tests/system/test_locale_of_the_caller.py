"""Programs find the locale of a system that was built here in one file."""

from __future__ import annotations

import pytest

from shioenv.behavior.observe import open_sandbox


@pytest.mark.usefixtures("system")
def test_a_program_reads_its_locale_from_one_file() -> None:
    with open_sandbox() as sandbox:
        mapped = sandbox.run("grep -o '/usr/lib/locale/.*' /proc/self/maps | sort -u")
        letters = sandbox.run("locale -a; printf 'Zoë\\n' | tr '[:lower:]' '[:upper:]' | wc -m")
    assert mapped.output == b"/usr/lib/locale/locale-archive\n"
    assert letters.output.split() == [b"C", b"C.utf8", b"POSIX", b"4"]
