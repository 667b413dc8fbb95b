"""Losses, metrics and optimizers of Keras: those of a compiled model, or of the arguments of `learning_process`.

Losses that the package has too, and optimizers, become keys of the recipe. Other losses and all metrics are called with
`(y_true, y_pred)`, as Keras calls them.
"""

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers import compile_utils

from hetero_tf import recipe as recipes
from hetero_tf.base import registry
from hetero_tf.base.constraints import Plugin
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import Field
from hetero_tf.methods.tasks import Task
from hetero_tf.models.custom_model import last_activation, probabilities_of
from hetero_tf.models.preprocessed import Layout, output_names, unpack_tensors
from hetero_tf.recipe.schema import Recipe
from hetero_tf.recipe.write import flow

# Losses of Keras that recipes have too, and the options that both have.
LOSSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "sparse_categorical_crossentropy": ("cross_entropy", ()),
    "categorical_crossentropy": ("cross_entropy", ("label_smoothing",)),
    "binary_crossentropy": ("sigmoid_cross_entropy", ()),
    "mean_squared_error": ("mean_squared_error", ()),
    "mean_absolute_error": ("mean_absolute_error", ()),
}
# The losses of recipes that read all outputs, by the form of the targets; a recipe has it beside any other loss.
UNMASKED = {"label_set": "sigmoid_cross_entropy", "numbers": "mean_squared_error"}
MEANS = (None, "none", "mean", "mean_with_sample_weight", "sum_over_batch_size")
ACCURACIES = ("accuracy", "acc", "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy")
OPTIMIZERS = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw"}
OPTIONS = {
    **{"momentum": "momentum", "nesterov": "nesterov", "weight_decay": "weight_decay"},
    **{"beta_1": "beta1", "beta_2": "beta2", "epsilon": "epsilon"},
}


