"""How the long-running commands log: one line an event, to stderr."""

import logging

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def configure() -> None:
    """Log from INFO on."""
    logging.basicConfig(level=logging.INFO, format=FORMAT)
