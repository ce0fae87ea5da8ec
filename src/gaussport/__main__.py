"""`python -m gaussport` is the `gaussport` command."""

import sys

from gaussport.cli import main

if __name__ == "__main__":
    sys.exit(main())
