"""Numbers that the paper states, as far as our results are held against them."""

from __future__ import annotations

ERRORS = {32: 0.03, 64: 0.02}
"""Mean absolute error by budget, of "12-argument inputs" (Section 4.2). The paper also names the
budgets as shares of all sub-inputs, 1.5% and 3.125%. These are the shares for 11 removable
arguments: the paper's 12 may count the command. So its errors are shown from 11 to 12."""

LENGTH = 11
"""The number of arguments at which the paper names means (Section 4.3)."""
MEANS = {"gcs": 0.346, "ucs": 0.129}
"""Mean irreducibility at `LENGTH`, by sampler."""
GAINS = (0.11, 0.25)
"""By how much the mean of GCS is above that of UCS, at least and at most, for 2 to 12 arguments."""
PERFECT = 0.2
"""Share of GCS inputs that are exactly 1: "over 20%"."""

TRAINING = {
    "UCS, R* ≥ 0": (0.31, 0.32),
    "GCS, R* ≥ 0": (0.58, 0.31),
    "GCS, R* ≥ 0.5": (0.78, 0.19),
    "GCS, R* ≤ 0.5": (0.31, 0.17),
}
"""Mean and standard deviation of the scores of the four training sets (Section 4.4)."""
