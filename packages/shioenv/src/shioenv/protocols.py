"""Numbers of protocols: what kept executions and certificates depend on, instead of a version.

A number is raised by hand whenever code that the protocol covers changes. In the clone,
`scripts/check_protocols.py` lists that code, and keeps a digest of it.
"""

from __future__ import annotations

from typing import Final

EXECUTION: Final = 1
"""How an input becomes a behavior. Kept executions of another number are not used."""

CHANNEL: Final = 1
"""By what a judge sees what an agent did. A certificate of another number is no longer valid."""
