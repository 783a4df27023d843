"""Makes a fresh checkout ready: `.venv` with pinned packages, and the dev cluster's programs. Standard library only.

`python3 scripts/bootstrap` is what every task of the Makefile runs first. When nothing has changed since the last run
it ends in a fraction of a second.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  (asked before any newer syntax is read)
    sys.exit("Meshwright needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.12")

from setting_up import main

sys.exit(main())
