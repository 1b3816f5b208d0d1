"""``python -m davylamp.studies.blind_spots --out DIR [key=value ...]``."""

from __future__ import annotations

import sys

from davylamp.studies.catalogue import main_of


def main(arguments: list[str] | None = None) -> int:
    """Runs the study; 0 where no bound is violated, 1 where one is, 2 for bad input."""
    return main_of("blind-spots", "python -m davylamp.studies.blind_spots", arguments)


if __name__ == "__main__":
    sys.exit(main())
