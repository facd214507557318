"""Bash's language: text read into programs, words, quotes; what they expand to."""
