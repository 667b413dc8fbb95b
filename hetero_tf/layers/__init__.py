"""Keras layers of federated models; each file contains one public class of the same name.

The model builder supplies two arguments, which a recipe cannot set: `scale`, the relative width of the model
(see `Scaler`), and `clients`, the number of clients that are computed together (see `hetero_tf.layers.stacked`).

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

The class attribute `GEOMETRY` declares shapes and weights of a layer by formulas; `recipe.geometry.Geometry` lists its
keys. A recipe is checked against it before the layer is imported: forms and channels, groups, empty outputs, memory. A
formula is a text of arithmetic over the arguments of the layer and the sizes of its input without the batch: `rows`,
`columns`, `channels` of a "map", `positions`, `channels` of "tokens", `positions` of "words", `channels` of any other
input; `inputs` is its shape, `leading` its shape without the last size, `outputs` the shape of the output, and
`product(...)` multiplies the sizes of a shape. Layers after one without `GEOMETRY` have unknown shapes until Keras
builds them.
"""
