"""Plans rounds on the host, in NumPy: cohort, levels, and the examples of each local step.

Modules:

    asynchronous      Rounds of asynchronous policies
    deadline          Check that a deadline does not exclude every client
    event_queue       The event queue of asynchronous rounds
    level_assignment  Assignment of levels to clients: fixed for the run, or drawn in every round
    packing           Packs planned rounds into blocks of clients on the host
    plan              Plans a round on the host: cohort, levels, and the examples of each local step
    round_spans       The clients of a round on the clock of the fleet, as `timeline.jsonl` stores them
    selection         Selection of the clients of a round, and the history of clients that selections read
    sharing           Distributes the blocks of a round to replicas with about equal work
    timing            Simulated time of a round
"""
