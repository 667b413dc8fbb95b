"""Reference rounds of the other methods: one client and step after the other, eager, with NumPy indices.

It extends `oracle` by several outputs, stages, ensembles, peers, corrections, server optimisers, and values that stay
with clients between rounds. It uses Keras layers and plans of the package, but never its cut, routes, local training,
couplings, corrections, merge or servers.
"""

from typing import NamedTuple

import numpy as np
import oracle
import oracle_terms as terms
import tensorflow as tf


class Way(NamedTuple):
    """One pass through the layers of a level: the trunk's units that are run, and the exits that are read.

    `level` is a name, whose width it has; the first `frozen` units get no gradient; `linked`: the head is reached by
    strides and zero channels; `network`: which of the client's. A network trains the units of `trained`, None: those of
    the stage.
    """

    level: str
    units: tuple
    exits: tuple = (1,)
    frozen: int = 0
    linked: bool = False
    network: int = 0
    trained: frozenset | None = None


def start(process):
    """The initial state of a run: global weights, server slots and client tables."""
    weights = {path: np.asarray(value) for path, value in process.initialize().weights.items()}
    clients = len(process.partition.train)
    return {
        "weights": weights,
        "server": {},
        "control": {path: np.zeros_like(value) for path, value in weights.items()},
        "memory": {path: np.zeros((clients, *v.shape)) for path, v in weights.items()},
        "personal": {path: np.stack([v] * clients) for path, v in weights.items() if stays(process, path)},
        "peers": {path: np.asarray(v) for path, v in process.initialize().clients["peers"].items()},
    }


def play(process, ways, state, planned, first_round=0):
    """Runs planned rounds; returns the state after them, and (mean loss, mean gradient norm) of each.

    Args:
        ways: `(level, stage) -> (list of Way, units that are trained or None for all)`.
    """
    metrics, models = [], {}
    for number, plan in enumerate(planned, first_round):
        state, round_metrics = play_round(process, ways, models, state, plan, number)
        metrics.append(np.mean(round_metrics, axis=0))
    return state, metrics


def play_round(process, ways, models, state, plan, number):
    """One round. Clients without a step, or with a result that is not finite, are left out."""
    rule, weights, metrics = process.recipe.round, state["weights"], []
    total, count, changes = ({path: np.zeros(v.shape, v.dtype) for path, v in weights.items()} for _ in range(3))
    tables = {
        name: {path: table.copy() for path, table in state[name].items()} for name in ("personal", "memory", "peers")
    }
    for slot, client in enumerate(plan.clients.tolist()):
        if not plan.steps[slot]:
            continue
        level = process.recipe.levels.names[plan.levels[slot]]
        indices = coordinates(process, models, weights, level, plan.members[slot], number, client)
        client_weights = {
            path: tables["personal"][path][client] if path in tables["personal"] else value
            for path, value in weights.items()
        }
        initial = {path: client_weights[path][np.ix_(*index)] for path, index in indices.items()}
        memory = {path: tables["memory"][path][client][np.ix_(*index)] for path, index in indices.items()}
        control = {path: state["control"][path][np.ix_(*index)] for path, index in indices.items()}
        peers = {path: table[client] for path, table in tables["peers"].items()}
        trained, others, client_metrics = train(
            process, ways, models, level, initial, peers, (memory, control), plan, slot, number
        )
        sent = terms.updated(process, initial, trained)
        if not all(np.isfinite(value).all() for value in (*trained.values(), client_metrics)):
            continue
        metrics.append(client_metrics)
        for path, table in tables["peers"].items():
            table[client] = others[path]
        counts = len(process.partition.train[client]) if rule.weighting == "samples" else 1
        for path, index in indices.items():
            if "moving_" not in path:
                change = terms.remembered(
                    process,
                    trained[path] - initial[path],
                    control[path],
                    plan.steps[slot],
                    process.learning_rate(number),
                )
                tables["memory"][path][client][np.ix_(*index)] += change
            if path in tables["personal"]:
                tables["personal"][path][client][np.ix_(*index)] = trained[path]
            elif moves(process, ways, level, path):
                merged_indices = [merged(process, axis, client) for axis in index]
                inside = np.ix_(*[np.isin(i, j) for i, j in zip(index, merged_indices)])
                weight = counts * terms.changed_entries(process, initial[path], trained[path])[inside]
                total[path][np.ix_(*merged_indices)] += weight * sent[path][inside]
                counted = [oracle.counting(process, *axis) for axis in zip(merged_indices, total[path].shape)]
                count[path][np.ix_(*counted)] += counts if rule.uncovered == "zeros" else weight
                if "moving_" not in path:
                    changes[path][np.ix_(*merged_indices)] += change[inside]
    new, server, control_after = {}, {}, dict(state["control"])
    for path, old in weights.items():
        mean = np.where(count[path] > 0, total[path] / np.maximum(count[path], 1), old)
        before = state["server"].get(path, (np.zeros_like(old),) * 2)
        after = terms.serve(process, old, mean, count[path], before) if "moving_" not in path else (mean, *before)
        if process.recipe.round.server.name == "scaffold" and "moving_" not in path:
            after = (after[0], before[0] + changes[path] / len(process.partition.train), before[1])
            control_after[path] = np.where(count[path] > 0, after[1], before[0])
        new[path], *server[path] = (np.where(count[path] > 0, a, b) for a, b in zip(after, (old, *before)))
    return {"weights": new, "server": server, "control": control_after, **tables}, metrics


