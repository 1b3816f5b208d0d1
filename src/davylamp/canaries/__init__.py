"""Canaries: records planted with a secret whose value is known, and the manifest that remembers them."""

from davylamp.canaries.manifest import Canary, Manifest
from davylamp.canaries.plan import Plan
from davylamp.canaries.plant import Planted, plant

__all__ = ["Canary", "Manifest", "Plan", "Planted", "plant"]
