"""What can be judged: the machine itself, constants, recordings, memories, emulators, models."""
