"""What the clients of each level receive, send and compute in a round."""
