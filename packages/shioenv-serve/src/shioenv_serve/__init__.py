"""Servers: SSH, the protocol of OpenAI, and their logs."""
