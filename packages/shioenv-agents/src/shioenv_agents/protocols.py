"""Numbers of protocols that certificates depend on, as in `shioenv.protocols`."""

from __future__ import annotations

from typing import Final

JUDGE: Final = 1
"""How the runs of an agent are judged. A certificate of another number is no longer valid."""

HARBOR_JUDGE: Final = 1
"""How a task that was exported to Harbor is judged, as `JUDGE`."""
