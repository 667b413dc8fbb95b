"""How the values of a model family lie: among the global ones, and in the rows of the clients of a stack."""

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
    """Builds the stack of `clients` clients of a level, with a routed model for each route of its stages."""
    rows = _RowLayout.of(family, level, classes)

    def stage_models(stage):
        return StageStep(
            tuple(rows.routed_model(family, route, clients) for route in stage.routes),
            rows.trained_variables(family, stage),
            None if stage.before is None else rows.routed_model(family, stage.before, clients),
            rows.shared_steps(family, stage, clients),
        )

    stages, one = family.stages[level], list(_shapes(family, rows.variables).values())
    trainable, networks = rows.trainable, rows.networks
    row_shapes = (*one[:trainable] * networks, *one[trainable:] * networks)
    return ClientBlock(clients, row_shapes, trainable * networks, networks, tuple(map(stage_models, stages)))


def entry_masks(family: ModelFamily, label_axis: int) -> tuple[EntryMask | None, ...] | None:
    """Returns the mask of each sub-model's rows; None where the recipe has none."""
    if family.recipe.round.mask is None:
        return None
    rows = [_RowLayout.of(family, level, label_axis) for level in family.submodels]
    return tuple(
        build_entry_mask(family.recipe, level, row.variables[: row.trainable], row.networks)
        for level, row in zip(family.submodels, rows)
    )


@dataclasses.dataclass(frozen=True)
class _RowLayout:
    """How the values of a level lie in the row of a client.

    Attributes:
        level: Its name.
        classes: Length of the label axis.
        variables: Of one network of the client, in the order of the global values.
        trainable: How many of them are trainable; they stand first.
        networks: Of a client: 1 and its peers. The trainable values of all of them stand before the others.
    """

    level: str
    classes: int
    variables: list[keras.Variable]
    trainable: int
    networks: int

    @classmethod
    def of(cls, family: ModelFamily, level: str, classes: int) -> "_RowLayout":
        trainable = len(family.trained(level, classes).trainable_variables)
        networks = max(len(stage.trained_by_network) for stage in family.stages[level])
        return cls(level, classes, _variables_in_order(family, level, classes), trainable, networks)

    def routed_model(self, family: ModelFamily, route: Route, clients: int) -> RowModel:
        """The model of a route; its values lie where their paths have their positions in the row."""
        alone = family.alone(route, self.classes)
        model = alone if clients == 1 else family.together(route, self.classes, clients)
        shape_of = {variable.path: tuple(variable.shape) for variable in values(alone)}
        paths = [variable.path for variable in values(model)]
        position_of = {variable.path: position for position, variable in enumerate(self.variables)}
        if not position_of.keys() >= set(paths):
            raise InputError(
                f"level {self.level}: the units that it leaves out change the shape of what they hand on, so those "
                "behind them do not fit; raise its budget"
            )
        positions = tuple(self._in_row(position_of[path], route.network) for path in paths)
        return RowModel(model, clients, tuple(shape_of[path] for path in paths), positions)

    def shared_steps(self, family: ModelFamily, stage: Stage, clients: int) -> tuple[WidthStepOnRow, ...]:
        """The steps of a stage's routes, where other levels take some of them too; else empty."""
        if family.recipe.engine != "auto" or self.networks > 1 or not _steps_apart(family, stage):
            return ()
        taken = [
            {route for each in family.stages[level] if _steps_apart(family, each) for route in each.routes}
            for level in family.submodels
        ]
        if all(sum(route in routes for routes in taken) < 2 for route in stage.routes):
            return ()
        return tuple(self._step_on_part(family, route, clients) for route in stage.routes)

    def _step_on_part(self, family, route, clients):
        """The step of a route on the part of a client's row that its model holds."""
        order = {variable.path: number for number, variable in enumerate(self.variables)}
        variables = sorted(values(family.alone(route, self.classes)), key=lambda variable: order[variable.path])
        shared = family.once(
            ("step", route, self.classes, clients), lambda: self._shared(family, route, clients, variables)
        )
        positions = tuple(order[variable.path] for variable in variables)
        return WidthStepOnRow(shared, positions, tuple(tuple(each.shape) for each in self.variables), self.trainable)

    def _shared(self, family, route, clients, variables):
        """The step of a route on a row of the values of its own model."""
        own = dataclasses.replace(self, variables=variables)
        model = own.routed_model(family, route, clients)
        return WidthStep(
            model, tuple(tuple(variable.shape) for variable in variables), len(model.model.trainable_variables)
        )

    def _in_row(self, position, network):
        """The position in the row of a value of one of the client's networks."""
        if position < self.trainable:
            return network * self.trainable + position
        carried = len(self.variables) - self.trainable
        return self.networks * self.trainable + network * carried + position - self.trainable

    def trained_variables(self, family: ModelFamily, stage: Stage) -> tuple[bool, ...] | None:
        """Which of the trainable variables of all networks a stage trains; None: all of them."""
        unit_of = family.recipe.model.unit_of
        trained = tuple(
            unit_of(variable.path) in units
            for units in stage.trained_by_network
            for variable in self.variables[: self.trainable]
        )
        return None if all(trained) else trained


def _steps_apart(family, stage):
    """Whether each of a stage's routes can take a step of its own, with the same sum of gradients in the end."""
    return stage.before is None and (len(stage.routes) == 1 or family.recipe.client.coupling.name == "sum")
