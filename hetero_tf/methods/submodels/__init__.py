"""Which coordinates of an axis a sub-model keeps: `keep(size, kept, round, client, seed) -> int32[kept]`.

Axes of equal size get equal coordinates, so a layer's outputs, the next layer's inputs, a residual sum and its
norm stay aligned without anyone listing what belongs together.
"""
