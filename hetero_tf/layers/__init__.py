"""Keras layers of federated models; each file holds one public class and has its name.

A class that computes convolutions or matrix products says so by `HAS_PRODUCTS = True`. Only such a class gets a mixed
policy, `dtype="mixed_bfloat16"`; the layers inside it that have no products take its `variable_dtype`.

A layer with variables that no gradient trains says by two class attributes, tuples of attribute names, what becomes of
them in federated training:
- `TRACKS` names running statistics. Each local step hands them to the next, the client returns them with its weights,
  and the server merges them, such as the running averages of `TrackedBatchNormalization`.
- `QUERIED` names statistics of a batch. A local step throws them away, and they are gathered from the data after
  training, such as the moments of `StaticBatchNormalization`.
- A variable that neither of them names is a constant, such as the base of an adapter. It has the float type of the
  weights, a client gets it once, and it keeps its initial value; a model whose training would change it is refused.
The state of a random generator is none of these: every step gets a new one, see `Dropout`.
"""
