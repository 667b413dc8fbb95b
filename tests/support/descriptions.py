"""Descriptions of recipes without their data."""

import numpy as np

from hetero_tf.models.costs.cost_report import level_costs
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
    levels = level_costs(family, recipe.levels.widths, example, labels, min(recipe.client.batch_size, examples))
    return Description(recipe.name, example, classes, levels, recipe.levels.divided(1), labels)
