"""The compiled round: it cuts sub-models out of the global values, trains all clients and merges what they return.

Modules:

    arrivals        Merge of results that arrive one or more rounds after their clients have started
    batches         Batches that the clients of a block read in each tick of their training
    block_training  Cut and local training of one block of clients, inside the graph of a round
    buffers         Conditions of buffers, which store the outputs of a stage's frozen units, see ...
    client_block    Blocks: K clients of one level computed together, each client's values as one row of a matrix
    client_tables   Tables of client state between rounds: personal values, correction memories, and peers
    cohort          Trains the cohort of a round, block by block, and sums the results of its clients
    disk_rows       Rows of on-disk examples for one call of the compiled round: those that its clients train on
    engine          Chooses the engine: clients of each sub-model are computed one by one
    layout          Index of every variable: its position among the global values and in a client's row
    local_training  Local training of one block of clients: the optimizer's steps inside the graph
    merge           The merge of a round: masked means of the clients' results, and the server's step on them
    objective       The loss that local steps minimise
    probe           Probes: short runs on random values that test whether a model meets the assumptions of a round
    round           The compiled round: cut, train all active clients, merge; several rounds in one call, traced once
    round_setup     The setup of a round: the records that every function of its graph reads
    row_model       Row models: Keras models that read their values from the rows of a matrix
    submodel_cut    The cut of one sub-model
    training_step   One training step of a block's clients in a stage
"""
