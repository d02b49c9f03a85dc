"""Commands of ``cppo``, one file each; ``cppo/cli.py`` lists them."""
