"""Model functions: each module with a function `build` is one, selected in a recipe by `model.function`.

`build(width, classes, *, options...)` returns a Keras model that gives logits. width: share of the channels in (0, 1];
classes: number of outputs. The layers have the same names at every width. A module of --plugin may define several, as
functions whose first parameter is `width`; their names are MODULE:FUNCTION.
"""
