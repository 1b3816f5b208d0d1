"""``python -m davylamp.studies.mechanisms --out DIR [key=value ...]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from davylamp.errors import DavylampError
from davylamp.studies.mechanisms.run import run_study, text_table, write_study
from davylamp.studies.mechanisms.spec import load_recipe


def main(arguments: list[str] | None = None) -> int:
    """Runs the study; 0 where every row agrees, 1 where one does not, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m davylamp.studies.mechanisms", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for mechanisms.html and mechanisms.json")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the recipe, such as seed=3")
    options = parser.parse_args(arguments)
    try:
        recipe = load_recipe(options.overrides)
        experiments = run_study(recipe)
        written = write_study(experiments, recipe, options.out)
    except DavylampError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    for experiment in experiments:
        sys.stdout.write("\n".join(text_table(experiment)) + "\n\n")
    sys.stdout.write("".join(f"wrote {path}\n" for path in written))
    return 0 if all(experiment.agrees for experiment in experiments) else 1


if __name__ == "__main__":
    sys.exit(main())
