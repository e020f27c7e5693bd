"""`python -m trainc.cli` is the `trainc` program."""

import sys

from trainc.cli.main import main

sys.exit(main())