@dataclass(frozen=True)
class UserFunction:
    """A loss or a metric of Keras, or a Python function `(y_true, y_pred) -> values`.

    Attributes:
        function: The object.
        probabilities: "softmax" or "sigmoid", by which the loss of the task makes probabilities; None for numbers.
        ends_in: The same if the user's model ends in it, else None: the model gives logits.
        output: Name of the output that it reads, if a model has several.
        layouts: Layouts of the packed outputs and targets of such a model.
    """

    function: Any
    probabilities: str | None = None
    ends_in: str | None = None
    output: str | None = None
    layouts: tuple[Layout, Layout] = ((), ())

    @property
    def name(self) -> str:
        """Name of the object, as in the logs of Keras."""
        name = getattr(self.function, "name", None) or getattr(self.function, "__name__", None)
        return name or type(self.function).__name__

    def arguments(self, outputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return `(y_true, y_pred)` for logits or numbers [..., outputs] and targets.

        `y_pred` are the outputs of the user's model; an object of Keras with `from_logits` gets the form that it names.
        `y_true` are labels; objects of Keras get them one-hot, except those with sparse labels.
        """
        if self.output is not None:
            outputs, targets = (
                unpack_tensors(layout, rows)[self.output] for layout, rows in zip(self.layouts, (outputs, targets))
            )
            return tf.cast(targets, outputs.dtype), outputs
        return self._targets(targets, outputs), self._outputs(outputs)

    def _outputs(self, outputs):
        config = self.function.get_config() if hasattr(self.function, "get_config") else {}
        if not config and _is_of_keras(self.function) and "from_logits" in inspect.signature(self.function).parameters:
            config = {"from_logits": False}
        reads_logits = config.get("from_logits", self.ends_in is None)
        if self.probabilities is None or reads_logits:
            return outputs
        return tf.nn.softmax(outputs) if self.probabilities == "softmax" else tf.sigmoid(outputs)

    def _targets(self, targets, outputs):
        if not targets.dtype.is_integer:
            return tf.cast(targets, outputs.dtype)
        is_sparse = _keras_name(self.function).startswith("sparse") or getattr(self.function, "sparse_y_true", False)
        if is_sparse or not _is_of_keras(self.function):
            return targets
        return tf.one_hot(targets, outputs.shape[-1], dtype=outputs.dtype)


@dataclass(frozen=True)
class UserLoss(UserFunction):
    """A loss of local steps that is not in the recipe."""

    def loss(self, outputs: tf.Tensor, targets: tf.Tensor, present: tf.Tensor | None, outside: int) -> tf.Tensor:
        """Return the losses of the clients of a block, [K, ...]; see `methods.losses`."""
        call = self.function.call if isinstance(self.function, keras.Loss) else self.function
        # A client whose last batch is smaller has targets of an unknown shape.
        pairs = zip(*(tf.unstack(each, outputs.shape[0]) for each in (outputs, targets)), strict=True)
        return tf.stack([tf.cast(_over_mask(call(*self.arguments(*each))), outputs.dtype) for each in pairs])


def _over_mask(losses):
    """Return losses whose mean is that of the values that Keras does not mask, as `ignore_class` does."""
    if (mask := getattr(losses, "_keras_mask", None)) is None:
        return losses
    return tf.math.divide_no_nan(losses, tf.reduce_mean(tf.cast(mask, losses.dtype)))


@dataclass(frozen=True)
class SumOfLosses:
    """The weighted sum of the losses of several outputs."""

    parts: tuple[UserLoss, ...]
    weights: tuple[float, ...]

    def loss(self, outputs: tf.Tensor, targets: tf.Tensor, present: tf.Tensor | None, outside: int) -> tf.Tensor:
        """Return the losses of the examples of a block, [K, batch]; see `methods.losses`."""
        total = tf.zeros(tf.shape(outputs)[:2], outputs.dtype)
        for part, weight in zip(self.parts, self.weights, strict=True):
            losses = part.loss(outputs, targets, present, outside)
            # A function may return one number for all examples, or one for each position of an output.
            losses = losses[:, None] if losses.shape.rank == 1 else losses
            total += weight * tf.reduce_mean(losses, list(range(2, losses.shape.rank)))
        return total

    def test_loss(self, outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Return the loss of every example, for evaluations."""
        return self.loss(outputs[None], targets[None], None, 0)[0]


@dataclass(frozen=True)
class UserMetric(UserFunction):
    """A metric as a plug-in, see `methods.metrics`."""

    is_binary: bool = False
    PROBABILITIES = True

    @property
    def BETTER(self) -> str:  # noqa: N802
        """Direction of better values, as Keras declares it."""
        is_lower = isinstance(self.function, keras.Loss) or getattr(self.function, "_direction", "up") == "down"
        return "lower" if is_lower else "higher"

    def metric(self, scores: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Return the value on all examples, float64; a mean if the function returns one for each example or class."""
        arguments = self.arguments(scores, targets)
        if isinstance(self.function, keras.Metric):
            state = self.function.stateless_update_state(self.function.stateless_reset_state(), *arguments)
            value = self.function.stateless_result(state)
        else:
            value = self.function(*arguments)
        return tf.cast(tf.reduce_mean(value), tf.float64)

    def arguments(self, outputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if self.is_binary:
            # The task has logits of both classes.
            outputs, targets = outputs[..., 1:], tf.cast(targets, outputs.dtype)[..., None]
        return super().arguments(outputs, targets)


@dataclass(frozen=True)
class UserFunctions:
    """The loss and the metrics of a process that its recipe does not have.

    Attributes:
        loss: The loss of local steps; None: that of the recipe.
        metrics: By name.
        outputs: Layout of the packed outputs of a model with several.
        strings: The layers of the model that consume strings, see `preprocessed.split_strings`.
    """

    loss: UserLoss | SumOfLosses | None = None
    metrics: Mapping[str, UserMetric] = field(default_factory=dict)
    outputs: Layout = ()
    strings: keras.Model | None = None

    def task(self, task: Task) -> Task:
        """Return the task with the predictions of several outputs by name."""
        layout = self.outputs
        return dataclasses.replace(
            task, predict=lambda rows, valid: unpack_tensors(layout, rows), prediction_name=layout[0][0]
        )

    @property
    def names(self) -> list[str]:
        """Names and configs of the loss and the metrics, for the digest of a run."""
        functions = [each.function for each in (*self._losses, *self.metrics.values())]
        weights = [str(self.loss.weights)] if isinstance(self.loss, SumOfLosses) else []
        return [f"{_keras_name(each)} {getattr(each, 'get_config', dict)()}" for each in functions] + weights

    @property
    def _losses(self):
        return self.loss.parts if isinstance(self.loss, SumOfLosses) else [self.loss] if self.loss else []

    def check(self, task: Task, outputs: tf.Tensor, targets: np.ndarray) -> None:
        """Call the functions once, which creates the variables of metrics.

        Args:
            outputs, targets: Those of the first examples.

        Raises:
            InputError: Names the function that fails.
        """
        encoded = tf.constant(task.encode(targets))
        calls = [(metric, task.decode(outputs), tf.constant(targets)) for metric in self.metrics.values()]
        for each, values, y in [*calls, *((loss, outputs, encoded) for loss in self._losses)]:
            try:
                each.function(*each.arguments(values, y))
                if isinstance(each.function, keras.Metric):
                    each.function.reset_state()
            except Exception as error:
                raise InputError(
                    f"the loss or metric {each.name} must accept the targets and outputs of your first examples. "
                    f"Received: {type(error).__name__}: {error}"
                ) from error


def read_functions(
    recipe: Recipe, model: keras.Model | None, targets: Sequence[Field], loss: Any, metrics: Any
) -> tuple[Recipe, UserFunctions]:
    """Return the recipe with the keys that compile() defines, and the other functions.

    Args:
        model: The user's model at the global level; None for the layers of a recipe.
        targets: Fields of the targets of several outputs; empty for one.
        loss: A loss as for compile(), or None.
        metrics: Metrics as for compile(); of one output, in addition to those of the model.

    Raises:
        InputError: Something contradicts the recipe, or has no counterpart in a round.
    """
    changes: dict[str, Any] = {}
    compiled = getattr(model, "_compile_metrics", None)
    if model is not None and model.compiled:
        _check_compiled(model, loss, bool(targets))
        changes |= _optimizer_changes(recipe, model.optimizer)
        loss = getattr(model, "loss", None) if loss is None else loss
    compiled_metrics = getattr(compiled, "_user_metrics", None)
    if model is not None and targets:
        functions = _read_outputs(recipe, model, targets, loss, metrics or compiled_metrics)
    else:
        functions, changed_keys = _read_output(recipe, model, loss, _flatten([compiled_metrics, metrics]))
        changes |= changed_keys
    if changes:
        overrides = [f"{key}={flow(value)}" for key, value in changes.items()]
        changed = recipes.loads(recipe.source, recipe.path, overrides)
        # A run folder has the recipe as it was passed, like that of levels that are fitted.
        recipe = dataclasses.replace(changed, tree=recipe.tree, source=recipe.source, overrides=recipe.overrides)
    return recipe, functions


def _read_output(recipe, model, loss, metrics):
    """Return the functions of a model with one output, and the changes of the recipe."""
    _, ends_in = last_activation(model)
    user_loss, changes = _read_loss(recipe, loss, ends_in)
    names, user_metrics = _read_metrics(recipe, metrics, ends_in)
    if user_metrics and recipe.targets == "positions":
        raise InputError(f"the metrics of text are its loss and perplexity: leave out {', '.join(user_metrics)}")
    changes |= {"evaluate.metrics": [*recipe.evaluate.metrics, *names]} if names else {}
    return UserFunctions(user_loss, user_metrics), changes


def _read_outputs(recipe, model, targets, loss, metrics):
    """Return the functions of a model with several outputs."""
    if recipe.client.loss not in (None, _default_loss(recipe)):
        raise InputError("a model with several outputs has the losses of compile(): leave out client.loss")
    names, weights = output_names(model), getattr(getattr(model, "_compile_loss", None), "_user_loss_weights", None)
    loss_of = _by_output(names, "loss", loss)
    weight_of = _by_output(names, "loss_weights", weights or [1.0] * len(names))
    metrics_of = _by_output(names, "metrics", metrics or [None] * len(names))
    tensors = dict(zip(names, model.outputs))
    outputs = tuple((each.name, tuple(tensors[each.name].shape[1:]), "float32") for each in targets)
    layouts = outputs, tuple((each.name, each.codec.shape, "float32") for each in targets)
    losses: list[UserLoss] = []
    user_metrics: dict[str, UserMetric] = {}
    for name, shape, _ in layouts[1]:
        pair = keras.KerasTensor((None, *shape)), tensors[name]
        function = _get(lambda value, pair=pair: compile_utils.get_loss(value, *pair), "loss", loss_of[name])
        _check_reduction(function)
        losses.append(UserLoss(function, output=name, layouts=layouts))
        user_metrics[f"{name}_loss"] = UserMetric(function, output=name, layouts=layouts)
        for metric in _flatten(metrics_of.get(name)):
            function = _get(lambda value, pair=pair: compile_utils.get_metric(value, *pair), "metric", metric)
            user_metrics[f"{name}_{function.name}"] = UserMetric(function, output=name, layouts=layouts)
    total = SumOfLosses(tuple(losses), tuple(float(weight_of.get(each.name, 1.0)) for each in targets))
    return UserFunctions(total, user_metrics, outputs)


def _by_output(names, key, value):
    """Return `{output: value}` of a dictionary by output, a list in their order, or a loss of all outputs."""
    if isinstance(value, Mapping) and {*value} <= {*names} and (key != "loss" or len(value) == len(names)):
        return value
    if isinstance(value, list | tuple) and len(value) == len(names):
        return dict(zip(names, value))
    if key != "loss" or value is None or isinstance(value, Mapping | list | tuple):
        raise InputError(
            f"compile(): {key} must be a dictionary by output, or a list with one for each of {', '.join(names)}. "
            f"Received: {key}={value}"
        )
    return dict.fromkeys(names, value)


def _check_compiled(model, loss, has_outputs):
    losses, metrics = (getattr(model, name, None) for name in ("_compile_loss", "_compile_metrics"))
    ignored = {
        "loss_weights": None if has_outputs else getattr(losses, "_user_loss_weights", None),
        "weighted_metrics": getattr(metrics, "_user_weighted_metrics", None),
        "loss": model.loss if loss is not None and losses is not None else None,
    }
    for name, value in ignored.items():
        if value:
            reason = "`loss` is also an argument" if name == "loss" else "a round has one output, each example once"
            raise InputError(f"compile(): leave out {name}, since {reason}. Received: {name}={value}")


def _read_loss(recipe, loss, ends_in):
    """Return the `UserLoss` of a loss (or None), and the changes of the recipe."""
    if loss is None:
        return None, {}
    probabilities = probabilities_of(recipe)
    unmasked = UNMASKED.get(recipe.loss_targets, "cross_entropy")
    if len(_flatten(loss)) != 1:
        raise InputError(f"`loss` must be one loss, since a model has one output. Received: {loss}")
    (loss,) = _flatten(loss)
    if loss in ("crossentropy", "ce"):
        loss = "binary_crossentropy" if probabilities == "sigmoid" else "sparse_categorical_crossentropy"
    function = _get(keras.losses.get, "loss", loss)
    _check_reduction(function)
    name, options = _loss_of_recipe(function)
    # Words of a text are labels.
    form = "label" if recipe.targets == "positions" else recipe.loss_targets
    if name is not None and form not in registry.constant("losses", name, "TARGETS"):
        losses = {each: registry.constant("tasks", each, "TEST_LOSS") for each in registry.names("tasks")}
        tasks = [each for each, loss in losses.items() if loss == name and each != "multi_task"]
        raise InputError(
            f"`loss` must be one of the task {recipe.task.name}: set `task: {' or '.join(tasks) or 'regression'}` in "
            f"the recipe, or choose another loss. Received: {_keras_name(function)}"
        )
    user_loss = None if name else UserLoss(function, probabilities, ends_in)
    named, name = recipe.client.loss, name or unmasked
    if named in (None, _default_loss(recipe)):
        return user_loss, {"client.loss": {"name": name, **options}}
    if named.name != name or any(named.options[key] != options[key] for key in options):
        raise InputError(
            "`loss` and client.loss of the recipe must be the same; leave out one. "
            f"Received: {_keras_name(function)} and {named.name}"
        )
    return user_loss, {}


def _check_reduction(function):
    if getattr(function, "reduction", None) not in MEANS:
        raise InputError(
            "a `loss` must be a mean over the examples of a batch: leave out its reduction. "
            f"Received: reduction={function.reduction} of {function.name}"
        )


def _default_loss(recipe):
    return dataclasses.replace(recipe, client=dataclasses.replace(recipe.client, loss=None)).loss


def _loss_of_recipe(function):
    """Return the name and the options of a loss in recipes; None and no options if they do not have it."""
    name, options = LOSSES.get(_keras_name(function), (None, ()))
    if name is None or not _is_of_keras(function) or not isinstance(function, keras.Loss):
        return (name if _is_of_keras(function) else None), {}
    config, default = function.get_config(), type(function)().get_config()
    others = config.keys() - {"name", "reduction", "from_logits", *options}
    if any(config[key] != default[key] for key in others):
        return None, {}
    return name, {key: config[key] for key in options}


def _read_metrics(recipe, metrics, ends_in):
    """Return the names of further metrics of recipes, and `{name: UserMetric}` of others."""
    names: list[str] = []
    functions: dict[str, UserMetric] = {}
    for metric in _flatten(metrics):
        is_text = isinstance(metric, str)
        if _is_accuracy(metric) and "accuracy" in recipe.metrics:
            # Every evaluation measures the accuracy in percent.
            continue
        if is_text and metric in registry.names("metrics"):
            names.append(metric)
            continue
        function = _get(keras.metrics.get, "metric", metric)
        binary = recipe.task.name == "binary"
        user_metric = UserMetric(function, probabilities_of(recipe), ends_in, is_binary=binary)
        name = metric if is_text else user_metric.name
        if name in ("loss", *recipe.metrics, *functions):
            raise InputError(f"the metrics must have different names: give it another one. Received: {name}")
        functions[name] = user_metric
    return names, functions


def _is_accuracy(metric):
    """Return True for an accuracy of Keras with its default threshold."""
    if isinstance(metric, str):
        return metric in ACCURACIES
    if not _is_of_keras(metric) or _keras_name(metric) not in ACCURACIES:
        return False
    return not isinstance(metric, keras.metrics.BinaryAccuracy) or metric.get_config()["threshold"] == 0.5


def _optimizer_changes(recipe, optimizer):
    """Return the changes of a recipe whose optimizer is the default one; another one must agree."""
    kind = type(optimizer).__name__
    config = optimizer.get_config()
    # Only the optimizers of Keras have defaults for all arguments.
    default = type(optimizer)().get_config() if kind in (*OPTIMIZERS, "RMSprop") else {}
    changed = {key: value for key, value in config.items() if key != "name" and value != default.get(key)}
    if kind == "RMSprop" and not changed:
        # The default of compile().
        return {}
    name = "adamw" if kind == "Adam" and "weight_decay" in changed else OPTIMIZERS.get(kind)
    known = {*OPTIONS, "learning_rate", "global_clipnorm"} - ({"weight_decay"} if name == "sgd" else set())
    if name is None or changed.keys() - known or isinstance(config["learning_rate"], dict):
        received = ", ".join(f"{key}={value}" for key, value in changed.items())
        raise InputError(
            "compile(): the optimizer must be SGD, Adam or AdamW with options that recipes have; leave it out, and set "
            f"`optimizer` and `schedule` in the recipe. Received: {kind}({received})"
        )
    settings, options = recipe.optimizer, {OPTIONS[key]: changed[key] for key in changed.keys() & OPTIONS.keys()}
    line = {"name": name, "learning_rate": settings.learning_rate}
    if "learning_rate" in changed:
        line["learning_rate"] = float(str(np.float32(changed["learning_rate"])))
    line["clip_norm"] = changed.get("global_clipnorm", settings.clip_norm)
    default_method = {key: option.default for key, option in registry.options("optimizers", "sgd").items()}
    is_default = settings.method == Plugin("sgd", default_method)
    is_same = is_default or settings.method.name == name and options.items() <= settings.method.options.items()
    if is_default:
        line |= {OPTIONS[key]: value or 0.0 for key, value in config.items() if key in OPTIONS and value is not False}
    if not is_same or line["learning_rate"] != settings.learning_rate or line["clip_norm"] != settings.clip_norm != 1.0:
        raise InputError(
            f"compile() and the recipe must have the same optimizer: set `optimizer: {flow(line | options)}` in the "
            f"recipe, or leave it out of compile(). Received: {settings.method.name} with the learning rate "
            f"{settings.learning_rate:g} in the recipe"
        )
    return {"optimizer": line} if is_default else {}


def _flatten(value):
    """Return the items of nested lists and dictionaries, such as the metrics of each output."""
    if value is None:
        return []
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else None
    return [value] if items is None else [item for each in items for item in _flatten(each)]


def _get(find, kind, value):
    """Return a loss or a metric of a name, or the callable."""
    try:
        function = find(value)
    except ValueError:
        function = None
    if not callable(function):
        raise InputError(
            f"a {kind} must be a function (y_true, y_pred), or an object or a name of Keras. Received: {value}"
        )
    return function


def _is_of_keras(function):
    return (getattr(function, "__module__", None) or "").startswith("keras.")


def _keras_name(function):
    """Return the name of a function, or of the class of an object, such as "sparse_categorical_crossentropy"."""
    return getattr(function, "__name__", None) or registry.snake_case(type(function).__name__)
