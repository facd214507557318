"""A memory of executed inputs, and answers made of the nearest inputs."""
