"""Reads what run folders hold, without TensorFlow: facts of checkpoints, metrics, times, and progress."""
