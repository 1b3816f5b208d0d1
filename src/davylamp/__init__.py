"""davylamp: says what a fine-tuned language model gives away, and how sure that is.

The names below are the light public face; none of them loads torch until it is used.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
