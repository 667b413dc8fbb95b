"""Replicas that share one round: a single process, or devices and processes of a tf.distribute strategy."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class Replicas:
    """The replicas of a `tf.distribute` strategy, or a single replica without one.

    `run` calls a function on all replicas. Inside it, `share` returns the replica's range of a loop, and
    `all_reduce_sum` and `gather_range` combine the results. All replicas get identical bits.

    Attributes:
        parallel: Client blocks, or batches, that a replica computes at the same time.
        strategy: `tf.distribute.Strategy`, or None.
    """

    parallel: int
    strategy: tf.distribute.Strategy | None = None

    @property
    def count(self) -> int:
        """Number of replicas."""
        return 1 if self.strategy is None else self.strategy.num_replicas_in_sync

    @property
    def number(self) -> tf.Tensor | int:
        """Index of this replica; valid inside `run`."""
        return 0 if self.strategy is None else tf.distribute.get_replica_context().replica_id_in_sync_group

    @property
    def local_range(self) -> range:
        """Indices of the replicas in this process."""
        resolver = None if self.strategy is None else self.strategy.cluster_resolver
        if resolver is None:
            return range(self.count)
        each = self.count // resolver.cluster_spec().num_tasks("worker")
        return range(resolver.task_id * each, (resolver.task_id + 1) * each)

    def run(self, function: Callable, *arguments: Any) -> Any:
        """Call a function on every replica with the same arguments; return the result of the first local one."""
        if self.strategy is None:
            return function(*arguments)
        results = self.strategy.run(function, arguments)
        return tf.nest.map_structure(lambda value: self.strategy.experimental_local_results(value)[0], results)

    def compiled(self, function: Callable, **options: Any) -> Callable:
        """Return `run` of a function as a tf.function; `options` are those of `tf.function`."""
        # TensorFlow's warning of frequent traces counts them by code object, but those of each partial alone.
        on_all = functools.partial(function) if self.strategy is None else functools.partial(self.run, function)
        return tf.function(on_all, autograph=False, **options)

    def share(self, count: tf.Tensor | int) -> tuple[tf.Tensor | int, tf.Tensor | int]:
        """Return the half-open range of the `count` loop iterations that this replica runs."""
        if self.strategy is None:
            return 0, count
        return self.number * count // self.count, (self.number + 1) * count // self.count

    def sum_range(self, count: tf.Tensor | int, function: Callable, start: list[tf.Tensor]) -> list[tf.Tensor]:
        """Add the lists `function(index)` to `start`, for this replica's `share` of `count` indices."""
        first, end = self.share(count)

        def body(index, total):
            return index + 1, [summed + value for summed, value in zip(total, function(index))]

        loop = tf.while_loop(lambda index, _: index < end, body, (first, start), parallel_iterations=self.parallel)
        return loop[1]

    def concat_range(self, count: tf.Tensor | int, function: Callable, spec: Any) -> Any:
        """Concatenate the rows `function(index)`, of any number, for this replica's `share` of `count` indices.

        Args:
            function: `index -> rows`, a nest of tensors.
            spec: The nest of their `tf.TensorSpec`; the shapes start with None.
        """
        first, end = self.share(count)
        arrays = tf.nest.map_structure(
            lambda rows: tf.TensorArray(rows.dtype, end - first, infer_shape=False, element_shape=rows.shape), spec
        )

        def body(index, arrays):
            rows = function(index)
            return index + 1, tf.nest.map_structure(lambda array, row: array.write(index - first, row), arrays, rows)

        loop = tf.while_loop(lambda index, _: index < end, body, (first, arrays), parallel_iterations=self.parallel)
        return tf.nest.map_structure(lambda array: array.concat(), loop[1])

    def gather_range(self, starts: dict[str, tf.Tensor], function: Callable, spec: dict) -> dict[str, tf.Tensor]:
        """Concatenate the rows `function(index)` of all indices, which the replicas share.

        Args:
            starts: `{name: int32 [indices + 1]}`, position of the first row of each index, and the number of rows.
            function: `index -> {name: rows}`.
            spec: `{name: tf.TensorSpec}` of the rows; the shapes start with None.
        """
        count = next(iter(starts.values())).shape[0] - 1
        rows = self.concat_range(count, function, spec)
        if self.strategy is None:
            return rows
        index, _ = self.share(count)

        def pad(name, values):
            first = starts[name][index]
            after = starts[name][-1] - first - tf.shape(values)[0]
            return tf.pad(values, [[first, after], *[[0, 0]] * (values.shape.rank - 1)])

        return self.all_reduce_sum({name: pad(name, values) for name, values in rows.items()})

    def all_reduce_sum(self, values: Any) -> Any:
        """Sum a nest of tensors over all replicas, with one collective for each dtype."""
        if self.strategy is None:
            return values
        flat = tf.nest.flatten(values)
        for dtype in dict.fromkeys(value.dtype for value in flat):
            positions = [at for at, value in enumerate(flat) if value.dtype == dtype]
            # One collective for each tensor could deadlock: loops on workers would wait for each other.
            total = _all_reduce(tf.concat([tf.reshape(flat[at], [-1]) for at in positions], 0), dtype)
            pieces = tf.split(total, [tf.size(flat[at]) for at in positions], num=len(positions))
            for at, piece in zip(positions, pieces):
                flat[at] = tf.ensure_shape(tf.reshape(piece, tf.shape(flat[at])), flat[at].shape)
        return tf.nest.pack_sequence_as(values, flat)


def _all_reduce(vector, dtype):
    """Sum a vector over all replicas; booleans are added as integers."""
    numbers = tf.cast(vector, tf.int32) if dtype == tf.bool else tf.identity(vector)
    return tf.cast(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, numbers), dtype)
