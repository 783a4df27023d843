"""`python -m meshwright_trainer`, also under torchrun."""

import sys

from meshwright_trainer.cli import main

sys.exit(main())
