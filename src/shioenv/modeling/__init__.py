"""Inputs answered without executing them: by rule over what answers single commands."""
