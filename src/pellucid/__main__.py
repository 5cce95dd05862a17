"""`python -m pellucid` is `pellucid`."""

from pellucid.cli.main import main

main()
