"""Rewriting arbitrary inputs for a system: names the system lacks are replaced by names it has."""
