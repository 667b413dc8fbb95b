"""Builds the input of a recipe, and checks the recipe against its data."""

import inspect
import math
from collections.abc import Sequence

import numpy as np

from hetero_tf.base import hardware, registry
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.inputs import Input
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.methods.policies import AsynchronousPolicy, SynchronousPolicy
from hetero_tf.methods.tasks import Task
from hetero_tf.planning.fleets.device_table import check_trace
from hetero_tf.planning.plan import Division, assign_levels, expected_work
from hetero_tf.planning.selection import able_clients, count_clients, pool_of
from hetero_tf.planning.timing import TOLERANCE, RoundClock, round_policy
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
    with with_source_location(recipe):
        check_kind(recipe, dataset.codec.KIND, dataset.targets, dataset.source)
        check_fit(recipe, _facts(dataset, build_input(recipe, dataset)), hardware.memory_limit())


def check_split(recipe: Recipe, partition: Partition) -> None:
    """Check the trace of devices, and that clients have the examples that selected metrics need.

    Raises:
        InvalidValue: With the path of the key.
    """
    check_trace(recipe.fleet, len(partition.train))
    needs_held_out = {("evaluate", "members"): "best"} if recipe.evaluate.members == "best" else {}
    for path, metric in recipe.selected_metrics.items():
        if metric.startswith("local_") and not partition.test.sizes.any():
            raise InvalidValue(
                path,
                "cannot be measured, because no client has test examples; choose a global metric, or use more test "
                f"examples. Received: {metric}",
            )
        if metric.startswith("validation_"):
            needs_held_out[path] = metric
    for path, value in needs_held_out.items():
        if not partition.held_out.sizes.any():
            raise InvalidValue(
                path,
                "needs held-out examples; set partition.held_out, such as 0.1, or choose another value. "
                f"Received: {value}",
            )


def check_cohort(recipe: Recipe, clients: int) -> None:
    """Check that the policy starts at most the clients that can train, and that a buffer can become full.

    Raises:
        InvalidValue: The path is `round.policy` or `round.policy.size`.
    """
    able = able_clients(recipe.levels, clients, recipe.seed, 0)
    most, policy = count_clients(able), round_policy(recipe)
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


def _facts(dataset, source):
    x, labels, codec = dataset.train.x, dataset.train.labels, dataset.codec
    pixels = (codec.low, codec.high) if isinstance(codec, picture.Codec) and codec.dtype != "uint8" else (0.0, 1.0)
    return DataFacts(
        source=dataset.source,
        example=example_shape(source, x),
        classes=dataset.classes,
        several=bool((labels != labels.flat[0]).any()),
        pixels=(min(0.0, pixels[0]), max(0.0, pixels[1])),
        train=len(x),
        test=len(dataset.test.x),
        words=len(codec.texts) if codec.KIND == "sequences" else None,
        sorted_names=dataset.sorted_class_names,
    )


def example_shape(source: Input, x: np.ndarray) -> tuple[int, ...]:
    """Return the shape of one input: (height, width, channels), or (positions,) of a text segment."""
    shape = source.shape(x)
    return (int(source.length(x, source.starts(x)[0])),) if shape == (None,) else shape


def check_deadline(clock: RoundClock, sizes: np.ndarray, division: Division, starts: Sequence[int]) -> None:
    """Raise `InvalidValue` if the deadline excludes every client in every round.

    Args:
        sizes: int [registered], training examples of each client.
        starts: First positions, from the `Input` of the recipe.

    Raises:
        InvalidValue: The path is `round.policy.seconds`.
    """
    policy, fleet, levels = round_policy(clock.recipe), clock.fleet, clock.recipe.levels
    if not isinstance(policy, SynchronousPolicy) or policy.deadline is None or fleet.jitter:
        return
    # A client alone has the whole shared link.
    clock = clock.without_shared_links()
    ids = pool_of(able_clients(levels, len(sizes), clock.recipe.seed, 0), 0).ids
    assigned = assign_levels(levels, len(sizes), clock.recipe.seed, 0, ids)
    seconds = math.inf
    for level in range(len(levels.names)):
        # With dynamic assignment any client may have the level.
        clients = ids[(sizes[ids] > 0) & ((assigned == level) | (levels.assignment == "dynamic"))]
        if clients.size:
            steps, examples = _least_work(clock, policy, int(sizes[clients].min()), division, starts, level)
            same_level, same_steps = (np.full(len(clients), value) for value in (level, steps))
            seconds = min(seconds, clock.times(None, clients, same_level, same_steps, examples).total.min())
    if seconds > policy.deadline * TOLERANCE:
        needed = f"{math.ceil(seconds / TOLERANCE * 1e6) / 1e6:.10g}"
        raise InvalidValue(
            ("round", "policy", "seconds"),
            f"the deadline excludes every client: the fastest needs {needed} s. Set at least {needed}. "
            f"Received: {policy.deadline:g}",
        )


def _least_work(clock, policy, size, division, starts, level):
    """Return the least steps that a client returns, and their examples in each stage, int [stages].

    A late client may return its first step alone, or its first stage if several run in sequence.
    """
    recipe, passes = clock.recipe, division.passes[level]
    (steps,), (examples,) = expected_work(recipe, np.array([size]), len(starts), division, np.array([level]))
    if policy.partial:
        first = min(size, recipe.client.batch_size) if passes == 1 else examples[0]
        steps, examples = 1 if passes == 1 else steps // passes, first * np.eye(len(examples))[0]
    if division.drawn:
        cheapest = clock.train_flops[level, : division.stages[level]].argmin()
        examples = examples.sum() * np.eye(len(examples))[cheapest]
    return steps, examples
