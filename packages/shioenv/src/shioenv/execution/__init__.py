"""Jobs done by many processes, on this machine or on the machines of a cluster."""
