"""Each recipe of recipes/methods trains the tasks that docs/reference/methods.md states."""

import methods
import numpy as np
import pytest
import tensorflow as tf
from reference_pages import METHODS, load_method, rejection

from hetero_tf import learning_process, recipe

# Tasks whose losses receive sets of labels; each method trains one of them.
LABEL_SETS = ("binary", "ordinal", "multi_label")
SMALL = (
    "partition={name: iid, clients: 4}",
    "model.settings.channels=[!w 6, !w 6, !w 6]",
    # Without statistics to query, which would take most of the time.
    "model.settings.norm=in",
    "round.clients=2",
    "client.epochs=1",
    # One step of each client, which runs eagerly.
    "client.batch_size=15",
    "rounds=2",
    "levels.budgets={a: 1, d: 1}",
    "levels.fit=null",
)
# Its first epochs train the personal values.
FEDREP = ("client.epochs=2", "client.personalization={name: fedrep, personal_epochs: 1}")


@pytest.mark.long
@pytest.mark.parametrize("name", METHODS)
def test_every_form_of_targets_is_trained(name, eager):
    for task in (LABEL_SETS[METHODS.index(name) % 3], "regression", "segmentation"):
        if rejection(name, task) is None:
            fewer = methods.fewer_levels_and_blocks(recipe.load(name))
            process = learning_process(load_method(name, task, (*SMALL, *fewer, *FEDREP * name.endswith("fedrep"))))
            state = before = process.initialize()
            for _ in range(2):
                state, row = process.next(state)
                assert row["non_finite"] == 0 and np.isfinite(row["loss"]), task
            assert np.isfinite(process.evaluate(state)[0]["global_loss"]), task
            table = "clients" if process.setup.layout.personal else "weights"
            flat, flat_before = (tf.nest.flatten(getattr(each, table)) for each in (state, before))
            assert any((np.asarray(now) != np.asarray(then)).any() for now, then in zip(flat, flat_before)), task
