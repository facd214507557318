"""A machine that stays: shells that run a line and wait for the next one."""
