"""Measures the clients' own models, where some units stay with the clients: each on its client's test examples."""

import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf.evaluation import calibration
from hetero_tf.evaluation.global_test import local_metrics
from hetero_tf.inputs import all_labels
from hetero_tf.models.family import predicted
from hetero_tf.models.variables import values
from hetero_tf.rounds.stack_update import own_values


@dataclass(frozen=True)
class Settings:
    """How clients are tested.

    Attributes:
        batch_size: Examples of a test batch.
        statistics_batch: Examples of a batch of the query for static batch normalisation.
        masks_labels: Whether the logits of labels that a client lacks are set to zero.
        parallel: Clients in flight at once.
    """

    batch_size: int
    statistics_batch: int
    masks_labels: bool
    parallel: int


def build_personal_test(models, levels, train, paths, shares, test, pairs, settings):
    """Compiles the evaluation of every client's own model.

    A client's own model has the values that stay with it and the global ones elsewhere. Statistics of static batch
    normalisation that were pooled over all clients would not be those of its activations, so they are queried with
    its own model on its own training examples: averages over its batches in their stored order, each counting 1. A
    client without training examples keeps mean 0 and variance 1.

    Args:
        models: Keras predictors, one for each level that a client may be tested at.
        levels: int [clients], which of them each client has.
        train: `parts.Examples`, the training split.
        paths: Paths of the global values, in their order.
        shares: `partitions.shares.Shares` of the training examples.
        test: (x, y), the stored test split.
        pairs: `evaluation.LocalTest`.
        settings: `Settings`.

    Returns:
        `(weights, tables, seed) -> metrics` as `evaluation.local_metrics` gives them. weights: list of global values;
        tables: `{position: [clients, ...]}`, what clients keep; seed: scalar int32, of the query.
    """
    ids = pairs.clients.ids
    ends = np.cumsum(pairs.clients.counts)
    work = tf.constant(
        np.stack(
            [
                ids,
                np.asarray(levels)[ids],
                ends - pairs.clients.counts,
                ends,
                shares.starts[ids],
                shares.starts[ids + 1],
            ],
            1,
        ),
        tf.int32,
    )
    examples, own_examples = tf.constant(pairs.examples), tf.constant(shares.ids)
    testers = [_Tester(model, train, paths, test, settings) for model in models]

    @tf.function(autograph=False)
    def run(weights, tables, seed):
        def logits(tester, client, first, last, begin, end):
            own = tester.own(own_values(weights, tables, client))
            state = tester.state(own, own_examples[begin:end], tf.stack([seed, client]))
            return tester.logits(own, state, examples[first:last])

        def body(place, record):
            client, level, *bounds = tf.unstack(work[place])
            branches = [functools.partial(logits, tester, client, *bounds) for tester in testers]
            return place + 1, record.write(place, tf.switch_case(level, branches))

        record = tf.TensorArray(
            weights[0].dtype, size=len(ids), infer_shape=False, element_shape=[None, pairs.present.shape[1]]
        )
        _, record = tf.while_loop(
            lambda place, _: place < len(ids), body, (0, record), parallel_iterations=settings.parallel
        )
        return local_metrics(record.concat(), tf.gather(test[1], examples), pairs, settings.masks_labels)

    return run


@dataclass(frozen=True)
class _Tester:
    """A level's predictor and what it is tested with; arguments as those of `build_personal_test`."""

    model: object
    train: object
    paths: list
    test: tuple
    settings: Settings

    def own(self, given):
        """`{path: value}` of one client's values, given like the global ones, in the predictor's shapes."""
        return {
            variable.path: predicted(variable, lambda path: given[self.paths.index(path)])
            for variable in values(self.model)
        }

    def _learned(self, own):
        return [own[variable.path] for variable in self.model.trainable_variables]

    def state(self, own, rows, key):
        """The non-trainable values, those of static batch normalisation queried on the rows of the training split."""
        start = [own[v.path] if v.path in own else tf.convert_to_tensor(v) for v in self.model.non_trainable_variables]
        queried = calibration.statistics_paths(self.model)
        wanted = [place for place, v in enumerate(self.model.non_trainable_variables) if v.path in queried]
        if not wanted:
            return start
        size = self.settings.statistics_batch
        batches = -(-tf.shape(rows)[0] // size)

        def body(batch, total):
            inputs, _ = self.train.input.batch(
                self.train.x,
                self.train.y,
                rows[batch * size : (batch + 1) * size],
                0,
                tf.concat([key, [batch]], 0),
                all_labels(0),
                training=True,
            )
            _, after = self.model.stateless_call(self._learned(own), start, inputs, training=True)
            return batch + 1, [have + after[place] for have, place in zip(total, wanted)]

        zeros = [tf.zeros_like(start[place]) for place in wanted]
        _, total = tf.while_loop(lambda batch, _: batch < batches, body, (0, zeros), parallel_iterations=1)
        for place, value in zip(wanted, total):
            start[place] = tf.where(batches > 0, value / tf.cast(tf.maximum(batches, 1), value.dtype), start[place])
        return start

    def logits(self, own, state, rows):
        """[rows, classes] on rows of the test split."""
        size = self.settings.batch_size
        batches = -(-tf.shape(rows)[0] // size)

        def body(batch, record):
            inputs, _ = self.train.input.batch(
                *self.test,
                rows[batch * size : (batch + 1) * size],
                0,
                tf.zeros([1], tf.int32),
                all_labels(0),
                training=False,
            )
            found, _ = self.model.stateless_call(self._learned(own), state, inputs, training=False)
            return batch + 1, record.write(batch, found)

        record = tf.TensorArray(
            self._learned(own)[0].dtype,
            size=batches,
            infer_shape=False,
            element_shape=[None, self.model.outputs[0].shape[-1]],
        )
        return tf.while_loop(lambda batch, _: batch < batches, body, (0, record), parallel_iterations=1)[1].concat()
