"""`python -m dvdrl` is the command `dvdrl`."""

from dvdrl.cli import main

main()
