"""The other backend: each sandbox is a machine of its own, with a kernel of its own."""
