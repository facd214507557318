"""Predictors that answer by a model."""
