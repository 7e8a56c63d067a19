"""How many workers a pool asks for: what all gateways count, the signals of it, the answer."""
