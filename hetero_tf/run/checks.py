"""Builds the input of a recipe, and checks the recipe against its data."""

import inspect

import numpy as np

from hetero_tf.base import hardware, registry
from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.inputs import Input
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.methods.policies import AsynchronousPolicy, round_policy
from hetero_tf.methods.tasks import Task
from hetero_tf.planning.fleets.device_table import check_trace
from hetero_tf.planning.selection import able_clients, count_clients
from hetero_tf.recipe import with_source_location
from hetero_tf.recipe.fit import DataFacts, check_fit, check_kind
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.schema import Recipe


def build_input(recipe: Recipe, dataset: Dataset) -> Input:
    """Build the `Input` of a recipe for its data."""
    build = registry.find("inputs", recipe.input.name).build
    parameters = inspect.signature(build).parameters
    learned: dict = {"statistics": dataset.feature_statistics} if "statistics" in parameters else {}
    if "rate" in parameters:
        learned["rate"] = dataset.codec.rate
    return build(recipe.float_type, **recipe.input.options, **learned)


def build_task(recipe: Recipe, dataset: Dataset) -> Task:
    """Build the `Task` of a recipe."""
    task = registry.find("tasks", recipe.task.name).task
    attributes = {"statistics": "target_statistics", "classes": "classes"}
    parameters = inspect.signature(task).parameters
    learned = {name: getattr(dataset, attribute) for name, attribute in attributes.items() if name in parameters}
    return task(**recipe.task.options, **learned)


def check_data(recipe: Recipe, dataset: Dataset) -> None:
    """Check a recipe against its data before anything is built.

    Raises:
        InputError: The recipe does not fit; with file, line and key.
    """
    if not isinstance(dataset, Dataset):
        forms = "from_arrays or from_tf_data of hetero_tf.data"
        raise InputError(f"`dataset` must be the result of {forms}. Received: {type(dataset).__name__}")
    with with_source_location(recipe):
        check_kind(recipe, dataset.codec.KIND, dataset.targets, dataset.source)
        check_fit(recipe, _facts(recipe, dataset), hardware.memory_limit())


def check_split(recipe: Recipe, partition: Partition) -> None:
    """Check the trace of devices, and that clients have the examples that selected metrics need.

    Raises:
        InvalidValue: With the path of the key.
    """
    if recipe.fleet is not None and recipe.fleet.trace is not None:
        check_trace(recipe.fleet.trace, len(partition.train))
    for path, metric in recipe.selected_metrics.items():
        if metric.startswith("local_") and not partition.test.sizes.any():
            raise InvalidValue(
                path,
                "cannot be measured, because no client has test examples; choose a global metric, or use more test "
                f"examples. Received: {metric}",
            )
        if metric.startswith("validation_") and not partition.held_out.sizes.any():
            raise InvalidValue(
                path,
                "needs held-out examples; set partition.held_out, such as 0.1, or choose another value. "
                f"Received: {metric}",
            )


def check_cohort(recipe: Recipe, clients: int) -> None:
    """Check that the policy starts at most the clients that can train, and that a buffer can become full.

    Raises:
        InvalidValue: The path is `round.policy` or `round.policy.size`.
    """
    able = able_clients(recipe.levels, clients, recipe.seed, 0)
    most, policy = count_clients(able), round_policy(recipe.round.policy)
    started = policy.cohort_size(recipe.round.clients)
    if isinstance(policy, AsynchronousPolicy) and policy.buffer > most:
        text = f"larger than the number of clients that can train; must be at most {most}. Received: {policy.buffer}"
        raise InvalidValue(("round", "policy", "size"), text)
    if recipe.round.clients <= most < started:
        raise InvalidValue(
            ("round", "policy"),
            f"starts {started} clients for {recipe.round.clients} results, more than the {most} that can train; lower "
            f"round.clients or its factor. Received: {recipe.round.policy.name}",
        )


def _facts(recipe, dataset):
    x, labels, codec = dataset.train.x, dataset.train.labels, dataset.codec
    pixels = (codec.low, codec.high) if isinstance(codec, picture.Codec) and codec.dtype != "uint8" else (0.0, 1.0)
    return DataFacts(
        source=dataset.source,
        example=example_shape(build_input(recipe, dataset), x),
        classes=dataset.classes,
        several=bool((labels != labels.flat[0]).any()),
        pixels=(min(0.0, pixels[0]), max(0.0, pixels[1])),
        train=len(x),
        test=len(dataset.test.x),
        words=len(codec.texts) if codec.KIND == "sequences" else None,
        sorted_names=dataset.sorted_class_names if registry.constant("tasks", recipe.task.name, "ORDERED") else None,
    )


def example_shape(source: Input, x: np.ndarray) -> tuple[int, ...]:
    """Return the shape of one input: (height, width, channels), or (positions,) of a text segment."""
    shape = source.shape(x)
    return (int(source.length(x, source.starts(x)[0])),) if shape == (None,) else shape
