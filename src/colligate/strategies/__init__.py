"""One folder for each method; one file for each baseline."""
