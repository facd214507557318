"""Evaluation: suites, metrics, predictors and pages."""
