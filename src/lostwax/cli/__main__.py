"""`python -m lostwax.cli`."""

import sys

from lostwax.cli.main import main

sys.exit(main())
