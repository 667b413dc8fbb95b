"""Keras layers of federated models; each file contains one public class of the same name.

A class that computes convolutions or matrix products sets `HAS_PRODUCTS = True`. Only such a class gets a mixed
policy, `dtype="mixed_bfloat16"`. Its sublayers without products use its `variable_dtype`.

Two class attributes, tuples of attribute names, define the role of non-trainable variables in federated training:
- `TRACKS` lists running statistics, such as the running averages of `TrackedBatchNormalization`. Each local step
  passes them to the next, the client returns them with its weights, and the server merges them.
- `QUERIED` lists batch statistics, such as the moments of `StaticBatchNormalization`. Local steps discard them; they
  are computed from the data after training.
- All other variables are constants, such as the base of an adapter. A constant has the float type of the weights, is
  sent to a client once, and keeps its initial value. A model whose training would change it is refused.
The state of a random generator belongs to none of these: every step gets a new one, see `Dropout`.
"""
