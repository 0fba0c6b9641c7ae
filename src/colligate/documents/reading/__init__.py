"""Files into documents: one module a format."""