def coordinates(process, models, weights, level, member, number, client):
    """`{path: coordinates on every axis}` of what a client of a level has; labels are never cut."""
    indices = {}
    for variable in values(process, model_of(process, models, level, 0)):
        first = [] if process.recipe.levels.ensemble is None else [np.asarray([member])]
        sizes = weights[variable.path].shape[len(first) :]
        indices[variable.path] = first + [
            oracle.coordinates(process, size, level_size, number, client)
            for size, level_size in zip(sizes, variable.shape)
        ]
    return indices


def merged(process, index, client):
    """The part of an axis that is merged: of the label axis the client's labels, or all; never the mask token."""
    if len(index) - process.dataset.classes in (0, 1) and process.recipe.round.label_rows == "all":
        return index[: process.dataset.classes]
    return oracle.merged(process, index, client)


def unit(process, path):
    """The unit that a variable belongs to."""
    return next(spec.unit for spec in process.recipe.model.layers if spec.name == path.split("/")[0])


def stays(process, path):
    """True if a variable stays with the clients."""
    personal = process.recipe.round.personal
    return "all" in personal or unit(process, path) in personal


def moves(process, ways, level, path):
    """True if clients of a level count for a variable: a stage trains it, or the recipe counts all their values."""
    stages = [ways(level, stage)[1] for stage in range(len(process.family.stages[level]))]
    trained = any(units is None or unit(process, path) in units for units in stages)
    return trained or process.recipe.round.untrained == "counted"


def model_of(process, models, level, network):
    """The Keras model of a level whose layers a client's network uses."""
    if (level, network) not in models:
        models[level, network] = process.family.new_training_model(level, process.dataset.classes)
    return models[level, network]


def values(process, model):
    """Trainable variables and running averages."""
    learned = {v.path for v in model.trainable_variables}
    return [v for v in model.variables if v.path in learned or "moving_" in v.path]


