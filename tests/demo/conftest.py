"""The example's and the set-up's modules are imported as they import each other: by plain names, from their folders."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in ("examples/pytorch_text", "scripts/bootstrap"):
    if str(ROOT / folder) not in sys.path:
        sys.path.append(str(ROOT / folder))
