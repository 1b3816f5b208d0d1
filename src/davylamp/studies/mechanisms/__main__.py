"""``python -m davylamp.studies.mechanisms --out DIR [key=value ...]``."""

from __future__ import annotations

import sys

from davylamp.studies.catalogue import main_of


def main(arguments: list[str] | None = None) -> int:
    """Runs the study; 0 where every row agrees, 1 where one does not, 2 for bad input."""
    return main_of("mechanisms", "python -m davylamp.studies.mechanisms", arguments)


if __name__ == "__main__":
    sys.exit(main())
