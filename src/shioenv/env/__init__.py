"""The decision process: Gymnasium environments over the same three functions as everything else.

Importing this package registers the ids with Gymnasium, which is imported for that.
"""

from shioenv.registration import register

register()
