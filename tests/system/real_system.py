"""What the tests of the real system need of this host."""

from __future__ import annotations

import pytest

from shioenv.errors import HostError, SystemCorruptError, SystemNotBuiltError
from shioenv.sandbox.namespaces.backend import NamespaceSandbox
from shioenv.system.store import find_system


def require_sandbox() -> None:
    """Skips the test, saying why, where no sandbox of the default system opens here."""
    try:
        NamespaceSandbox(find_system()).close()
    except (SystemNotBuiltError, SystemCorruptError, HostError) as error:
        pytest.skip(str(error))
