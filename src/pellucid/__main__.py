"""`python -m pellucid` is `pellucid`."""

from pellucid.cli import main

main()
