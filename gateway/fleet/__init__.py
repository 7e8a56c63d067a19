"""Which workers there are, how far each is to be believed, and how to call it."""
