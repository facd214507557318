"""Gymnasium environments: they draw, execute and score by the same functions as datasets.

Importing this package imports Gymnasium and registers the ids of the environments.
"""

from shioenv.registration import register

register()
