"""Share what every method needs: the strategy protocol, the run, the reader, citations, events."""
