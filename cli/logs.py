"""How the long-running commands log: one line an event, to stderr."""

import logging

FORMAT = "%(asctime)s %(levelname)-7s {who}%(name)s: %(message)s"


def configure(who: str = "") -> None:
    """Log from INFO on; `who` is before the name of each logger."""
    logging.basicConfig(level=logging.INFO, format=FORMAT.format(who=who))
