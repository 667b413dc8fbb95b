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
    `all_reduce_sum` and `all_gather_rows` combine the results. All replicas get identical bits.

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

    def concat_range(self, count: tf.Tensor | int, function: Callable, dtype: tf.DType, shape: list) -> tf.Tensor:
        """Concatenate the rows `function(index)`, of any number, for this replica's `share` of `count` indices.

        Args:
            count: Number of indices.
            function: Returns rows of type `dtype`.
            dtype, shape: Of the rows of one index; `shape` starts with None.
        """
        first, end = self.share(count)
        rows = tf.TensorArray(dtype, size=end - first, infer_shape=False, element_shape=shape)

        def body(index, rows):
            return index + 1, rows.write(index - first, function(index))

        loop = tf.while_loop(lambda index, _: index < end, body, (first, rows), parallel_iterations=self.parallel)
        return loop[1].concat()

    def all_reduce_sum(self, values: Any) -> Any:
        """Sum a nest of tensors over all replicas, with one collective for each dtype."""
        if self.strategy is None:
            return values
        flat = tf.nest.flatten(values)
        by_type = {dtype: [at for at, value in enumerate(flat) if value.dtype == dtype] for dtype in _types(flat)}
        for dtype, positions in by_type.items():
            # One collective for each tensor could deadlock: loops on workers would wait for each other.
            total = _all_reduce(tf.concat([tf.reshape(flat[at], [-1]) for at in positions], 0), dtype)
            pieces = tf.split(total, [tf.size(flat[at]) for at in positions], num=len(positions))
            for at, piece in zip(positions, pieces):
                flat[at] = tf.ensure_shape(tf.reshape(piece, tf.shape(flat[at])), flat[at].shape)
        return tf.nest.pack_sequence_as(values, flat)

    def all_gather_rows(self, rows: tf.Tensor, first: tf.Tensor | int, count: tf.Tensor | int) -> tf.Tensor:
        """Gather all rows [count, ...]; each replica has consecutive rows from `first` on."""
        if self.strategy is None:
            return rows
        after = count - first - tf.shape(rows)[0]
        return self.all_reduce_sum(tf.pad(rows, [[first, after], *[[0, 0]] * (rows.shape.rank - 1)]))


def _types(tensors):
    return dict.fromkeys(value.dtype for value in tensors)


def _all_reduce(vector, dtype):
    """Sum a vector over all replicas; booleans are added as integers."""
    numbers = tf.cast(vector, tf.int32) if dtype == tf.bool else tf.identity(vector)
    return tf.cast(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, numbers), dtype)
