"""Run many items of work in a folder that can be interrupted and resumed."""
