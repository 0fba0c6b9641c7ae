"""The engine behind HTTP: libraries, questions, runs; for the extra `serve`."""
