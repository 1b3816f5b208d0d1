"""``python -m davylamp.studies.representability --out DIR [key=value ...]``."""

from __future__ import annotations

import sys

from davylamp.studies.catalogue import main_of


def main(arguments: list[str] | None = None) -> int:
    """Runs the study; 0 where it is done, 2 for bad input."""
    return main_of("representability", "python -m davylamp.studies.representability", arguments)


if __name__ == "__main__":
    sys.exit(main())
