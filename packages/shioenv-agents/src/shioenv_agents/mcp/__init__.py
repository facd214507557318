"""A server of the Model Context Protocol: machines, previews and predictions as tools."""
