"""hetero_tf: federated learning of one model on unequal devices, from a YAML recipe."""

__version__ = "0.2.0"


def load_recipe(path, overrides=()):
    """Reads and checks a recipe; see `recipe.load`."""
    from hetero_tf import recipe

    return recipe.load(path, overrides)


def learning_process(recipe, **options):
    """Builds the learning process of a recipe; see `process.learning_process`."""
    from hetero_tf import process

    return process.learning_process(recipe, **options)