def train(process, ways, models, level, initial, peers, memory_and_control, plan, slot, number):
    """Local SGD; returns the client's values, those of its peers, and the means of loss and gradient norm."""
    settings, client, step_metrics = process.recipe.optimizer, int(plan.clients[slot]), []
    lead = () if process.recipe.levels.ensemble is None else (0,)
    first = {path: value[lead] for path, value in initial.items()}
    memory, control = memory_and_control
    thresholds = terms.thresholds(process, level, first)
    local_values, slots_by_entry = {(0, path): value for path, value in first.items()}, {}  # by (network, path)
    local_values |= {(1 + index, path): value for path, rows in peers.items() for index, value in enumerate(rows)}
    start = dict(local_values)
    for step in range(plan.steps[slot]):
        key, rows = [int(process.seed), number, client, step], plan.rows[slot, step]
        inputs, targets = oracle.batch(process, rows[rows >= 0], plan.starts[slot, step], key)
        used, units = ways(level, plan.stages[slot, step])
        inside = {entry: terms.inside(local_values[entry], thresholds[entry[1]]) for entry in local_values}
        loss, gradients = slope(process, models, used, local_values, inside, inputs, targets, client, key, number)
        for entry in gradients:
            path = entry[1]
            gradients[entry] *= terms.factor(process, local_values[entry], thresholds[path])
            gradients[entry] += terms.spring(process) * (local_values[entry] - start[entry]) - memory[path][lead]
            gradients[entry] = (gradients[entry] + control[path][lead]) * inside[entry]
        units_of = {way.network: units if way.trained is None else way.trained for way in used}
        moving = [
            (network, path)
            for network, path in gradients
            if network in units_of and (units_of[network] is None or unit(process, path) in units_of[network])
        ]
        norm = np.sqrt(sum(np.sum(gradients[entry] ** 2) for entry in moving))
        factor = 1 if settings.clip_norm is None else min(1, settings.clip_norm / (norm + 1e-6))
        for entry in moving:
            before = (local_values[entry], *slots_by_entry.get(entry, (np.zeros_like(local_values[entry]),) * 2))
            rate = process.learning_rate(number)
            value, slots = terms.moved(settings.method, before[0], gradients[entry] * factor, before[1:], rate, step)
            local_values[entry], *slots_by_entry[entry] = (
                np.where(inside[entry], new, old) for new, old in zip((value, *slots), before)
            )
        step_metrics.append((loss, norm))
    trained = {path: local_values[0, path].reshape(value.shape) for path, value in initial.items()}
    others = {
        path: np.stack([local_values[1 + index, path] for index in range(len(rows))]) for path, rows in peers.items()
    }
    return trained, others, np.mean(step_metrics, axis=0)


def slope(process, models, used, local_values, inside, inputs, targets, client, key, number):
    """The loss of a step, and its gradients by (network, path); running averages in `local_values` are moved.

    Args:
        inside: `{(network, path): bool array}`; other entries are 0 in the forward pass.
    """
    outputs, passed = [], []
    with tf.GradientTape() as tape:
        for way in used:
            model = model_of(process, models, way.level, way.network)
            for variable in values(process, model):
                masked = local_values[way.network, variable.path] * inside[way.network, variable.path]
                variable.assign(masked[tuple(map(slice, variable.shape))])
            oracle.seed_dropout(model, key)
            outputs += logits(process, model, way, tf.constant(inputs))
            for variable in values(process, model):
                if "moving_" in variable.path:
                    local_values[way.network, variable.path] = laid(
                        variable.numpy(), local_values[way.network, variable.path]
                    )
            passed.append((way.network, model))
        losses = [terms.examples(process, one, targets, client) for one in outputs]
        loss = tf.reduce_mean(terms.couple(process, losses, outputs, number))
    gradients = {entry: np.zeros_like(value) for entry, value in local_values.items() if "moving_" not in entry[1]}
    passed = {id(model): (network, model) for network, model in passed}.values()
    variables = [(network, variable) for network, model in passed for variable in model.trainable_variables]
    slopes = tape.gradient(loss, [v.value for _, v in variables], unconnected_gradients="zero")
    for (network, variable), gradient in zip(variables, slopes):
        gradients[network, variable.path][tuple(map(slice, variable.shape))] += tf.convert_to_tensor(gradient).numpy()
    return float(loss), gradients


def laid(value, whole):
    """`whole` with its first coordinates replaced."""
    whole = whole.copy()
    whole[tuple(map(slice, value.shape))] = value
    return whole


def logits(process, model, way, value):
    """The outputs of one pass, layer by layer."""
    branches, run = {}, []
    for spec in process.recipe.model.layers:
        if spec.exit is not None and spec.exit in way.exits:
            branches[spec.exit] = model.get_layer(spec.name)(branches.get(spec.exit, value), training=True)
        if spec.exit is not None or spec.unit not in way.units:
            continue
        layer = model.get_layer(spec.name)
        if spec.unit not in run:
            value = tf.stop_gradient(value) if 0 < way.frozen == len(run) else value
            value = linked(value, layer.input.shape) if way.linked and spec.unit == way.units[-1] else value
            run.append(spec.unit)
        value = layer(value, training=True)
    return [branches.get(number, value) for number in way.exits]


def linked(value, shape):
    """Resize a map to the rows and channels of the head's input: strided rows, zero channels on both sides."""
    step, missing = round(value.shape[1] / shape[1]), shape[-1] - value.shape[-1]
    return tf.pad(value[:, ::step, ::step], [[0, 0]] * 3 + [[missing // 2, missing - missing // 2]])
