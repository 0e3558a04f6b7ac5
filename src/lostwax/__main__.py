"""`python -m lostwax`, where the command `lostwax` is not on the path."""

import sys

from lostwax.cli import main

if __name__ == "__main__":
    sys.exit(main())
