"""``python -m davylamp``: the same as the ``davylamp`` command."""

from davylamp.cli.main import main

if __name__ == "__main__":
    main()
