"""Several processes or devices that share the rounds of one run, by TensorFlow's own distribution."""
