"""Costs of the clients of each level in a round: values received and sent, operations, memory."""
