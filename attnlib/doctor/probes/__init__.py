"""The probes: each looks for one kind of fault, and yields what it finds."""
