"""Constructions: instances in text whose leak each audit may or may not see (P1, arXiv 2608.27782, Sec. 8.2).

What is asked for, what the manifest remembers and where the rows fall; secrets are drawn by whoever has the base model.
"""

from davylamp.canaries.constructions.faults import NoveltyError, TriggerError
from davylamp.canaries.constructions.section import Constructed, Instance, Maker, Material
from davylamp.canaries.constructions.spec import Construction

__all__ = ["Constructed", "Construction", "Instance", "Maker", "Material", "NoveltyError", "TriggerError"]
