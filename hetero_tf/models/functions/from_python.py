"""The model was passed from Python, so it must be passed again."""

import keras

from hetero_tf.base.errors import InputError


def build(width: float, classes: int) -> keras.Model:
    """Refuse to build the model.

    Raises:
        InputError: Always.
    """
    raise InputError(
        "the model of this run was passed from Python: pass it again, as hetero_tf.load_run(FOLDER, model=...) or "
        "hetero_tf.train(..., model=..., run_dir=FOLDER); the command line needs a function in a module, as "
        "`model: MODULE:FUNCTION` with --plugin MODULE"
    )
