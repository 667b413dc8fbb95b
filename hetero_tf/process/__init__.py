"""Builds the objects of a recipe: its data, the setup of a round, and the learning process, `State -> State`.

Modules:

    data              Loads the data of a recipe, splits them over the clients, and checks the recipe against them
    failure           Failures of a round
    federation        A recipe on its data
    learning_process  The learning process of a recipe as pure functions, for notebooks and the command line
    simulated_rounds  Rounds whose clients are simulated: planned on the host, and trained by the compiled round
"""
