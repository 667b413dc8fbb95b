"""A recipe on its data: the clients with their examples, the models of all levels, and the setup of a round."""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from hetero_tf.base import registry, seeds
from hetero_tf.base.metrics import default_selection_metric
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.described import DescribedDataset
from hetero_tf.data.inputs import Examples, Input, batch_shapes, first_inputs, stored
from hetero_tf.data.partitions.partition import Partition
from hetero_tf.evaluation.evaluator import Evaluator
from hetero_tf.evaluation.global_metrics import Measures
from hetero_tf.methods.personalizations import LocalStep
from hetero_tf.methods.policies import AsynchronousPolicy, round_policy
from hetero_tf.models import nesting
from hetero_tf.models.compiled import UserFunctions
from hetero_tf.models.costs.level_costs import (
    ClientCost,
    LevelCost,
    LevelCosts,
    RoundCost,
    costs_to_json,
    round_cost,
    train_flops_table,
)
from hetero_tf.models.costs.memory import LevelWork, budget_shares, level_work
from hetero_tf.models.custom_model import ModelBuilder
from hetero_tf.models.family import ModelFamily, build_family
from hetero_tf.models.global_layout import (
    build_global_layout,
    global_shapes,
    initial_peers,
    initial_values,
    label_table,
    last_blocks,
    may_cut_labels,
)
from hetero_tf.models.preprocessed import packed_builder
from hetero_tf.models.state import State, StateLayout
from hetero_tf.models.variables import queried, tracked
from hetero_tf.planning.packing import pack_rounds, share_blocks
from hetero_tf.planning.plan import Batching, Division, Plan
from hetero_tf.planning.privacy_account import PrivacyAccount, expected_clients
from hetero_tf.planning.selection import begin_history, reads_history
from hetero_tf.planning.timing import RoundClock
from hetero_tf.recipe.schema import Plugin, Recipe, is_compression
from hetero_tf.rounds.arrivals import StaleMerge
from hetero_tf.rounds.client_block import entry_masks
from hetero_tf.rounds.engine import Engine, choose_engine, report
from hetero_tf.rounds.round_setup import Algorithm, LocalOptimizer, PrivateMerge, RoundSetup, Update, build_submodels
from hetero_tf.run.checks import build_task, example_shape
from hetero_tf.run.data import with_client_noise

if TYPE_CHECKING:
    from typing_extensions import Self
from hetero_tf.base.errors import InputError, NotFinite, UserError


