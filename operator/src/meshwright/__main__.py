"""`python -m meshwright` runs the operator; with a command it is the same as `meshwright`."""

import sys

from meshwright.cli import COMMANDS, main

arguments = sys.argv[1:]
if not arguments or (arguments[0] not in COMMANDS and arguments[0] not in ("-h", "--help")):
    arguments = ["run", *arguments]
sys.exit(main(arguments))
