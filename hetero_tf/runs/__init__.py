"""Readers of run folders, without TensorFlow: facts of checkpoints, metrics, times, and progress."""
