"""Keras models of a recipe: building them at any width, their variables, their costs and their initial values.

Modules:

    build_model      Builds the Keras model of a recipe at any width, with the same variable paths at every width
    costs/           Costs of the clients of each level in a round: values received and sent, operations, memory
    custom_model     Custom models: a Python function that builds a Keras model at a width
    cut              Cuts of the global variables, derived from shapes
    entry_masks      Masks of single entries: a plug-in of `methods.masks`, bound to one level's share and variables
    family           The model family of a recipe
    global_layout    Index of every variable
    initial_weights  Initial weights by path
    named_inputs     Keras models with several named inputs
    nesting          Checks that a level's model is a part of the global one
    preprocessed     Keras models that prepare their inputs, for callers that have examples as a data set stores them
    probing          Random weights and examples for a Keras model, which test its behavior before training
    repeated_blocks  Repeated blocks: equal blocks of the models of a round are one function of the graph, traced once
    requirements     Requirements of a Keras model from a user; refuses parts that a round would ignore
    state            The state of a run between two rounds
    variables        Kinds of variables of a Keras model: those that a client receives, trains, and returns
    vit_checkpoint   Published weights of a Vision Transformer as initial weights of a recipe
"""
