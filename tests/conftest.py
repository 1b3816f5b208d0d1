"""Makes ``tests/support`` importable as ``support`` from every test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# No test may depend on what the hub answers; both libraries read these when they are imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

# At the end, so that a folder of tests never hides a module of the standard library (tests/secrets).
sys.path.append(str(Path(__file__).parent))
