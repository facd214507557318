"""Version numbers of the code that makes stored executions and certificates.

A number is raised by hand whenever the code that it covers changes. In a clone,
`scripts/check_protocols.py` lists this code and compares its digest.
"""

from __future__ import annotations

from typing import Final

EXECUTION: Final = 2
"""The execution of inputs. Stored executions with another number are not used."""

CHANNEL: Final = 1
"""The channel through which a judge observes an agent. Certificates with another number expire."""
