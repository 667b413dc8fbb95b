"""Builds the objects of a recipe: its data, the setup of a round, and the learning process, `State -> State`.

Modules:

    build_round       Builds the setup of a round from a recipe and its data
    costs             Costs of the levels of a learning process
    data              Loads the data of a recipe, splits them over the clients, and checks the recipe against them
    learning_process  The learning process of a recipe as pure functions, for notebooks and the command line
"""
