"""Which worker gets a request: index of prefixes, cost, reservations. Pure decisions."""
