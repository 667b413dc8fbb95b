"""The learning process of a recipe as pure steps, for notebooks and for the command line.

    recipe = hetero_tf.load_recipe("recipes/digits.yaml")
    process = hetero_tf.learning_process(recipe)
    state = process.initialize()
    state, metrics = process.next(state)
    model = process.model(state, level="e")
"""

import functools
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from hetero_tf import cut as cuts
from hetero_tf import data, evaluation, levels, plans, registry, seeds
from hetero_tf.inputs import Input
from hetero_tf.models import build_model
from hetero_tf.rounds import RoundParts, build_round


@dataclass(frozen=True)
class State:
    """What one round hands to the next.

    Attributes:
        round: Finished rounds.
        weights: Global trainable values by variable path.
    """

    round: int
    weights: dict


@dataclass(frozen=True)
class LearningProcess:
    """Everything built once for a recipe. Make it with `learning_process`.

    Attributes:
        recipe: `recipe.schema.Recipe`.
        dataset: `data.dataset.Dataset`.
        partition: `partitions.partition.Partition`.
        input: `inputs.Input`.
        global_model: Keras model at the global level, with the initial values.
        parts: `rounds.RoundParts`.
        parallel: Clients in flight at once.
    """

    recipe: object
    dataset: object
    partition: object
    input: Input
    global_model: object
    parts: RoundParts
    parallel: int

    def initialize(self):
        """The state before the first round."""
        return State(0, {v.path: tf.convert_to_tensor(v) for v in self.global_model.trainable_variables})

    def next(self, state, cohort=None):
        """Runs one round.

        Args:
            state: `State`.
            cohort: Ids of the active clients; None draws them as the recipe says.

        Returns:
            The new `State`, and metrics as `run` gives them for one round.
        """
        state, rows = self.run(state, [self.plan(state.round, cohort)])
        return state, rows[0]

    def plan(self, round, cohort=None, attempt=0):
        """The `plans.Plan` of a round."""
        starts = self.input.starts(self.dataset.train.x)
        return plans.plan_round(self.recipe, self.partition, starts, self.input.shuffle, round, cohort, attempt)

    def run(self, state, planned):
        """Runs the planned rounds, which must follow `state.round`, in one call.

        Returns:
            The new `State`, and per round a dict: loss and gradient_norm (means over the finite clients), lost
            (clients left out because their result was not finite), clients per level, learning_rate.
        """
        rates = [self.learning_rate(state.round + index) for index in range(len(planned))]
        weights, found = self._round(
            list(state.weights.values()), [tf.constant(array) for array in plans.stack(planned).arrays()],
            tf.constant(rates, self.recipe.precision), state.round, self._seed)
        rows = [self._row(plan, rate, {name: values[index].numpy() for name, values in found.items()})
                for index, (plan, rate) in enumerate(zip(planned, rates))]
        return State(state.round + len(planned), dict(zip(state.weights, weights))), rows

    def examples(self, plan):
        """Images, or tokens of text, that each client of a plan trains on: int [cohort]."""
        chosen = np.sum(plan.rows >= 0, axis=-1)
        x = self.dataset.train.x
        if self.dataset.train.y is None:
            firsts = np.asarray(self.input.starts(x))
            lengths = np.diff(firsts, append=x.shape[1])
            chosen = chosen * lengths[np.searchsorted(firsts, plan.starts)]
        return chosen.sum(axis=-1)

    def learning_rate(self, round):
        """The local learning rate of a round, counted from 0."""
        schedule = self.recipe.schedule
        multiplier = registry.find("schedules", schedule.name).multiplier
        return self.recipe.optimizer.learning_rate * multiplier(round, **schedule.options)

    def _row(self, plan, rate, found):
        names, finite = self.recipe.levels.names, found["finite"]
        kept = {name: found[name][finite] for name in ("loss", "gradient_norm")}
        means = {name: float(values.mean()) if values.size else None for name, values in kept.items()}
        mix = {name: int(np.sum(plan.levels == place)) for place, name in enumerate(names)}
        return {**means, "lost": int(np.sum(~finite)), "levels": mix, "learning_rate": rate}

    def evaluate(self, state):
        """Measures the global model.

        Returns:
            Metrics by name, and the statistics of static batch normalisation by variable path (empty without it).
        """
        weights = list(state.weights.values())
        statistics = self.statistics(state)
        found = self._test(weights, list(statistics.values()))
        metrics = {name: float(value) for name, value in found.items() if value.shape.rank == 0}
        return metrics, statistics

    def statistics(self, state):
        """The statistics query of static batch normalisation: `{path: value}`."""
        paths = evaluation.statistics_paths(self.global_model)
        if not paths:
            return {}
        settings, seed = self.recipe.evaluate, self.recipe.seed
        pooled = settings.statistics == "pooled"
        examples = [np.arange(len(self.dataset.train.x), dtype=np.int32)] if pooled else self.partition.train
        full, short = evaluation.statistics_batches(
            examples, settings.statistics_batch, seeds.rng(seed, "statistics", state.round))
        key = seeds.seed32(seed, "statistics noise", state.round)
        return dict(zip(paths, self._calibrate(list(state.weights.values()), full, short, key)))

    def model(self, state, level=None, statistics=None):
        """The trained Keras model at any level, with all classes.

        Args:
            state: `State`.
            level: Name of a level of the mix; None for the global model.
            statistics: As `statistics` gives them; None queries them. Levels narrower than the global one get the
                first channels of the global statistics.
        """
        level = self.recipe.levels.global_level if level is None else level
        statistics = self.statistics(state) if statistics is None else statistics
        model = self._build(level, self.dataset.classes)
        values = {**state.weights, **statistics}
        for variable in model.variables:
            if variable.path in values:
                value = values[variable.path]
                variable.assign(tf.slice(value, [0] * len(variable.shape), variable.shape))
        return model

    def _build(self, level, classes):
        return _build_level(self.recipe, self.input, self.dataset, level, classes)

    @functools.cached_property
    def _seed(self):
        return tf.constant(seeds.seed32(self.recipe.seed, "round"))

    @functools.cached_property
    def _round(self):
        return build_round(self.parts)

    @functools.cached_property
    def _calibrate(self):
        top = self.recipe.levels.global_level
        grouped = self._build(top, self.dataset.classes)
        return evaluation.build_calibrate(self.global_model, grouped, self.input, self.parts.x, self.parts.y,
                                          self.recipe.evaluate.statistics_batch, self.parallel)

    @functools.cached_property
    def _test(self):
        size, test = self.recipe.evaluate.batch_size, self.dataset.test
        if test.y is None:
            return evaluation.build_text_test(self.global_model, self.input, tf.constant(test.x),
                                              self.dataset.classes, size, self.recipe.seed, self.parallel)
        masks = _objective(self.recipe).MASKS_LABELS
        return evaluation.build_image_test(
            self.global_model, self.input, tf.constant(test.x), tf.constant(test.y), size,
            evaluation.local_test(self.partition), masks, self.parallel)


