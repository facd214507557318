"""Convert sessions into records: execute, score, and check for volatility."""
