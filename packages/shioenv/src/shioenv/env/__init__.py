"""Gymnasium environments, which draw, execute and score with the same functions as datasets.

Importing this package imports Gymnasium and registers the environments' IDs.
"""

from shioenv.registration import register

register()
