"""Predictors that use a model."""
