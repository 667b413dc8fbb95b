"""The reference rounds with the parts of all methods: one client and step after the other, eager, with NumPy indices.

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


def play(process, ways, planned):
    """Run the first rounds; return the values after them by kind, and (mean loss, mean gradient norm) of each round.

    `ways`: `(level, stage) -> (list of Way, units that are trained or None for all)`.
    """
    rounds = (PersonalRounds if process.recipe.client.personalization else MethodRounds)(process, ways)
    weights, metrics = rounds.run({path: np.asarray(v) for path, v in process.initialize().weights.items()}, planned)
    return {"weights": weights, "server": rounds.server, "control": rounds.control, **rounds.tables}, metrics


class MethodRounds(oracle.Oracle):
    """The rounds of a method; `tables` has the values of clients, `{kind: {path: [clients, ...]}}`."""

    def __init__(self, process, ways):
        super().__init__(process)
        state, clients, self.ways = process.initialize(), len(process.partition.train), ways
        weights = {path: np.asarray(value) for path, value in state.weights.items()}
        self.is_ensemble = process.recipe.levels.ensemble is not None
        self.server, self.control = {}, {path: np.zeros_like(value) for path, value in weights.items()}
        self.tables = {
            "memory": {path: np.zeros((clients, *value.shape)) for path, value in weights.items()},
            "personal": {path: np.stack([value] * clients) for path, value in weights.items() if self.stays(path)},
            "errors": {path: np.zeros((clients, *value.shape)) for path, value in weights.items()},
            "peers": {path: np.array(value) for path, value in state.clients["peers"].items()},
        }

    def unit(self, path):
        """The unit that a variable belongs to."""
        return next(spec.unit for spec in self.process.recipe.model.layers if spec.name == path.split("/")[0])

    def stays(self, path):
        """True if a variable stays with the clients."""
        personal = self.process.recipe.round.personal
        return "all" in personal or self.unit(path) in personal

    def moves(self, level, path):
        """True if clients of a level count for a variable: a stage trains it, or the recipe counts all their values."""
        stages = [self.ways(level, stage)[1] for stage in range(len(self.process.family.stages[level]))]
        trained = any(units is None or self.unit(path) in units for units in stages)
        return trained or self.process.recipe.round.untrained == "counted"

    def run_round(self, weights, plan, round):
        self.members = iter(plan.members[plan.steps > 0].tolist())
        self.changes = {path: np.zeros_like(value) for path, value in weights.items()}
        # Of each client: its steps, loss and rate, and by path its row and the entries that it covers.
        self.results = []
        weights, metrics = super().run_round(weights, plan, round)
        return weights, [each for each in metrics if each is not None]

    def model(self, level, network=0):
        """The Keras model of a level whose layers a client's network uses."""
        if (level, network) not in self.models:
            model = self.process.family.new_training_model(level, self.process.dataset.classes)
            self.models[level, network] = model
        return self.models[level, network]

    def cut_variables(self, model):
        """Trainable variables and running averages."""
        learned = {v.path for v in model.trainable_variables}
        return [v for v in model.variables if v.path in learned or "moving_" in v.path]

    def coordinates(self, weights, model, round, client):
        """Those of the client's network; an ensemble has it as the first axis."""
        member = [np.asarray([next(self.members)])] if self.is_ensemble else []
        weights = {path: value[0] for path, value in weights.items()} if self.is_ensemble else weights
        parts = super().coordinates(weights, model, round, client)
        self.parts = {path: member + axes for path, axes in parts.items()}
        return self.parts

    def merged_part(self, path, number, axis, client):
        """Of the label axis the client's labels, or all; never the mask token."""
        number -= self.is_ensemble
        if number in self.label_axes[path] and self.process.recipe.round.label_rows == "all":
            return axis[: self.process.dataset.classes]
        return super().merged_part(path, number, axis, client)

    def train_client(self, model, received, plan, slot, round):
        """Train a client and store what stays with it; a client whose result is not finite returns nothing."""
        process, client, level = (
            self.process,
            int(plan.clients[slot]),
            self.process.recipe.levels.names[plan.levels[slot]],
        )
        at, tables = {path: np.ix_(*axes) for path, axes in self.parts.items()}, self.tables
        received |= {path: table[client][at[path]] for path, table in tables["personal"].items()}
        memory = {path: tables["memory"][path][client][index] for path, index in at.items()}
        control = {path: self.control[path][index] for path, index in at.items()}
        peers = {path: table[client] for path, table in tables["peers"].items()}
        trained, others, metrics = self.train(level, received, peers, (memory, control), plan, slot, round)
        if not all(np.isfinite(value).all() for value in (*trained.values(), metrics)):
            return {}, None
        for path, table in tables["peers"].items():
            table[client] = others[path]
        for path, table in tables["personal"].items():
            table[client][at[path]] = trained[path]
        rate, self.change = process.learning_rate(round), {}
        for path in [path for path in trained if "moving_" not in path]:
            moved = trained[path] - received[path]
            self.change[path] = terms.remembered(process, moved, control[path], plan.steps[slot], rate)
            tables["memory"][path][client][at[path]] += self.change[path]
        self.results.append((len(process.partition.train[client]), plan.steps[slot], metrics[0], rate, {}))
        self.entries = {path: terms.changed_entries(process, received[path], trained[path]) for path in trained}
        errors = {path: tables["errors"][path][client][index] for path, index in at.items()}
        update = process.recipe.client.update
        inside = self.sent_entries(level, trained, client) if update and update.name != "clip" else {}
        sent = terms.updated(process, received, trained, errors, inside)
        for path, index in at.items():
            tables["errors"][path][client][index] = errors[path]
        return {
            path: v for path, v in sent.items() if path not in tables["personal"] and self.moves(level, path)
        }, metrics

    def sent_entries(self, level, trained, client):
        """Bool arrays of the entries of a client's values that are merged."""
        inside = {}
        for path in trained:
            is_merged = path not in self.tables["personal"] and self.moves(level, path)
            axes = [
                (axis, self.merged_part(path, number, axis, client)) for number, axis in enumerate(self.parts[path])
            ]
            grid = np.ix_(*[np.isin(axis, part) & is_merged for axis, part in axes])
            inside[path] = np.zeros(trained[path].shape, bool)
            inside[path][grid] = True
        return inside

    def add(self, total, count, path, value, axes, client):
        rule = self.process.recipe.round
        merged = [self.merged_part(path, number, axis, client) for number, axis in enumerate(axes)]
        inside, index = np.ix_(*[np.isin(axis, part) for axis, part in zip(axes, merged)]), np.ix_(*merged)
        examples = len(self.process.partition.train[client]) if rule.weighting == "samples" else 1
        weight = examples * self.entries[path][inside]
        total[index] += weight * value[inside]
        row, covered = self.results[-1][-1][path] = np.zeros_like(total), np.zeros(total.shape, bool)
        row[index], covered[index] = value[inside], self.entries[path][inside]
        count[np.ix_(*self.counted(merged, count.shape))] += examples if rule.uncovered == "zeros" else weight
        if path in self.change:
            self.changes[path][index] += self.change[path][inside]

    def merge(self, weights, total, count):
        """The server's step towards the means, for every value that some client covers."""
        mean, new = super().merge(weights, total, count), {}
        if self.process.recipe.round.merge.name != "mean":
            mean |= self.aggregate({path: value for path, value in weights.items() if "moving_" not in path})
        is_scaffold = self.process.recipe.round.server.name == "scaffold"
        for path, old in weights.items():
            before, learned = self.server.get(path, (np.zeros_like(old),) * 2), "moving_" not in path
            after = (
                terms.serve(self.process, old, mean[path], count[path], before) if learned else (mean[path], *before)
            )
            if is_scaffold and learned:
                after = (after[0], before[0] + self.changes[path] / len(self.process.partition.train), before[1])
                self.control[path] = np.where(count[path] > 0, after[1], before[0])
            new[path], *self.server[path] = (np.where(count[path] > 0, a, b) for a, b in zip(after, (old, *before)))
        return new

    def aggregate(self, weights):
        """The merge of learned values by path that sees every client."""
        examples, steps, losses, rates, values = zip(*self.results)

        def row_of(each, part):
            absent = {path: (value, np.zeros(value.shape, bool)) for path, value in weights.items()}
            return np.concatenate([(absent | each)[path][part].ravel() for path in weights])

        rows, covered = (np.stack([row_of(each, part) for each in values]) for part in (0, 1))
        old = np.concatenate([value.ravel() for value in weights.values()])
        counts = np.array(examples if self.process.recipe.round.weighting == "samples" else np.ones(len(rows)))
        new = terms.aggregated(self.process, old, rows, covered, counts, steps, np.array(losses), rates[0])
        parts = np.split(new, np.cumsum([value.size for value in weights.values()])[:-1])
        return {path: part.reshape(weights[path].shape) for path, part in zip(weights, parts)}

    def train(self, level, initial, peers, memory_and_control, plan, slot, number):
        """Local SGD; returns the client's values, those of its peers, and the means of loss and gradient norm."""
        process, step_metrics = self.process, []
        settings, client = process.recipe.optimizer, int(plan.clients[slot])
        lead = (0,) if self.is_ensemble else ()
        first = {path: value[lead] for path, value in initial.items()}
        memory, control = memory_and_control
        thresholds = terms.thresholds(process, level, first)
        local_values, slots_by_entry = {(0, path): value for path, value in first.items()}, {}  # by (network, path)
        local_values |= {(1 + index, path): value for path, rows in peers.items() for index, value in enumerate(rows)}
        start = dict(local_values)
        for step in range(plan.steps[slot]):
            key, rows = [int(process.seed), number, client, step], plan.rows[slot, step]
            inputs, targets = oracle.batch(process, rows[rows >= 0], plan.starts[slot, step], key)
            used, units = self.ways(level, plan.stages[slot, step])
            inside = {entry: terms.inside(local_values[entry], thresholds[entry[1]]) for entry in local_values}
            loss, gradients = self.slope(used, local_values, inside, inputs, targets, client, key, number)
            for entry in gradients:
                path = entry[1]
                gradients[entry] *= terms.factor(process, local_values[entry], thresholds[path])
                gradients[entry] += terms.spring(process) * (local_values[entry] - start[entry]) - memory[path][lead]
                gradients[entry] = (gradients[entry] + control[path][lead]) * inside[entry]
            units_of = {way.network: units if way.trained is None else way.trained for way in used}
            moving = [
                (network, path)
                for network, path in gradients
                if network in units_of and (units_of[network] is None or self.unit(path) in units_of[network])
            ]
            norm = np.sqrt(sum(np.sum(gradients[entry] ** 2) for entry in moving))
            factor = 1 if settings.clip_norm is None else min(1, settings.clip_norm / (norm + 1e-6))
            for entry in moving:
                before = (local_values[entry], *slots_by_entry.get(entry, (np.zeros_like(local_values[entry]),) * 2))
                rate = process.learning_rate(number)
                value, slots = terms.moved(
                    settings.method, before[0], gradients[entry] * factor, before[1:], rate, step
                )
                local_values[entry], *slots_by_entry[entry] = (
                    np.where(inside[entry], new, old) for new, old in zip((value, *slots), before)
                )
            step_metrics.append((loss, norm))
        trained = {path: local_values[0, path].reshape(value.shape) for path, value in initial.items()}
        others = {
            path: np.stack([local_values[1 + index, path] for index in range(len(rows))])
            for path, rows in peers.items()
        }
        return trained, others, np.mean(step_metrics, axis=0)

    def slope(self, used, local_values, inside, inputs, targets, client, key, number):
        """The loss of a step, and its gradients by (network, path); running averages in `local_values` are moved.

        Args:
            inside: `{(network, path): bool array}`; other entries are 0 in the forward pass.
        """
        outputs, passed = [], {}
        with tf.GradientTape() as tape:
            for way in used:
                model = self.model(way.level, way.network)
                for variable in self.cut_variables(model):
                    masked = local_values[way.network, variable.path] * inside[way.network, variable.path]
                    variable.assign(masked[tuple(map(slice, variable.shape))])
                oracle.seed_dropout(model, key)
                outputs += logits(self.process, model, way, tf.constant(inputs))
                for variable in self.cut_variables(model):
                    if "moving_" in variable.path:
                        local_values[way.network, variable.path] = laid(
                            variable.numpy(), local_values[way.network, variable.path]
                        )
                passed[way.level, way.network] = model
            losses = [terms.examples(self.process, one, targets, client) for one in outputs]
            loss = tf.reduce_mean(terms.couple(self.process, losses, outputs, number))
        gradients = {entry: np.zeros_like(value) for entry, value in local_values.items() if "moving_" not in entry[1]}
        variables = [(network, v) for (_, network), model in passed.items() for v in model.trainable_variables]
        slopes = tape.gradient(loss, [v.value for _, v in variables], unconnected_gradients="zero")
        for (network, variable), gradient in zip(variables, slopes):
            gradients[network, variable.path][tuple(map(slice, variable.shape))] += tf.convert_to_tensor(
                gradient
            ).numpy()
        return float(loss), gradients


