"""The files of a run, written and read without TensorFlow: a kill or a damaged file costs at most one round."""
