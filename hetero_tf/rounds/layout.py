"""Index of every variable: its position among the global values and in a client's row."""

import dataclasses

import keras

from hetero_tf.base.errors import InputError
from hetero_tf.methods.stages import Route, Stage
from hetero_tf.models.entry_masks import EntryMask, build_entry_mask
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.global_layout import _shapes, _variables_in_order
from hetero_tf.models.variables import values
from hetero_tf.rounds.client_block import ClientBlock, StageStep
from hetero_tf.rounds.row_model import RowModel
from hetero_tf.rounds.width_step import WidthStep, WidthStepOnRow


def build_client_block(family: ModelFamily, level: str, clients: int, classes: int) -> ClientBlock:
    """Build the block of `clients` clients of a level, with a row model for each route of its stages."""
    rows = RowLayout.of(family, level, classes)

    def stage_step(stage):
        return StageStep(
            tuple(rows.build_row_model(family, route, clients) for route in stage.routes),
            rows.trained_mask(family, stage),
            None if stage.before is None else rows.build_row_model(family, stage.before, clients),
            rows.shared_steps(family, stage, clients),
        )

    # The row: trainable values of all networks, then the carried values of all networks.
    stages, one = family.stages[level], list(_shapes(family, rows.variables).values())
    trainable, networks = rows.trainable, rows.networks
    row_shapes = (*one[:trainable] * networks, *one[trainable:] * networks)
    return ClientBlock(clients, row_shapes, trainable * networks, networks, tuple(map(stage_step, stages)))


def entry_masks(family: ModelFamily, label_axis: int) -> tuple[EntryMask | None, ...] | None:
    """Return the entry mask of each sub-model's rows; None if the recipe has no mask."""
    if family.recipe.round.mask is None:
        return None
    rows = [RowLayout.of(family, level, label_axis) for level in family.submodels]
    return tuple(
        build_entry_mask(family.recipe, level, row.variables[: row.trainable], row.networks)
        for level, row in zip(family.submodels, rows)
    )


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """Layout of a client's row at one level.

    Attributes:
        level: Its name.
        classes: Length of the label axis.
        variables: Of one network of the client, in the order of the global values.
        trainable: Number of trainable variables; they come first.
        networks: Of a client: 1 and its peers. The trainable values of all networks come before the others.
    """

    level: str
    classes: int
    variables: list[keras.Variable]
    trainable: int
    networks: int

    @classmethod
    def of(cls, family: ModelFamily, level: str, classes: int) -> "RowLayout":
        trainable = len(family.training_model(level, classes).trainable_variables)
        networks = max(len(stage.trained_by_network) for stage in family.stages[level])
        return cls(level, classes, _variables_in_order(family, level, classes), trainable, networks)

    def build_row_model(self, family: ModelFamily, route: Route, clients: int) -> RowModel:
        """Build the model of a route; `positions` index its values in the client's row by variable path."""
        single = family.single_client_model(route, self.classes)
        model = single if clients == 1 else family.batched_model(route, self.classes, clients)
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

    def shared_steps(self, family: ModelFamily, stage: Stage, clients: int) -> tuple[WidthStepOnRow, ...]:
        """Return the steps of a stage's routes if another level takes one of them too; else an empty tuple."""
        if family.recipe.engine != "auto" or self.networks > 1 or not is_separable(family, stage):
            return ()
        # Routes that each level takes in separate steps.
        routes_by_level = [
            {route for each in family.stages[level] if is_separable(family, each) for route in each.routes}
            for level in family.submodels
        ]
        if all(sum(route in routes for routes in routes_by_level) < 2 for route in stage.routes):
            return ()
        return tuple(self._step_on_row(family, route, clients) for route in stage.routes)

    def _step_on_row(self, family, route, clients):
        """Build the step of a route on the part of a client's row that its model uses."""
        # The step's values in the order of the level's row.
        order = {variable.path: number for number, variable in enumerate(self.variables)}
        variables = sorted(
            values(family.single_client_model(route, self.classes)), key=lambda variable: order[variable.path]
        )
        shared = family.cached(
            ("step", route, self.classes, clients), lambda: self._build_step(family, route, clients, variables)
        )
        positions = tuple(order[variable.path] for variable in variables)
        return WidthStepOnRow(shared, positions, tuple(tuple(each.shape) for each in self.variables), self.trainable)

    def _build_step(self, family, route, clients, variables):
        """Build the step of a route on a row of exactly its model's values."""
        layout = dataclasses.replace(self, variables=variables)
        model = layout.build_row_model(family, route, clients)
        return WidthStep(
            model, tuple(tuple(variable.shape) for variable in variables), len(model.model.trainable_variables)
        )

    def _position_in_row(self, position, network):
        """Return the position in the row of a value of one of the client's networks."""
        if position < self.trainable:
            return network * self.trainable + position
        carried = len(self.variables) - self.trainable
        return self.networks * self.trainable + network * carried + position - self.trainable

    def trained_mask(self, family: ModelFamily, stage: Stage) -> tuple[bool, ...] | None:
        """Return which trainable variables of all networks a stage trains; None: all of them."""
        unit_of = family.recipe.model.unit_of
        trained = tuple(
            unit_of(variable.path) in units
            for units in stage.trained_by_network
            for variable in self.variables[: self.trainable]
        )
        return None if all(trained) else trained


def is_separable(family, stage):
    """Return whether every route of a stage can take a separate step with the same sum of gradients."""
    return stage.before is None and (len(stage.routes) == 1 or family.recipe.client.coupling.name == "sum")
