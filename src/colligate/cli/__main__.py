"""`python -m colligate.cli` is the `colligate` command."""

import sys

from colligate.cli import main

if __name__ == "__main__":
    sys.exit(main())
