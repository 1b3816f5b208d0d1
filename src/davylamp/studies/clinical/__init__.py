"""Clinical records with coined medications: the plan of the interventions' study."""

from importlib.resources import files
from pathlib import Path

PLAN = Path(str(files(__name__) / "plan.yaml"))
"""100 canaries at five doses among clinical records; what `davylamp plant --plan clinical` plants."""
