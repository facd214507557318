"""Another implementation held against the machine: every difference, made as small as it gets."""
