"""Commands of the command line, one file each; ``cppo.cli`` lists them."""
