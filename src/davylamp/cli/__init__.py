"""The ``davylamp`` command."""
