"""``python -m davylamp.studies.dp_calibration --out DIR [key=value ...]``."""

from __future__ import annotations

import sys

from davylamp.studies.catalogue import main_of


def main(arguments: list[str] | None = None) -> int:
    """Runs the study; 0 where no cell violates its bound, 1 where one does, 2 for bad input."""
    return main_of("dp-calibration", "python -m davylamp.studies.dp_calibration", arguments)


if __name__ == "__main__":
    sys.exit(main())
