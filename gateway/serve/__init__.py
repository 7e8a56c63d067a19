"""The gateway's gRPC front door: checks requests, sends them to workers, passes tokens through."""
