"""Replays recorded asynchronous rounds: FedBuff and FedAsync of FLSim.

The event queue plans the recorded starts; the compiled rounds train and merge them. Every start, arrival, local step,
change and global step is compared.
"""

import itertools

import numpy as np
import recorded_rounds as common
from recorded_file import File, Gaps

from hetero_tf.base import registry
from hetero_tf.data.codecs import picture
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.planning.asynchronous import ClientStart, EventQueue

LAYERS = {
    False: (["[Flatten, Dense: {units: !classes}]"], {"w": "0_1_dense/kernel", "b": "0_1_dense/bias"}),
    True: (
        ["[Flatten, Dense: {units: HIDDEN, activation: tanh}]", "Dense: {units: !classes}"],
        {"w1": "0_1_dense/kernel", "b1": "0_1_dense/bias", "w2": "1_0_dense/kernel", "b2": "1_0_dense/bias"},
    ),
}
TOLERANCES = {**dict.fromkeys(("loss", "change", "global values", "momentum"), 1e-12), "weight": 1e-14}


class RecordedStarts:
    """The recorded list of starts: one after another, without end."""

    def __init__(self, events):
        self.events, self.time = itertools.cycle(events.tolist()), 0
        self._advance()

    def _advance(self):
        self.client, gap, self.duration = next(self.events)
        self.time += gap

    def next_time(self):
        return self.time

    def start(self, time, version, busy):
        start = ClientStart(self.client, self.duration, dropped=False)
        self._advance()
        return [start]

    def arrive(self, time):
        """Change nothing: no start waits for an arrival."""

    def end_version(self, time):
        """Change nothing: no start waits for a version."""


def policy_of(meta, arrays, sizes):
    """The policy and the server of the recipe that the settings mean."""
    staleness, largest = meta["staleness"], max(1, int(arrays["arrivals/staleness"].max()))
    options = {"staleness": staleness["kind"], "max_staleness": meta.get("max_staleness", largest)}
    options |= {"neutral_staleness": staleness["avg_staleness"]} if "avg_staleness" in staleness else {}
    options |= {"exponent": staleness["exponent"]} if "exponent" in staleness else {}
    options |= {"hinge_slope": staleness["a"], "hinge_start": staleness["b"]} if staleness["kind"] == "hinge" else {}
    rate, weight = meta["server_lr"], float(np.mean(sizes)) if "example_weight" in meta else 1.0
    examples = meta.get("example_weight", 1.0)
    if meta["rule"] == "fedasync":
        return {"name": "immediate", **options}, rate * weight / examples
    # An epoch of FLSim has as many arrivals as there are clients, and its end empties the buffer.
    options |= {"name": "buffered", "size": meta["K"], "flush_after": meta["clients"]}
    reduction = meta.get("reduction", "WEIGHTED_SUM")
    if reduction == "WEIGHTED_AVERAGE":
        return {**options, "divide_by": "factors"}, rate
    if reduction != "WEIGHTED_SUM":
        raise ValueError(f"no rule reproduces the reduction {reduction}")
    # FLSim does not divide the sum; ours is divided by the size of the buffer and by the mean number of examples.
    return {**options, "divide_by": "buffer"}, rate * meta["K"] * weight / examples