def learning_process(recipe, dataset=None, partition=None, data_dir=None, parallel=2):
    """Builds the learning process of a recipe.

    Args:
        recipe: `recipe.schema.Recipe`.
        dataset: `data.dataset.Dataset`; None loads the recipe's.
        partition: `partitions.partition.Partition`; None splits as the recipe says.
        data_dir: Folder of the data, see README.
        parallel: Clients in flight at once; the number of cores is best.
    """
    if dataset is None:
        dataset = data.load(recipe.data.loader, recipe.data.fallback, data_dir)
    if partition is None:
        partition = split(recipe, dataset)
    source = build_input(recipe)
    global_model = _build_level(recipe, source, dataset, recipe.levels.global_level, dataset.classes)
    parts = _round_parts(recipe, dataset, partition, source, global_model, parallel)
    return LearningProcess(recipe, dataset, partition, source, global_model, parts, parallel)


def build_input(recipe):
    """The recipe's `inputs.Input`."""
    return registry.find("inputs", recipe.input.name).build(recipe.precision, **recipe.input.options)


def split(recipe, dataset):
    """The recipe's partition of a data set."""
    labels = dataset.train.x if dataset.train.y is None else dataset.train.y
    test_labels = dataset.test.x if dataset.test.y is None else dataset.test.y
    splitter = registry.find("partitions", recipe.partition.name).split
    rng = seeds.rng(recipe.seed, "partition")
    return splitter(labels, test_labels, dataset.classes, rng, **recipe.partition.options)


def _objective(recipe):
    return registry.find("objectives", recipe.client.loss.name)


def _build_level(recipe, source, dataset, level, classes):
    """The recipe's Keras model at a level."""
    width, top = recipe.levels.widths[level], recipe.levels.widths[recipe.levels.global_level]
    return build_model(recipe.model, source.shape(dataset.train.x), width, width / top, classes, recipe.precision,
                       seeds.seed32(recipe.seed, "model"))


def label_table(partition):
    """Each client's labels as int32 [clients, most labels], -1 behind them."""
    own = [np.flatnonzero(row) for row in partition.label_mask]
    table = np.full((len(own), max(map(len, own))), -1, np.int32)
    for client, labels in enumerate(own):
        table[client, :len(labels)] = labels
    return table


def _round_parts(recipe, dataset, partition, source, global_model, parallel):
    """`RoundParts` of a recipe; the label axis is cut where that is exact and shortens it."""
    objective = _objective(recipe)
    table = label_table(partition)
    shortens = recipe.client.label_cut and objective.MASKS_LABELS and table.shape[1] < dataset.classes
    kept = table.shape[1] if shortens else dataset.classes
    models = tuple(_build_level(recipe, source, dataset, level, kept) for level in recipe.levels.names)
    narrowest = min(recipe.levels.names, key=recipe.levels.widths.get)
    label_axes = cuts.find_label_axes(
        lambda classes: _build_level(recipe, source, dataset, narrowest, classes))
    server = registry.find("servers", recipe.round.server.name).apply
    merge = registry.find("merges", recipe.round.merge.name).merge
    y = dataset.train.y
    return RoundParts(
        models=models, cut=cuts.build_cut(global_model, models, label_axes, dataset.classes),
        keep=registry.find("submodels", recipe.round.submodel.name).keep,
        objective=functools.partial(objective.loss, **recipe.client.loss.options),
        optimizer=recipe.optimizer,
        merge=functools.partial(merge, **recipe.round.merge.options),
        server=functools.partial(server, **recipe.round.server.options),
        input=source, x=tf.constant(dataset.train.x), y=None if y is None else tf.constant(y),
        labels=tf.constant(table) if shortens else None,
        present=tf.constant(table >= 0 if shortens else partition.label_mask), parallel=parallel)
