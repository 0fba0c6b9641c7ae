"""Where documents are kept and found."""
