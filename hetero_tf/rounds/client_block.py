"""Blocks: K clients of one level computed together, each client's values as one row of a matrix.

One row instead of dozens of variables makes an optimiser step a handful of operations, which are most of the cost of a
narrow model. Clients of a block share the rest of the operations.
"""

import dataclasses
import functools
from dataclasses import dataclass

import keras
import tensorflow as tf

from hetero_tf.base import registry
from hetero_tf.base.errors import InputError
from hetero_tf.models.entry_masks import EntryMask, build_entry_mask
from hetero_tf.models.family import ModelFamily, Route, Stage
from hetero_tf.models.global_layout import variables_in_order
from hetero_tf.models.state import split_values
from hetero_tf.models.variables import values
from hetero_tf.rounds.row_model import RowModel, RowShape
from hetero_tf.rounds.training_step import JointStep, SummedStep, WidthStep


@dataclass(frozen=True)
class BlockStage:
    """The steps of a block in one stage.

    Attributes:
        joint: The same step with all routes under one tape, for probes and reports.
        trained: For each trainable variable, whether the steps train it. If None, they train all.
    """

    step: JointStep | SummedStep
    joint: JointStep
    trained: tuple[bool, ...] | None


@dataclass(frozen=True)
class ClientBlock(RowShape):
    """Layout and steps of the clients of one level that are computed together.

    A row has the trainable values of a client's network and of its peers, then their constants and running statistics.

    Attributes:
        networks: Number of networks of a client: 1 and its peers.
        stages: `BlockStage` of each stage.
    """

    clients: int
    networks: int
    stages: tuple[BlockStage, ...]

    @property
    def client_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the values of a client's first network, the one that it returns."""
        trainable, carried = self.learned // self.networks, (len(self.shapes) - self.learned) // self.networks
        return [*self.shapes[:trainable], *self.shapes[self.learned : self.learned + carried]]

    @property
    def models(self) -> list[keras.Model]:
        """Models of all stages and routes."""
        return [row_model.model for stage in self.stages for row_model in stage.joint.models]

    def join_networks(self, networks: list[tf.Tensor]) -> tf.Tensor:
        """Join the rows of each network, [K, values of a network], to the rows of clients, [K, values]."""
        if self.networks == 1:
            return networks[0]
        # All trainable values come first, network by network, then all carried ones.
        trainable = self.parameters // self.networks
        return tf.concat([*(rows[:, :trainable] for rows in networks), *(rows[:, trainable:] for rows in networks)], 1)

    def network_rows(self, rows: tf.Tensor, network: int = 0) -> tf.Tensor:
        """Invert `join_networks` for one network: [K, values] to [K, values of a network]."""
        if self.networks == 1:
            return rows
        trainable, carried = self.parameters // self.networks, (rows.shape[1] - self.parameters) // self.networks
        # A network has one slice of each of the two groups.
        trainable_start, carried_start = network * trainable, self.parameters + network * carried
        return tf.concat(
            [rows[:, trainable_start : trainable_start + trainable], rows[:, carried_start : carried_start + carried]],
            1,
        )

    def values_of(self, row: tf.Tensor, network: int = 0) -> list[tf.Tensor]:
        """Split the values of one network, in their shapes, from one client's row [values]."""
        return split_values(self.network_rows(row[None], network)[0], self.client_shapes)


def build_client_block(family: ModelFamily, level: str, clients: int, classes: int) -> ClientBlock:
    """Build the block of `clients` clients of a level, with a step for each of its stages."""
    layout = RowLayout.of(family, level, classes)

    def build_joint(routes):
        models = tuple(layout.build_row_model(family, route, clients) for route in routes)
        return JointStep(layout.shapes, layout.learned, models)

    def build_stage(stage):
        joint = build_joint(stage.routes)
        step = layout.build_summed_step(family, stage, clients) if layout.is_shared(family, stage) else joint
        return BlockStage(step, joint, layout.trained_mask(family, stage))

    stages = tuple(map(build_stage, family.stages[level]))
    return ClientBlock(layout.shapes, layout.learned, clients, layout.networks, stages)


def entry_masks(family: ModelFamily, label_axis: int) -> tuple[EntryMask | None, ...]:
    """Return the entry mask of each sub-model's rows; None for each if the recipe has no mask."""
    if family.recipe.round.mask is None:
        return (None,) * len(family.submodels)
    rows = [RowLayout.of(family, level, label_axis) for level in family.submodels]
    return tuple(
        build_entry_mask(family.recipe, level, row.variables[: row.trainable], row.networks)
        for level, row in zip(family.submodels, rows)
    )


