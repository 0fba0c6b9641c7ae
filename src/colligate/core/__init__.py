"""What all methods share: the run, events, answers, parameters, fitting into a window."""