class PersonalRounds(MethodRounds):
    """The rounds of a personalization of networks without running averages; a client's values are dicts by path."""

    def __init__(self, process, ways):
        super().__init__(process, ways)
        clients, plugin = len(process.partition.train), process.recipe.client.personalization
        self.name, self.options, self.has_twin = plugin.name, plugin.options, plugin.name not in ("fedrep", "moon")
        weights = process.initialize().weights
        twin = {path: np.stack([np.asarray(value)] * clients) for path, value in weights.items()}
        scalars = {"rounds": np.zeros(clients), "alpha": np.full(clients, self.options.get("alpha", 1.0))}
        self.tables |= {"twin": twin, "twin_scalars": scalars} if self.has_twin else {}
        self.tables |= {"previous": twin} if self.name == "moon" else {}

    def train(self, level, initial, peers, memory_and_control, plan, slot, number):
        process, client, metrics = self.process, int(plan.clients[slot]), []
        at = {path: np.ix_(*axes) for path, axes in self.parts.items()}
        twins = self.tables.get("previous" if self.name == "moon" else "twin", {})
        scalars = self.tables.get("twin_scalars")
        weights, twin = dict(initial), {path: table[client][at[path]] for path, table in twins.items()}
        alpha, slots, twin_slots = scalars["alpha"][client] if scalars else 1.0, {}, {}
        epoch_steps = -(-len(process.partition.train[client]) // process.recipe.client.batch_size)
        rate = process.learning_rate(number)
        for step in range(plan.steps[slot]):
            slope = self.slope_of_step(level, plan, slot, step, number)
            if self.name == "fedrep":
                loss, gradient = slope(weights)
                in_first_phase = step // epoch_steps < self.options["personal_epochs"]
                gradient = {path: g for path, g in gradient.items() if self.stays(path) == in_first_phase}
            if self.name == "ditto":
                loss, gradient = slope(weights)
                _, push = slope(twin)
                push = {path: g + self.options["strength"] * (twin[path] - initial[path]) for path, g in push.items()}
                twin = self.moved(twin, push, twin_slots, rate, step)[0]
            if self.name == "apfl":
                loss, gradient = slope(weights)
                _, push = slope({path: alpha * twin[path] + (1 - alpha) * weights[path] for path in weights})
                change = sum(np.sum((twin[path] - weights[path]) * push[path]) for path in push)
                twin = self.moved(twin, {path: alpha * g for path, g in push.items()}, twin_slots, rate, step)[0]
                alpha = np.clip(alpha - rate * change, 0, 1) if self.options["adaptive"] else alpha
            if self.name == "pfedme":
                twin, pull, losses = dict(initial) if step == 0 else twin, self.options["strength"], []
                for _ in range(self.options["steps"]):
                    each, push = slope(twin)
                    losses.append(each)
                    push = {path: push[path] + pull * (twin[path] - weights[path]) for path in push}
                    twin = {path: twin[path] - self.options["rate"] * push[path] for path in push}
                loss, gradient = losses[0], {path: pull * (weights[path] - twin[path]) for path in weights}
            if self.name == "moon":
                loss, gradient = slope(weights)
                term, push = self.contrast(level, plan, slot, step, number, (weights, initial, twin))
                loss, gradient = loss + term, {path: g + push.get(path, 0) for path, g in gradient.items()}
            weights, norm = self.moved(weights, gradient, slots, rate, step)
            metrics.append((loss, norm))
        for path, table in twins.items():
            table[client][at[path]] = weights[path] if self.name == "moon" else twin[path]
        if scalars:
            scalars["rounds"][client] += 1
            scalars["alpha"][client] = alpha
        return weights, {}, np.mean(metrics, axis=0)

    def contrast(self, level, plan, slot, step, number, models):
        """MOON's term and its gradients at the first of three models: two cosines as logits, whose label is the first."""
        inputs = self.batch_of_step(plan, slot, step, number)[0][0]
        model, layers = self.model(level), self.process.recipe.model.layers[:-1]

        def directions(values):
            for variable in model.trainable_variables:
                variable.assign(values[variable.path])
            features = inputs
            for spec in layers:
                features = model.get_layer(spec.name)(features, training=True)
            return features / tf.norm(features, axis=-1, keepdims=True)

        weights, *anchors = models
        anchors = [directions(each) for each in anchors]
        variables = [v for v in model.trainable_variables if v.path.split("/")[0] in {spec.name for spec in layers}]
        with tf.GradientTape() as tape:
            cosines = tf.stack([tf.reduce_sum(directions(weights) * anchor, -1) for anchor in anchors], -1)
            term = -self.options["mu"] * tf.reduce_mean(terms.logs(cosines / self.options["temperature"])[:, 0])
        slopes = tape.gradient(term, [v.value for v in variables])
        return float(term), {v.path: np.asarray(slope) for v, slope in zip(variables, slopes)}

    def batch_of_step(self, plan, slot, step, number):
        """The inputs and targets of a step, and the key of its client."""
        client, rows = int(plan.clients[slot]), plan.rows[slot, step]
        key = [int(self.process.seed), number, client, step]
        return oracle.batch(self.process, rows[rows >= 0], plan.starts[slot, step], key), client, key

    def slope_of_step(self, level, plan, slot, step, number):
        """A function from values to the loss and its gradients on the batch of a step."""
        batch, client, key = self.batch_of_step(plan, slot, step, number)

        def slope(values):
            local_values = {(0, path): value for path, value in values.items()}
            inside = {entry: np.ones_like(value) for entry, value in local_values.items()}
            used, _ = self.ways(level, 0)
            loss, gradients = self.slope(used, local_values, inside, *batch, client, key, number)
            return loss, {path: gradient for (_, path), gradient in gradients.items()}

        return slope

    def moved(self, values, gradients, slots, rate, step):
        """The values after the optimizer's step along some gradients, and the norm of these."""
        settings = self.process.recipe.optimizer
        norm, new = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients.values())), dict(values)
        factor = 1 if settings.clip_norm is None else min(1, settings.clip_norm / (norm + 1e-6))
        for path, gradient in gradients.items():
            before = slots.get(path, (np.zeros_like(gradient),) * 2)
            new[path], slots[path] = terms.moved(settings.method, values[path], gradient * factor, before, rate, step)
        return new, norm


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
