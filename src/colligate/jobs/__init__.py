"""Run many items of work that can be interrupted and resumed."""
