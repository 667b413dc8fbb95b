"""Values that are not merged over all clients: those that stay on a client, and those with a copy at each level.

`round.personal` and `round.by_level` name them by unit, kind, layer or path.
"""

import fnmatch
from collections.abc import Collection

import keras

from hetero_tf.models.variables import all_layers
from hetero_tf.recipe.model import Model
from hetero_tf.recipe.nodes import InvalidValue


def select_paths(
    key: str,
    names: Collection[str],
    spec: Model,
    model: keras.Model,
    paths: Collection[str],
    label_paths: Collection[str] = (),
) -> frozenset[str]:
    """Return the paths that names select.

    Args:
        key: `personal` or `by_level`, the key of `round` whose items are the names.
        names: Items of this key.
        spec: The recipe's model, which has its units.
        model: The global model.
        paths: Paths of the global values.
        label_paths: Paths of those that have a label axis: their layers are the head.

    Raises:
        InvalidValue: A name selects nothing; the message has the layers of the model.
    """
    if "all" in names:
        return frozenset(paths)
    kinds, selected = _paths_by_kind(model, label_paths), set()
    units = set() if spec.function is not None else {spec.unit_of(path) for path in paths}
    for index, name in enumerate(names):
        # A unit, a kind, or a pattern of a path or of its first parts.
        if name in units:
            chosen = {path for path in paths if spec.unit_of(path) == name}
        elif name in kinds:
            chosen = kinds[name].intersection(paths)
        else:
            chosen = {
                path for path in paths if fnmatch.fnmatchcase(path, name) or fnmatch.fnmatchcase(path, f"{name}/*")
            }
        if not chosen:
            layers = ", ".join(dict.fromkeys(path.rpartition("/")[0] for path in paths))
            raise InvalidValue(
                ("round", key, index),
                f"must name values of the model: {', '.join(kinds)}, a layer, or a pattern such as */bias; its layers "
                f"are {layers}. Received: {name!r}",
            )
        selected |= chosen
    return frozenset(selected)


def _paths_by_kind(model, label_paths):
    """Return the paths of each kind of `recipe.model.KINDS`."""
    every = {variable.path for variable in model.weights}
    layers = {layer.path: type(layer).__name__ for layer in all_layers(model)}

    def of_layers(is_kind):
        return {path for path in every if any(is_kind(layers.get(parent, "")) for parent in _parents(path))}

    heads = {path.rpartition("/")[0] for path in label_paths}
    head = {path for path in every if not heads.isdisjoint(_parents(path))}
    return {
        "norms": of_layers(lambda name: "Norm" in name),
        "biases": {path for path in every if path.endswith("/bias")},
        "embeddings": of_layers(lambda name: name.endswith("Embedding") and name != "PatchEmbedding"),
        "head": head,
        "body": every - head,
    }


def _parents(path):
    """Yield the paths of the layers that contain a variable."""
    while path := path.rpartition("/")[0]:
        yield path
