"""Protocol numbers of the judges, which certificates depend on; see `shioenv.protocols`."""

from __future__ import annotations

from typing import Final

JUDGE: Final = 1
"""The protocol number of the judge of an agent's runs.

Certificates with another number are invalid.
"""

HARBOR_JUDGE: Final = 1
"""The protocol number of the judge of tasks exported to Harbor, with the same effect as `JUDGE`."""
