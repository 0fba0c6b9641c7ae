"""The paths under /api, each module one kind of thing."""
