"""`python -m colligate` is the `colligate` command."""

import sys

from colligate.cli import main

if __name__ == "__main__":
    sys.exit(main())
