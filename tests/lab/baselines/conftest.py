from support.films import sources  # noqa: F401
