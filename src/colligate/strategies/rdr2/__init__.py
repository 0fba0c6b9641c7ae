"""RDR2: a router walks the heading tree of each document.

Read `method` first, then `tree` and `router`.
"""

from colligate.strategies.rdr2.method import RDR2

__all__ = ["RDR2"]
