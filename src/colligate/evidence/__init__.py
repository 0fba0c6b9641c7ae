"""From passages to what may be believed."""
