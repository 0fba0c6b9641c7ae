"""`python -m colligate.cli` is the `colligate` command."""

from colligate.cli import main

if __name__ == "__main__":
    main()
