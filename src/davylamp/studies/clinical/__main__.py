"""``python -m davylamp.studies.clinical --out DIR``."""

import sys

from davylamp.studies.catalogue import main_of

if __name__ == "__main__":
    sys.exit(main_of("clinical", "python -m davylamp.studies.clinical"))
