"""Predictors: the machine itself, constants, recordings, memories, emulators, models."""