@dataclass(frozen=True)
class Federation:
    """The objects of a recipe. Create them with `Federation.of`.

    Attributes:
        noise: Key and multiplier of the noise of a run that is continued, see `planning.privacy_account`; None for new
            ones.
    """

    recipe: Recipe
    dataset: Dataset
    partition: Partition
    input: Input
    family: ModelFamily
    setup: RoundSetup
    evaluator: Evaluator
    functions: UserFunctions
    noise: tuple[bytes, float] | None = None

    @classmethod
    def of(
        cls,
        family: ModelFamily,
        dataset: Dataset,
        partition: Partition,
        source: Input,
        replicas: Replicas,
        functions: UserFunctions,
    ) -> "Self":
        """Build the objects of a model family; arguments as for `build_setup`."""
        recipe = family.recipe
        local = with_client_noise(recipe, dataset, partition)
        setup = build_setup(recipe, local, partition, family, source, replicas, functions)
        task = build_task(recipe, dataset)
        if functions.outputs:
            task = functions.task(task)
        measures = Measures.of(recipe, task, functions.metrics, getattr(functions.loss, "test_loss", None))
        evaluator = Evaluator(dataset, partition, family, setup.examples, measures, replicas, local)
        return cls(recipe, dataset, partition, source, family, setup, evaluator, functions)

    @functools.cached_property
    def paths(self) -> tuple[str, ...]:
        """Paths of the global values, in order."""
        return tuple(global_shapes(self.family))

    @functools.cached_property
    def seed(self) -> tf.Tensor:
        """Seed of the random numbers inside the round."""
        return tf.constant(seeds.seed32(self.recipe.seed, "round"))

    @functools.cached_property
    def privacy(self) -> PrivacyAccount | None:
        """The privacy account; None without privacy."""
        if self.recipe.privacy is None:
            return None
        account = PrivacyAccount.of(self.recipe, len(self.partition.train))
        return account if self.noise is None else account.resumed(*self.noise)

    @property
    def default_selection_metric(self) -> str:
        """Metric that selects the best round if the recipe has none."""
        return default_selection_metric(self.recipe.metrics, bool(self.partition.held_out.ids.size))

    @property
    def selection_metric(self) -> str:
        """Metric that selects the best round."""
        return self.recipe.evaluate.best or self.default_selection_metric

    @property
    def present_outputs(self) -> np.ndarray:
        """bool [clients, outputs], the outputs of the model that belong to the labels of each client."""
        return self.evaluator.measures.task.present_outputs(self.partition.label_mask)

    @property
    def example_shape(self) -> tuple[int, ...]:
        """Shape of one input: (height, width, channels), or (positions,) of a text segment."""
        return example_shape(self.input, self.dataset.train.x)

    @property
    def division(self) -> Division:
        """Stages of the levels of the mix."""
        stages = tuple(len(self.family.stages[name]) for name in self.recipe.levels.names)
        return Division(stages, self.family.drawn)

    @functools.cached_property
    def batching(self) -> Batching:
        """Division of the examples of clients into local steps."""
        starts = self.input.starts(self.dataset.train.x)
        classes = self.dataset.strata[0] if self.recipe.client.sampling == "balanced" else None
        return Batching(self.recipe, starts, self.input.shuffle, self.division, classes)

    @functools.cached_property
    def client_costs(self) -> tuple[ClientCost, ...]:
        """Cost of a client in a round, by level of the mix."""
        costs = LevelCosts(self.family, self.setup.examples.present.shape[1])
        return costs.of_clients(self.present_outputs.sum(axis=1))

    @functools.cached_property
    def all_label_costs(self) -> LevelCosts:
        """Costs of the levels' models with the outputs of all labels."""
        return LevelCosts(self.family, self.family.classes)

    @functools.cached_property
    def level_work(self) -> dict[str, LevelWork]:
        """Work of a client in a round, by name of the level of the mix."""
        return work_of(self.family, self.input, self.dataset, self.partition)

    @functools.cached_property
    def clock(self) -> RoundClock | None:
        """Clock of the fleet; None without a fleet."""
        if self.recipe.fleet is None:
            return None
        down, up = (np.asarray([getattr(each, f"bytes_{way}") for each in self.client_costs]) for way in ("down", "up"))
        return RoundClock(self.recipe, len(self.partition.train), down, up, train_flops_table(self.client_costs))

    @functools.cached_property
    def state_layout(self) -> StateLayout:
        """Order and shapes of the values of a state."""
        setup, algorithm = self.setup, self.setup.algorithm
        memories = {"memory": algorithm.remember, "errors": algorithm.update and algorithm.update.has_errors}
        return StateLayout(
            shapes=dict(zip(self.paths, setup.layout.cut.shapes, strict=True)),
            dtype=setup.layout.dtype,
            slots=registry.find("servers", self.recipe.round.server.name).SLOTS,
            registered=len(self.partition.train),
            ensemble=self.recipe.levels.ensemble,
            personal=tuple(self.paths[position] for position in setup.layout.personal),
            memories=tuple(name for name, is_stored in memories.items() if is_stored),
            peers=setup.peers,
            **{name: self.paths[: setup.layout.trainable] for name in (self.recipe.twin,) if name},
            delays=0 if algorithm.stale_merge is None else algorithm.stale_merge.delays,
        )

    def begin(self, weights: dict[str, tf.Tensor]) -> State:
        """Return the state before the first round for global weights by path; see `models.initial_weights`."""
        values = self.state_layout.build(tf.zeros) | {"weights": weights}
        tables = values["clients"]
        # Personal units and twins of every client start from the global values.
        for name in ("personal", "twin", "previous"):
            tables[name] = {path: zeros + weights[path] for path, zeros in tables[name].items()}
        plugin = self.recipe.client.personalization
        if plugin is not None and tables["twin"]:
            tables["twin_scalars"]["alpha"] += plugin.options.get("alpha", 1.0)
        if tables["peers"]:
            drawn = initial_peers(self.family, list(weights.values()), self.setup.peers)
            tables["peers"] = {path: zeros + peers for (path, zeros), peers in zip(tables["peers"].items(), drawn)}
        state = self.state_layout.state_of(0, values)
        return dataclasses.replace(state, history=begin_history(self.recipe, len(self.partition.train)))

    def blank(self) -> State:
        """Return a state with the right shapes, without reading `model.initial_weights`."""
        return self.begin(initial_values(self.family))

    def learning_rate(self, round: int) -> float:
        """Return the local learning rate of a round, counted from 0."""
        schedule = self.recipe.schedule
        factor = registry.find("schedules", schedule.name).multiplier(round, **schedule.options)
        return self.recipe.optimizer.learning_rate * float(factor)

    def round_cost(self, plan: Plan) -> RoundCost:
        """Return the cost of a round for each client of its plan."""
        return round_cost(self.client_costs, plan.levels, *plan.work())

    def replica_shares(self, plan: Plan, replicas: int) -> tuple[tuple[int, float], ...]:
        """Return the number of clients and the share of the work of each replica in a round."""
        packed, (slots,) = pack_rounds([plan], self.setup.block_sizes, self.family.submodel_of)
        work = self.round_cost(plan).train_flops
        shared = share_blocks(packed, slots, work, replicas)
        # [cohort]
        replica_of_client = shared.replicas[0, slots // shared.clients.shape[2]]
        return tuple(
            (int((replica_of_client == replica).sum()), float(work[replica_of_client == replica].sum() / work.sum()))
            for replica in range(replicas)
        )

    def metrics_row(self, plan: Plan, learning_rate: float, records: dict, outcome: dict) -> dict:
        """Return the metrics of a round, see `base.metrics`.

        Args:
            records: `{"loss", "gradient_norm", "finite"}`, each [cohort] in the order of the plan.
        """
        finished, names = records["finite"] & (plan.steps > 0), self.recipe.levels.names
        means = {name: records[name][finished] for name in ("loss", "gradient_norm")}
        # An ensemble client has one slot in the plan for each network that it trains.
        _, first_slots = np.unique(plan.clients, return_index=True)
        counts = np.bincount(plan.levels[first_slots], minlength=len(names))
        return {
            **{name: float(values.mean()) if values.size else None for name, values in means.items()},
            "non_finite": len(np.unique(plan.clients[~records["finite"]])),
            "levels": dict(zip(names, counts.tolist())),
            "learning_rate": learning_rate,
            **self.round_cost(plan).metrics(),
            **outcome,
        }

    def engine_report(self) -> dict:
        """Return the engine's settings as a JSON dict; see `rounds.engine.report`."""
        blocks = [submodel.block for submodel in self.setup.submodels]
        return report(self.setup.engine, blocks, self.family)

    def costs_of(self, levels: Iterable[str]) -> dict[str, LevelCost]:
        """Return the costs of some levels, with the labels and the batches of the clients."""
        labels = self.present_outputs.sum(axis=1)
        batch = min(self.recipe.client.batch_size, int(self.partition.train.sizes.max()))
        return {name: self.all_label_costs.of_level(name, labels, batch) for name in levels}

    def unusual_local_steps(self) -> dict[str, bool]:
        """Return the keys of methods with more than local steps in float32, `{key: True if the recipe uses it}`."""
        recipe, adapters = self.recipe, self.recipe.round.adapters.name
        return {
            "levels.members": recipe.levels.ensemble is not None,
            "client.personalization": recipe.client.personalization is not None,
            "round.update": self.setup.algorithm.broadcast is not None,
            "round.mask": recipe.round.mask is not None,
            "round.personal": bool(recipe.round.personal),
            f"round.adapters: {adapters}": adapters != "mean",
            f"precision: {recipe.precision}": recipe.precision != "float32",
        }

    def mix_costs(self) -> dict:
        """Return the costs of the mix's levels as a dict: "example", "classes", "levels", "mix" and "round"."""
        levels = self.recipe.levels
        costs = costs_to_json(self.costs_of(levels.names), levels.divided(1))
        shares = budget_shares(self.all_label_costs).values() if levels.budgets else ()
        costs["mix"]["budget_share"] = max(shares, default=None)
        work = {
            "levels": {name: vars(cost) for name, cost in zip(levels.names, self.client_costs)},
            "draws_stages": self.division.drawn,
            "reads": len(self.batching.starts),
        }
        return {"example": tuple(self.example_shape), "classes": self.dataset.classes, **costs, "round": work}


def work_of(family: ModelFamily, source: Input, dataset: Dataset, partition: Partition) -> dict[str, LevelWork]:
    """Return the work of a client in a round, by name of the level of the mix."""
    recipe, labels = family.recipe, cut_labels(family.recipe, dataset, partition)
    present = build_task(recipe, dataset).present_outputs(partition.label_mask)
    costs = LevelCosts(family, (present if labels is None else labels).shape[1])
    batch = min(recipe.client.batch_size, int(partition.train.sizes.max()))
    return level_work(costs, present.sum(axis=1), batch, len(source.starts(dataset.train.x)))


def family_of(
    recipe: Recipe, source: Input, dataset: Dataset, device: str, function: ModelBuilder | None = None
) -> ModelFamily:
    """Build the `ModelFamily` of a recipe for its data; see `models.family.build_family`."""
    x, inputs = dataset.train.x, None
    outputs = recipe.num_outputs(dataset.classes)
    if function is not None:
        function = packed_builder(function, dataset)
        # A described data set is that of a finished run, whose models were checked.
        if not isinstance(dataset, DescribedDataset):
            inputs = first_inputs(source, x, dataset.classes, nesting.MOST_EXAMPLES)
    return build_family(recipe, source.shape(x), example_shape(source, x), outputs, function, device, inputs)


def build_setup(
    recipe: Recipe,
    dataset: Dataset,
    partition: Partition,
    family: ModelFamily,
    source: Input,
    replicas: Replicas,
    functions: UserFunctions,
) -> RoundSetup:
    """Build the `RoundSetup` of a recipe.

    Args:
        replicas: Replicas that share the round, and the number of blocks that each trains in parallel.
        functions: The loss that the recipe does not have.
    """
    labels = cut_labels(recipe, dataset, partition)
    label_axis = family.classes if labels is None else labels.shape[1]
    batch = min(recipe.client.batch_size, int(partition.train.sizes.max()))
    engine, blocks = choose_engine(family, label_axis, batch, replicas)
    plugin = recipe.client.personalization
    if plugin and recipe.twin and tracked(family.training_model(recipe.levels.global_level, label_axis)):
        raise InputError(
            "client.personalization: a twin stores no running statistics; use norms without them, such as sbn, gn or "
            f"ln. Received: {plugin.name}"
        )
    layout = build_global_layout(family, label_axis)
    return RoundSetup(
        _examples(recipe, dataset, partition, source, labels, engine),
        _algorithm(family, dataset, partition, functions),
        layout,
        build_submodels(layout, blocks, entry_masks(family, label_axis)),
        engine,
        on_progress=None,
        private=_private_merge(family, len(partition.train)),
    )


def _private_merge(family: ModelFamily, registered: int) -> PrivateMerge | None:
    recipe = family.recipe
    if recipe.privacy is None:
        return None
    model = family.training_model(recipe.levels.global_level, family.classes)
    if statistics := [*tracked(model), *queried(model)]:
        raise InputError(
            "privacy: norms with statistics of the clients' examples (sbn, bn, wbn, and BatchNormalization of Keras) "
            f"are not private; use norms of kind gn, ln, in or none. Received: {statistics[0].path}"
        )
    clients = np.bincount(family.submodel_of, expected_clients(recipe, registered), len(family.submodels))
    summands = 1 if recipe.privacy.bands == 1 else None
    return PrivateMerge(recipe.privacy.clip, summands, tuple(clients.tolist()))


def cut_labels(recipe: Recipe, dataset: Dataset, partition: Partition) -> np.ndarray | None:
    """Return the table of labels of each client that label axes are cut to; None if not exact or without effect."""
    if not may_cut_labels(recipe):
        return None
    table = label_table(partition.label_mask)
    return table if table.shape[1] < dataset.classes else None


def _examples(
    recipe: Recipe, dataset: Dataset, partition: Partition, source: Input, labels: np.ndarray | None, engine: Engine
) -> Examples:
    sizes, y, task = partition.train.sizes, dataset.train.y, build_task(recipe, dataset)
    y = None if y is None else task.encode(y)
    cohort = round_policy(recipe.round.policy).cohort_size(recipe.round.clients)
    shapes = batch_shapes(source, dataset.train.x, sizes, recipe.client.batch_size)
    # XLA needs all shapes in advance; a single static shape also simplifies gradients.
    known = engine.compiled or (len(shapes) == 1 and recipe.engine == "auto")
    return Examples(
        input=source,
        x=stored(dataset.train.x),
        y=None if y is None else tf.constant(y),
        # XLA compiles a program per number of rows, so use the maximum over all cohorts.
        min_rows=int(np.sort(sizes)[-cohort:].sum()) if engine.compiled else 0,
        labels=None if labels is None else tf.constant(labels),
        present=tf.constant(task.present_outputs(partition.label_mask) if labels is None else labels >= 0),
        counts=None if recipe.round.weighting == "uniform" else tf.constant(sizes, recipe.float_type),
        batch_shapes=shapes if known else (None,),
        sizes=tf.constant(sizes, tf.int32),
        weights=None if dataset.train.weights is None else tf.constant(dataset.train.weights, recipe.float_type),
    )


def _algorithm(family: ModelFamily, dataset: Dataset, partition: Partition, functions: UserFunctions) -> Algorithm:
    recipe = family.recipe
    client, server, method = recipe.client, registry.find("servers", recipe.round.server.name), recipe.optimizer.method
    slots = registry.find("optimizers", method.name).SLOTS
    correct, remember, reads = _correction(client.correction)
    return Algorithm(
        submodel=_function("submodels", recipe.round.submodel),
        loss=_loss(recipe, dataset) if functions.loss is None else functions.loss.loss,
        couple=_function("couplings", client.coupling),
        correct=correct,
        remember=remember,
        read_slots=tuple(server.SLOTS.index(name) for name in reads),
        personalize=_personalization(client.personalization),
        update=_update(client.update),
        broadcast=_update(recipe.round.update),
        optimizer=LocalOptimizer(_function("optimizers", method), len(slots), recipe.optimizer.clip_norm),
        aggregate=_aggregate(family),
        server=functools.partial(_function("servers", recipe.round.server), registered=len(partition.train)),
        sums_memory="memory_change" in inspect.signature(server.apply).parameters,
        stale_merge=_stale_merge(recipe, partition.train.sizes),
        records_squares=reads_history(recipe),
    )


def _aggregate(family: ModelFamily) -> Callable | None:
    """Return the function of the recipe's merge with its options, or None for the mean."""
    recipe = family.recipe
    plugin, correction = recipe.round.merge, recipe.client.correction
    if plugin.name == "mean":
        return None
    function = _function("merges", plugin)
    names = inspect.signature(function).parameters.keys() - plugin.options.keys()
    momentum = recipe.optimizer.method.options.get("momentum", 0.0)
    settings = {"momentum": momentum, "mu": 0.0 if correction is None else correction.options.get("mu", 0.0)}
    settings |= {"blocks": last_blocks(family)} if "blocks" in names else {}

    def aggregate(old, **clients):
        return function(old, **{name: value for name, value in (settings | clients).items() if name in names})

    return aggregate


def _stale_merge(recipe: Recipe, sizes: np.ndarray) -> StaleMerge | None:
    """Return the merge of stale results of an asynchronous policy; `sizes`: training examples of each client."""
    policy = _function("policies", recipe.round.policy)()
    if not isinstance(policy, AsynchronousPolicy):
        return None
    # A buffer of clients of average weight.
    weight = 1.0 if recipe.round.weighting == "uniform" else float(sizes.mean())
    divisor = policy.buffer * weight if policy.divisor == "buffer" else policy.divisor
    return StaleMerge(policy.factors, policy.adds, divisor)


def _loss(recipe: Recipe, dataset: Dataset) -> Callable:
    loss = _function("losses", recipe.loss)
    if recipe.loss.options.get("class_weights", "none") == "none":
        return loss
    counts = np.bincount(dataset.fitted.labels.reshape(-1), minlength=dataset.classes)
    return functools.partial(loss, class_shares=counts / counts.sum())


def _correction(plugin: Plugin | None) -> tuple[Callable | None, Callable | None, tuple[str, ...]]:
    """Return the functions `correct` and `remember` of a correction (or None), and the server slots that it reads."""
    if plugin is None:
        return None, None, ()
    module = registry.find("corrections", plugin.name)
    remember = registry.function_of("corrections", plugin, "remember") if module.REMEMBERS else None
    return _function("corrections", plugin), remember, module.READS


def _update(plugin: Plugin | None) -> Update | None:
    if plugin is None:
        return None
    function = _function("updates", plugin)
    needs_entries = "entries" in inspect.signature(function).parameters

    def transform(weights, start, steps, key, entries):
        return function(weights, start, steps, key, **({"entries": entries} if needs_entries else {}))

    return Update(transform, is_compression(plugin), plugin.options.get("error_feedback", False))


def _personalization(plugin: Plugin | None) -> Callable | None:
    personalize = _function("personalizations", plugin)
    return personalize and (lambda **fields: personalize(LocalStep(**fields)))


def _function(kind: str, plugin: Plugin | None) -> Any:
    """Return a plug-in's function with the options of the recipe; None without a plug-in."""
    return None if plugin is None else registry.function_of(kind, plugin)


# Key of the metrics of a failed round; such rows are not written.
FAILURE = "failure"


@dataclass(frozen=True)
class RoundFailure:
    """The failure of a round.

    Attributes:
        reason: The cause, a part of a sentence: "round 3: REASON, also with a second cohort".
        error: Raised if the second cohort fails as well.
        remedy: Advice, the last sentence; by default, to lower the learning rate.
    """

    reason: str
    error: type[UserError]
    remedy: str | None = None


OVERFLOW = RoundFailure("the merge of the clients' finite weights overflowed to NaN or infinity", NotFinite)
