"""Several processes or devices that share the rounds of one run, by tf.distribute."""