@dataclass(frozen=True)
class RowLayout:
    """Layout of a client's row at one level.

    Attributes:
        variables: Variables of one network of the client, in the order of the global values.
        trainable: Number of trainable variables; they come first.
        networks: Networks of a client: 1 and its peers. The trainable values of all networks come before the others.
    """

    level: str
    classes: int
    variables: list[keras.Variable]
    trainable: int
    networks: int

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the row: the trainable values of all networks, then the carried values of all networks."""
        one = [tuple(variable.shape) for variable in self.variables]
        return (*one[: self.trainable] * self.networks, *one[self.trainable :] * self.networks)

    @property
    def learned(self) -> int:
        """Number of trainable variables of all networks."""
        return self.trainable * self.networks

    @classmethod
    def of(cls, family: ModelFamily, level: str, classes: int) -> "RowLayout":
        trainable = len(family.training_model(level, classes).trainable_variables)
        networks = max(len(stage.trained_by_network) for stage in family.stages[level])
        return cls(level, classes, variables_in_order(family, level, classes), trainable, networks)

    def build_row_model(self, family: ModelFamily, route: Route, clients: int) -> RowModel:
        """Build the model of a route; `positions` index its values in the client's row by variable path."""
        single = family.single_client_model(route, self.classes)
        model = family.batched_model(route, self.classes, clients)
        shape_of = {variable.path: tuple(variable.shape) for variable in values(single)}
        paths = [variable.path for variable in values(model)]
        position_of = {variable.path: position for position, variable in enumerate(self.variables)}
        if not position_of.keys() >= set(paths):
            raise InputError(
                f"level {self.level}: the skipped units change the output shape, so the units after them do not fit; "
                "raise the level's budget"
            )
        # Position of each of the model's values in the client's row.
        positions = tuple(self._position_in_row(position_of[path], route.network) for path in paths)
        return RowModel(model, clients, tuple(shape_of[path] for path in paths), positions)

    def is_shared(self, family: ModelFamily, stage: Stage) -> bool:
        """Return whether another level takes the step of a route of a stage too, and the routes may be separate."""
        if family.recipe.engine != "auto" or self.networks > 1 or not is_separable(family, stage):
            return False
        # Routes that each level takes in separate steps.
        routes_by_level = [
            {route for each in family.stages[level] if is_separable(family, each) for route in each.routes}
            for level in family.submodels
        ]
        return any(sum(route in routes for routes in routes_by_level) > 1 for route in stage.routes)

    def build_summed_step(self, family: ModelFamily, stage: Stage, clients: int) -> SummedStep:
        """Build the sum of the steps of a stage's routes; levels with the same route share its step."""
        # The values of each step in the order of the level's row.
        order = {variable.path: number for number, variable in enumerate(self.variables)}
        steps, positions = [], []
        for route in stage.routes:
            variables = sorted(
                values(family.single_client_model(route, self.classes)), key=lambda variable: order[variable.path]
            )
            build = functools.partial(self._build_step, family, route, clients, variables)
            steps.append(family.cached(("step", route, self.classes, clients), build))
            positions.append(tuple(order[variable.path] for variable in variables))
        return SummedStep(self.shapes, self.learned, tuple(steps), tuple(positions))

    def _build_step(self, family, route, clients, variables):
        """Build the step of a route on a row of exactly its model's values."""
        layout = dataclasses.replace(self, variables=variables)
        model = layout.build_row_model(family, route, clients)
        return WidthStep(layout.shapes, len(model.model.trainable_variables), model)

    def _position_in_row(self, position, network):
        """Return the position in the row of a value of one of the client's networks."""
        if position < self.trainable:
            return network * self.trainable + position
        carried = len(self.variables) - self.trainable
        return self.networks * self.trainable + network * carried + position - self.trainable

    def trained_mask(self, family: ModelFamily, stage: Stage) -> tuple[bool, ...] | None:
        """Return which trainable variables of all networks a stage trains, or None if it trains all."""
        unit_of = family.recipe.model.unit_of
        trained = tuple(
            unit_of(variable.path) in units
            for units in stage.trained_by_network
            for variable in self.variables[: self.trainable]
        )
        return None if all(trained) else trained


def is_separable(family, stage):
    """Return whether every route of a stage can take a separate step with the same sum of gradients."""
    if family.recipe.round.mask is not None:
        return False
    coupling = registry.find("couplings", family.recipe.client.coupling.name)
    return len(stage.routes) == 1 or getattr(coupling, "SEPARABLE", False)
