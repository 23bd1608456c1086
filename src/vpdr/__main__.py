"""`python -m vpdr` is the same as `vpdr`."""

import sys

from vpdr.cli import main

sys.exit(main())
