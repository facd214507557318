"""Predictors: the machine itself, constants, recordings, emulators, and language models."""
