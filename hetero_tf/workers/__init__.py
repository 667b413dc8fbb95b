"""Several processes or devices that share the rounds of one run, by tf.distribute.

Modules:

    channel  Messages of the leading process to the others: JSON and arrays as bytes, sent by a collective
    cluster  The processes that share a run: read from flags or TF_CONFIG, and connected by TensorFlow's collectives
    lead     Processes that share a run: one leads it like any run, the others repeat its calls
    runners  Runners of shared rounds: on several devices of this process, and on several worker processes
"""
