"""How the values of a model family lie: among the global ones, and in the rows of the clients of a stack."""

import dataclasses
from collections.abc import Sequence

import keras
import tensorflow as tf

from hetero_tf.base.errors import BadInput
from hetero_tf.methods.stages import Route, Stage
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.variables import carried, constants, values
from hetero_tf.rounds.cut import Cut, cut_of_shapes, find_label_axes
from hetero_tf.rounds.entry_mask import EntryMask, build_entry_mask
from hetero_tf.rounds.routed_model import RoutedModel
from hetero_tf.rounds.shared_step import SharedStep, StepOnPart
from hetero_tf.rounds.stack import Stack, StageModels


def shapes(family: ModelFamily, level: str, classes: int) -> dict[str, tuple[int, ...]]:
    """Returns `{path: shape}` of the values that a client of a level has; in an ensemble, one network of its axis.

    Args:
        family: The models.
        level: Name of a level.
        classes: Length of the label axis.
    """
    return _shapes(family, _variables_in_order(family, level, classes))


def initial_values(family: ModelFamily) -> dict[str, tf.Tensor]:
    """Returns the global values before the first round by path; those of an ensemble are [networks, ...]."""
    levels = family.recipe.levels
    if levels.ensemble is None:
        variables = _variables(family, levels.global_level, family.classes)
        return {variable.path: tf.convert_to_tensor(variable) for variable in variables}
    networks = [values(model) for model in family.members(levels.global_level)]
    paths = shapes(family, levels.global_level, family.classes)
    return {
        path: tf.stack([tf.convert_to_tensor(variable) for variable in variables])
        for path, variables in zip(paths, zip(*networks), strict=True)
    }


def initial_peers(family: ModelFamily, weights: Sequence[tf.Tensor], count: int) -> list[tf.Tensor]:
    """Returns the values of a client's peers before the first round, [peers, ...] of each global value.

    A peer that started like the network beside it would see the same batches and remain its copy, and neither could
    learn from the other: each draws initial values of its own. Constants are those of the global model.

    Args:
        weights: The global values, in order.
        count: Number of peers.
    """
    top = family.recipe.levels.global_level
    order = shapes(family, top, family.classes)
    networks = [{v.path: tf.convert_to_tensor(v) for v in values(family.peer(top, number))} for number in range(count)]
    fixed = {variable.path for variable in constants(family.trained(top, family.classes))}
    return [
        tf.stack([value if path in fixed else network[path] for network in networks])
        for path, value in zip(order, weights, strict=True)
    ]


def build_cut(family: ModelFamily, label_axis: int) -> Cut:
    """Builds the cut of the sub-models of the mix, whose label axes have `label_axis` entries."""
    levels = family.recipe.levels
    narrowest = dataclasses.replace(family.route(levels.global_level), width=min(levels.widths.values()))
    two, three = (_shapes(family, values(family.alone(narrowest, classes))) for classes in (2, 3))
    whole = shapes(family, levels.global_level, family.classes)
    if levels.ensemble:
        whole = {path: (levels.ensemble, *shape[1:]) for path, shape in whole.items()}
    submodels = [shapes(family, level, label_axis) for level in family.submodels]
    label_axes = find_label_axes(two, three)
    return cut_of_shapes(whole, submodels, label_axes, family.classes, levels.ensemble is not None)


def build_stack(family: ModelFamily, level: str, clients: int, classes: int) -> Stack:
    """Builds the stack of `clients` clients of a level, with a routed model for each route of its stages."""
    rows = _RowLayout.of(family, level, classes)

    def stage_models(stage):
        return StageModels(
            tuple(rows.routed_model(family, route, clients) for route in stage.routes),
            rows.trained_variables(family, stage),
            None if stage.before is None else rows.routed_model(family, stage.before, clients),
            rows.shared_steps(family, stage, clients),
        )

    stages, one = family.stages[level], list(_shapes(family, rows.variables).values())
    trainable, networks = rows.trainable, rows.networks
    row_shapes = (*one[:trainable] * networks, *one[trainable:] * networks)
    return Stack(clients, row_shapes, trainable * networks, networks, tuple(map(stage_models, stages)))


def entry_masks(family: ModelFamily, label_axis: int) -> tuple[EntryMask | None, ...] | None:
    """Returns the mask of each sub-model's rows; None where the recipe has none."""
    if family.recipe.round.mask is None:
        return None
    rows = [_RowLayout.of(family, level, label_axis) for level in family.submodels]
    return tuple(
        build_entry_mask(family.recipe, level, row.variables[: row.trainable], row.networks)
        for level, row in zip(family.submodels, rows)
    )


