"""Which variables of a Keras model a client gets, trains and returns."""


def is_seed(variable):
    """Whether a non-trainable variable is the state of a random generator, such as a Dropout's."""
    return variable.path.endswith("seed_generator_state")


def tracked(model):
    """The running statistics among the non-trainable variables, in model order: what training moves by itself."""
    moving = {id(getattr(layer, name)) for layer in all_layers(model) for name in getattr(layer, "TRACKS", ())}
    return [variable for variable in model.non_trainable_variables if id(variable) in moving]


def all_layers(model):
    """Every layer below `model`, those inside composite layers too."""
    return model._flatten_layers(include_self=False)


def values(model):
    """The variables that a client gets and returns: the trainable ones, then the running statistics."""
    return [*model.trainable_variables, *tracked(model)]
