"""The backend that runs inputs in namespaces of this host's kernel."""
