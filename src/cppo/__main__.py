"""``python -m cppo`` is the command ``cppo``."""

from cppo.cli import main

main()