def personal_positions(family: ModelFamily) -> tuple[int, ...]:
    """Returns the positions of the global values that stay with the clients."""
    recipe = family.recipe
    units = recipe.round.personal
    paths = shapes(family, recipe.levels.global_level, family.classes)
    return tuple(
        position for position, path in enumerate(paths) if "all" in units or recipe.model.unit_of(path) in units
    )


def count_trainable(family: ModelFamily) -> int:
    """Returns how many of the global values are trainable; constants and running statistics stand behind them."""
    return len(family.trained(family.recipe.levels.global_level, family.classes).trainable_variables)


def merged_from(family: ModelFamily, cut: Cut, personal: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Returns for each global value and sub-model after how many stages clients count in its merge; 0: never.

    Args:
        family: The models.
        cut: As `build_cut` gives it.
        personal: As `personal_positions` gives it.
    """
    model, top = family.recipe.model, family.recipe.levels.global_level
    paths = shapes(family, top, family.classes)
    fixed = {variable.path for variable in constants(family.trained(top, family.classes))}
    left_out = {position for position, path in enumerate(paths) if path in fixed} | set(personal)
    return tuple(
        tuple(
            _counts_from(family, level, model.unit_of(path)) if has_it and position not in left_out else 0
            for has_it, level in zip(contained, family.submodels)
        )
        for position, (path, contained) in enumerate(zip(paths, cut.contained))
    )


def _counts_from(family, level, unit):
    """The number of the first stage of a level that trains a unit, 0 if none does; 1 where that does not matter."""
    numbers = [number for number, stage in enumerate(family.stages[level], 1) if unit in stage.trained]
    if family.recipe.round.untrained == "counted" or (numbers and family.drawn):
        return 1
    return numbers[0] if numbers else 0


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

    def routed_model(self, family: ModelFamily, route: Route, clients: int) -> RoutedModel:
        """The model of a route; its values lie where their paths have their positions in the row."""
        alone = family.alone(route, self.classes)
        model = alone if clients == 1 else family.together(route, self.classes, clients)
        shape_of = {variable.path: tuple(variable.shape) for variable in values(alone)}
        paths = [variable.path for variable in values(model)]
        position_of = {variable.path: position for position, variable in enumerate(self.variables)}
        if not position_of.keys() >= set(paths):
            raise BadInput(
                f"level {self.level}: the units that it leaves out change the shape of what they hand on, so those "
                "behind them do not fit; raise its budget"
            )
        positions = tuple(self._in_row(position_of[path], route.network) for path in paths)
        return RoutedModel(model, clients, tuple(shape_of[path] for path in paths), positions)

    def shared_steps(self, family: ModelFamily, stage: Stage, clients: int) -> tuple[StepOnPart, ...]:
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
        return StepOnPart(shared, positions, tuple(tuple(each.shape) for each in self.variables), self.trainable)

    def _shared(self, family, route, clients, variables):
        """The step of a route on a row of the values of its own model."""
        own = dataclasses.replace(self, variables=variables)
        model = own.routed_model(family, route, clients)
        return SharedStep(
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


def _variables_in_order(family, level, classes):
    """The variables of a level in the order of the global ones."""
    top = family.recipe.levels.global_level
    order = {variable.path: position for position, variable in enumerate(_variables(family, top, family.classes))}
    variables = _variables(family, level, classes)
    for variable in variables:
        if variable.path not in order:
            raise BadInput(
                f"level {level}: {variable.path} belongs to its width alone, and level {top} never runs at "
                "that width; norms of kind wbn need client.stages: nested or slimmable, and a layer of your own must "
                "create the same weights at every width"
            )
    return sorted(variables, key=lambda variable: order[variable.path])


def _variables(family, level, classes):
    """The variables of a level's whole sub-model, and the carried ones that only its narrower routes have."""
    variables = {variable.path: variable for variable in values(family.trained(level, classes))}
    routes = dict.fromkeys(route for stage in family.stages[level] for route in stage.routes)
    for route in routes:
        if route.width < family.route(level).width:
            for variable in carried(family.alone(route, classes)):
                variables.setdefault(variable.path, variable)
    return list(variables.values())


def _shapes(family, variables):
    """`{path: shape}` of one client's variables."""
    first = (1,) if family.recipe.levels.ensemble else ()
    return {variable.path: (*first, *variable.shape) for variable in variables}
