"""The parts of an interpreter of Bash: expansion, patterns, arithmetic and others."""
