"""``python -m cppo`` is the command ``cppo``."""

from cppo.commands.cli import main

main()
