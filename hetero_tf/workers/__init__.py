"""Several processes or devices that share the rounds of one run, by tf.distribute.

Modules:

    channel        Messages of the leading process to the others: JSON and arrays as bytes, sent by a collective
    cluster        The processes that share a run
    executions     Executions of shared rounds: on several devices of this process, and on several worker processes
    worker_rounds  Rounds that the processes of a cluster share: one leads the run, the others repeat its calls
"""
