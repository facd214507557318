"""Numbers that the paper states, where our results are held against them."""

from __future__ import annotations

ERRORS = {32: 0.03, 64: 0.02}
"""Mean absolute error by budget, of "12-argument inputs" (Section 4.2). The shares of all
sub-inputs that the paper names, 1.5% and 3.125%, are those of 11 removable arguments. Its 12 may
count the command, so the range from 11 to 12 is shown.
"""

LENGTH = 11
"""Of the input length whose means it names (Section 4.3)."""
MEANS = {"gcs": 0.346, "ucs": 0.129}
"""Mean irreducibility at that length."""
GAINS = (0.11, 0.25)
"""By how much GCS is above UCS for lengths from 2 to 12, at least and at most."""
PERFECT = 0.2
"""Share of GCS inputs that are exactly 1: "over 20%"."""

TRAINING = {
    "UCS, R* ≥ 0": (0.31, 0.32),
    "GCS, R* ≥ 0": (0.58, 0.31),
    "GCS, R* ≥ 0.5": (0.78, 0.19),
    "GCS, R* ≤ 0.5": (0.31, 0.17),
}
"""Mean and standard deviation of the scores of the four training sets (Section 4.4)."""