class Replay:
    """One file as a learning process with its event queue."""

    def __init__(self, file):
        self.file, self.meta, self.arrays, self.gaps = file, file.meta, file.arrays, Gaps()
        self.note, meta, arrays = self.gaps.note, file.meta, file.arrays
        clients = range(meta["clients"])
        data = [(arrays[f"data/client{client}/x"], arrays[f"data/client{client}/y"]) for client in clients]
        self.sizes = [len(y) for _, y in data]
        ends = np.cumsum([0, *self.sizes])
        self.rows = [np.arange(*ends[client : client + 2], dtype=np.int32) for client in clients]
        x = np.concatenate([x for x, _ in data])[:, :, None, None]
        y = np.concatenate([y for _, y in data]).astype(np.int32)
        hidden = "w1" in meta["parameters"]
        classes = len(arrays["init/b2" if hidden else "init/b"])
        layers, self.paths = LAYERS[hidden]
        dataset = Dataset(Split(x, y), Split(x[:1], y[:1]), (picture.field(x),), classes, "recorded")
        self.process = common.build_process(self._recipe(layers), dataset, self.sizes)
        self.policy = registry.find("policies", self.policy_name).policy(**self.policy_options)
        self.trainer = common.Trainer(self.process)
        self.arrival_index = self._arrival_indices()
        self.versions = EventQueue(RecordedStarts(arrays["events"]), self.policy)

    def _recipe(self, layers):
        meta = self.meta
        policy, rate = policy_of(meta, self.arrays, self.sizes)
        self.policy_name, self.policy_options = policy["name"], {k: v for k, v in policy.items() if k != "name"}
        server = {"name": "momentum", "learning_rate": rate, "momentum": meta.get("server_momentum", 0.0)}
        hidden = len(self.arrays["init/b1"]) if "w1" in meta["parameters"] else 0
        return common.recipe_text(
            self.file,
            [line.replace("HIDDEN", str(hidden)) for line in layers],
            meta["clients"],
            round={
                "policy": policy,
                "server": server,
                "weighting": "samples" if "example_weight" in meta else "uniform",
                "label_rows": "all",
                "clients": meta["clients"],
            },
            client={"batch_size": meta["batch"], "epochs": meta["local_epochs"]},
            optimizer={"learning_rate": meta["local_lr"]},
            fleet="uniform",
            engine="sequential",
        )

    def values(self, prefix, index=None):
        """`{path: array}` in Keras layout of the values under a prefix, or of row `index` of each."""
        values = {}
        for name, path in self.paths.items():
            value = self.arrays[f"{prefix}/{name}"]
            value = value if index is None else value[index]
            values[path] = value.T if value.ndim == 2 else value
        return values

    def run(self):
        """Run all global steps and compare them."""
        steps = len(self.arrays["global/time"]) - 1
        state = common.with_weights(self.process.initialize(), self.values("init"))
        self._compare_weights(state, 0)
        for number in range(steps):
            version = self.versions.version(number)
            self.note("time of a step", version.ended, self.arrays["global/time"][number + 1])
            plan = self.plan(version)
            self._train_clients(state, number, version)
            state, _ = self.process.run(state, [plan])
            self._compare_weights(state, number + 1)
            if self.meta.get("server_momentum"):
                # The factor by which the sum was divided; FLSim's velocity has the opposite sign.
                scale = -self.process.recipe.round.server.options["learning_rate"] / self.meta["server_lr"]
                for path, value in self.values("momentum", number).items():
                    self.note("momentum", state.server["velocity"][path] * scale, value)
        self._compare_events(steps)

    def plan(self, version):
        """The plan of the clients that start from a version, without those whose results are refused."""
        entries, delays = [], []
        for client, staleness in zip(version.clients, version.staleness):
            if staleness <= self.policy.max_staleness:
                entries.append(self._entry(client))
                delays.append(staleness)
        if not entries:
            empty = self.process.plan(0, [0])
            none = {name: array[:0] for name, array in empty.arrays().items()}
            return type(empty)(**none, delays=np.zeros(0, np.int32))
        plan = common.plan(entries)
        return type(plan)(**plan.arrays(), delays=np.asarray(delays, np.int32))

    def _entry(self, client):
        """The entry of a plan of a client, whose epochs have the same batches in stored order."""
        rows, batch = self.rows[client], self.meta["batch"]
        epoch = [rows[first : first + batch] for first in range(0, len(rows), batch)]
        return common.Entry(client, 0, epoch * self.meta["local_epochs"])

    def _train_clients(self, state, number, version):
        """Train every recorded start of a version, refused ones too, and compare its losses and its change."""
        arrays = self.arrays
        for position, client in enumerate(version.clients):
            index = self.arrival_index.get((number, position))
            if index is None:
                continue
            trained = self.trainer(state, self._entry(client))
            losses = arrays["arrivals/losses"][index]
            self.note("loss", trained.losses, losses[~np.isnan(losses)])
            for path, change in self.values("arrivals/change", index).items():
                self.note("change", trained.values[path] - np.asarray(state.weights[path]), change)

    def _arrival_indices(self):
        """`{(version, position of the start among those of its version): index of its arrival}`."""
        starts, arrivals = self.arrays["starts/version"].tolist(), self.arrays["arrivals/start_index"].tolist()
        position = [sum(each == version for each in starts[:index]) for index, version in enumerate(starts)]
        return {(starts[start], position[start]): index for index, start in enumerate(arrivals)}

    def _compare_weights(self, state, number):
        for path, value in self.values("global", number).items():
            self.note("global values", state.weights[path], value)

    def _compare_events(self, steps):
        arrays, versions = self.arrays, [self.versions.version(number) for number in range(steps)]
        starts = [
            (client, time, number)
            for number, version in enumerate(versions)
            for client, time in zip(version.clients, version.started)
        ]
        recorded = list(zip(*(arrays[f"starts/{name}"].tolist() for name in ("client", "time", "version"))))
        # Starts after the last step have no effect.
        self.note("starts", starts, [each for each in recorded if each[2] < steps])
        arrivals = [
            (versions[start].clients[position], time, start, number, number - start, versions[start].started[position])
            for number, version in enumerate(versions)
            for start, position, time in version.arrivals
        ]
        names = ("client", "time", "version_start", "version", "staleness", "start_time")
        recorded = list(zip(*(arrays[f"arrivals/{name}"].tolist() for name in names)))[: len(arrivals)]
        self.note("arrivals", arrivals, recorded)
        self._compare_merges(versions, arrivals)

    def _compare_merges(self, versions, arrivals):
        """Compare which arrivals each step merges, their weights, and which steps end an epoch."""
        arrays = self.arrays
        merged = [staleness <= self.policy.max_staleness for *_, staleness, _ in arrivals]
        self.note("refused", ~np.asarray(merged), arrays["arrivals/refused"][: len(arrivals)])
        sizes = np.ones(len(self.sizes))
        if "example_weight" in self.meta:
            sizes = np.asarray(self.sizes) / self.meta["example_weight"]
        weights = [
            sizes[client] * self.policy.factors[staleness] if good else 0.0
            for good, (client, _, _, _, staleness, _) in zip(merged, arrivals)
        ]
        self.note("weight", weights, arrays["arrivals/weight"][: len(arrivals)])
        # Flushes are steps of their own, after the last arrival of an epoch.
        counts = [
            sum(number - start <= self.policy.max_staleness for start, *_ in version.arrivals)
            for number, version in enumerate(versions)
        ]
        self.note("flush", np.asarray(counts) < self.policy.buffer, arrays["global/flush"][1:])
        after = [
            number + (index == len(version.arrivals) - 1 and count == self.policy.buffer)
            for number, (version, count) in enumerate(zip(versions, counts))
            for index in range(len(version.arrivals))
        ]
        self.note("version after", after, arrays["arrivals/version_after"][: len(arrivals)])


def replay(path, method, **runs):
    """Replay one file: (stage, largest difference, tolerance) of every stage; every array must be compared."""
    recorded = Replay(File(path))
    recorded.run()
    unread = recorded.file.unread()
    stages = [(stage, gap, TOLERANCES.get(stage, 0.0)) for stage, gap in recorded.gaps.items()]
    return [*stages, ("arrays that were not compared", len(unread), 0.0, *unread)]
