"""The worker's gRPC side: requests in, events out, and the card that describes the model."""
