"""The compiled round: it cuts sub-models out of the global values, trains all clients and merges what they return."""
