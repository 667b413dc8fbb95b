"""Sub-models: select coordinates of an axis, `keep(size, count, round, client, seed) -> int32[count]`.

Axes of equal size get equal coordinates. The outputs of a layer, the inputs of the next one, a residual sum and its
norm therefore stay aligned, without a list of axes that belong together.
"""
