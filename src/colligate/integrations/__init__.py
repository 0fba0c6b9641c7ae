"""A library as other frameworks know it; each needs its own extra."""
