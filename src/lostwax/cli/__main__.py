"""`python -m lostwax.cli`."""

import sys

from lostwax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
