"""Numbers of protocols that certificates depend on, as in `shioenv.protocols`."""

from __future__ import annotations

from typing import Final

JUDGE: Final = 1
"""The version of the judge of an agent's runs. It invalidates certificates of other versions."""

HARBOR_JUDGE: Final = 1
"""The version of the judge of tasks exported to Harbor, with the same effect as `JUDGE`."""
