"""Builds the objects of a recipe: its data, the setup of a round, and the learning process, `State -> State`.

Modules:

    checks            Builds the input of a recipe, and checks the recipe against its data
    data              Loads the data of a recipe and splits them over its clients, without TensorFlow
    failure           Failures of a round
    federation        A recipe on its data
    learning_process  The learning process of a recipe as pure functions, for notebooks and the command line
    notes             Lines and notes on the data and the levels of a learning process
    portable_round    Exports a compiled round as StableHLO, which runs without TensorFlow
    simulated_rounds  Rounds whose clients are simulated: planned on the host, and trained by the compiled round
"""
