"""Descriptions of recipes without their data."""

import numpy as np

from hetero_tf.models.costs.level_costs import LevelCosts
from hetero_tf.models.family import build_family
from hetero_tf.reports.describe import Description


def describe_recipe(recipe, example, classes, labels=None, examples=1000):
    """The `Description` of a recipe.

    Args:
        labels: int [clients], how many labels each client has; None: one client with all of them.
        examples: Most training examples of a client.
    """
    family = build_family(recipe, (None,) if len(example) == 1 else example, example, classes)
    labels = np.asarray([classes] if labels is None else labels)
    costs, batch = LevelCosts(family, classes), min(recipe.client.batch_size, examples)
    levels = {name: costs.of_level(name, labels, batch) for name in recipe.levels.widths}
    about = {"recipe": recipe.name, "example": example, "classes": classes}
    return Description(levels, recipe.levels.divided(1), labels, about)
