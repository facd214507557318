"""Many processes that execute: on this machine and on those of a cluster."""
