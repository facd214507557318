"""Predictions judged: suites of inputs with what they really do, metrics, predictors, reports."""
