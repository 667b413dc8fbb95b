"""Replays vectors of SplitMix's public code: ensembles of narrow networks; each client trains some of them."""

import dataclasses

import methods_common as common
import numpy as np
import tensorflow as tf
from methods_files import File, Gaps

TOLERANCE = 1e-9


def replay(path):
    """Replay all clients and rounds of one file, and its predictions: (stage, gap, tolerance) of every stage."""
    file, gaps = File(path), Gaps()
    sequential, stacked = (Replay(file, gaps, engine) for engine in ("sequential", "stacked"))
    state = sequential.start()
    for number in range(len(file.cohorts)):
        sequential.compare_clients(state, number)
        merged = stacked.compare_complete_round(state, number)
        after = common.state_of(sequential.process, sequential.expected(f"round{number}/global_after"), number + 1)
        state = dataclasses.replace(after, clients=merged.clients)
    sequential.compare_predictions(state)
    return gaps.check_stages(file, _stages(sequential), ("unchanged",), TOLERANCE)


def _stages(replay):
    """Stages that a file must show; networks that no client trains in a round stay unchanged."""
    names = {"loss", "client", "round", "logits"}
    names |= {"personal"} if replay.meta["local_bn"] else {"accuracy", "sorted"}
    trained = [{entry.member for entry in replay.entries(number)} for number in range(len(replay.file.cohorts))]
    return names | ({"unchanged"} if min(map(len, trained)) < replay.members else set())


class Replay(common.Replay):
    """One file as a learning process; a level is a number of networks that a client trains."""

    def __init__(self, file, gaps, engine):
        meta, examples = file.meta, common.Examples()
        self.levels = common.named_levels(
            int(1 / float(part) / meta["atom"]) for part in meta["slim_ratios"].split("-")
        )
        self.members = max(self.levels.values())
        layers, stems = {"resnet": _resnet, "digit": _digit}[meta["net"]](file)
        self.batches = examples.clients(file)
        personal = [layer.split("_")[0] for stem, layer in stems.items() if "bn" in stem] if meta["local_bn"] else []
        text = common.recipe_text(
            file,
            len(meta["client_sizes"]),
            layers,
            dict.fromkeys(self.levels, meta["atom"]),
            levels={"members": self.levels},
            round={"weighting": "samples", "label_rows": "all", "personal": personal},
            client={"loss": "batch_masked_cross_entropy" if meta["mask_loss"] else "cross_entropy"},
            engine=engine,
        )
        dataset, rates = examples.dataset(meta["classes"], file.name), meta["lr_per_round"]
        process = common.build_process(text, dataset, meta["client_sizes"], rates=rates)
        super().__init__(file, gaps, process, stems)
        # Shapes of a single network.
        self.shapes = {path: shape[1:] for path, shape in self.shapes.items()}

    def member(self, prefix, number):
        """Read `{path: value}` of one network under a prefix of the file."""
        side = self.meta["image"][1] // 4
        paths = {f"{number}.{name}": path for name, path in self.paths.items()}
        return self.file.weights(prefix, paths, self.shapes, {f"{number}.fc1.weight": (side, side)})

    def read_values(self, prefix, smaller=()):
        """Read `{path: [networks, ...]}` under a prefix of the file."""
        networks = [self.member(prefix, number) for number in range(self.members)]
        return {path: np.stack([one[path] for one in networks]) for path in networks[0]}

    def entries(self, number, clients=None):
        """An `Entry` for each network of each client of a round; `clients` None: all clients of the round."""
        entries = []
        for client in self.file.cohorts[number] if clients is None else clients:
            prefix = f"round{number}/client{client}"
            bases = self.file.arrays[f"{prefix}/bases"].tolist()
            batches = [self.batches[client][batch] for batch in self.file.arrays[f"{prefix}/step_batch"]]
            level = list(self.levels.values()).index(len(bases))
            entries += [common.Entry(client, level, batches, member=member) for member in bases]
        return entries

    def note_shares(self, stage, actual, expected):
        """Compare values; differences above 1 are relative, since running variances can be large."""
        for path, value in expected.items():
            scale = np.maximum(1, np.abs(value))
            self.gaps.note(stage, actual[path] / scale, value / scale)

    def compare_clients(self, state, number):
        """Compare losses and values of every network of every client."""
        for client in self.file.cohorts[number]:
            prefix = f"round{number}/client{client}"
            for slot, entry in enumerate(self.entries(number, [client])):
                trained = self.trainer(state, common.plan([entry]), 0)
                self.gaps.note("loss", trained.losses, self.file.result(f"{prefix}/loss")[:, slot])
                self.note_shares("client", trained.values, self.member(f"f64/{prefix}/after", entry.member))

    def compare_complete_round(self, state, number):
        """Compare a complete round and return the `State` after it; untrained networks keep their bits."""
        entries = self.entries(number)
        merged = common.run_planned_round(self.process, state, common.plan(entries))
        self.note_shares("round", merged.weights, self.expected(f"round{number}/global_after"))
        for path, value in merged.weights.items():
            for member in set(range(self.members)) - {entry.member for entry in entries}:
                self.gaps.note("unchanged", value[member], state.weights[path][member])
        return merged

    def compare_predictions(self, state):
        """Compare mean logits of the first networks, also sorted by accuracy, or those of clients with personal norms."""
        if self.meta["local_bn"]:
            for client in range(len(self.meta["client_sizes"])):
                self.compare_personal(state, client)
            return
        self.compare_logits(state, "eval", "logits")
        accuracies = [
            self.accuracy(_reorder_networks(state, [member] * self.members)) for member in range(self.members)
        ]
        self.note("accuracy", accuracies, "sort/base_acc")
        self.compare_logits(_reorder_networks(state, np.argsort(accuracies)[::-1]), "sort", "sorted")

    def compare_personal(self, state, client):
        """Compare a client's personal norms and its predictions with them."""
        personal = {path: tf.stack([table[client]] * len(table)) for path, table in state.clients["personal"].items()}
        for number in range(self.members):
            expected = self.member(f"f64/local_bn/client{client}", number)
            self.note_shares("personal", {path: table[client][number] for path, table in personal.items()}, expected)
        client_state = dataclasses.replace(state, clients={**state.clients, "personal": personal})
        self.compare_logits(client_state, f"eval/client{client}", "logits")

    def compare_logits(self, state, prefix, stage):
        """Compare mean logits of the first networks for each level's number of networks."""
        levels, batches = self.levels.items(), self.file.batches("eval")
        if prefix == "sort":
            # The mean of all networks does not depend on their order.
            levels, batches = [(level, members) for level, members in levels if members < self.members], batches[:1]
        for level, members in levels:
            for batch, (images, _) in enumerate(batches):
                logits = common.predict(self.process, state, images, level, training=not self.meta["track"])
                expected = self.file.result(f"{prefix}/members{members}/batch{batch}/logits")
                self.note_shares(stage, {"": logits}, {"": expected})

    def accuracy(self, state):
        """Accuracy of the mean of all networks on the evaluation's examples, in 0..1."""
        hits = []
        for images, labels in self.file.batches("eval"):
            logits = common.predict(self.process, state, images, training=not self.meta["track"])
            hits.extend(np.argmax(logits, -1) == labels)
        return float(np.mean(hits))


def _reorder_networks(state, order):
    """Return the `State` with the networks in another order."""
    return dataclasses.replace(state, weights={path: tf.gather(value, order) for path, value in state.weights.items()})


def _resnet(file):
    """Return the lines of model.layers, and `{PyTorch module: Keras layer}`."""
    meta, norm, scaler = file.meta, *_settings(file.meta)
    widths = meta["base_hidden"]
    lines = [f"[PaddedConv2D: {{filters: {widths[0]}, use_bias: false}}, Scaler: {{enabled: {scaler}}}]"]
    stems = {"conv1": "0_0_padded_conv2d"}
    for stage, (width, blocks) in enumerate(zip(widths, meta["num_blocks"], strict=True), 1):
        for block in range(blocks):
            layer, stem = f"{len(lines)}_0_pre_activation_block", f"layer{stage}.{block}"
            stems |= {f"{stem}.{part}": f"{layer}/{part}" for part in ("conv1", "conv2", "shortcut")}
            stems |= {f"{stem}.n{part}": f"{layer}/norm{part}/{norm}" for part in (1, 2)}
            stride = 2 if stage > 1 and block == 0 else 1
            options = f"filters: {width}, stride: {stride}, norm: {norm}, scaler: {scaler}, scaler_at: products"
            lines.append(f"PreActivationBlock: {{{options}}}")
    stems |= {"n4": f"{len(lines)}_0_norm/{norm}", "linear": f"{len(lines)}_3_dense"}
    return [*lines, f"[Norm: {{kind: {norm}}}, ReLU, GlobalAveragePooling2D, Dense: {{units: !classes}}]"], stems


def _digit(file):
    """The same for the digit network; each norm is a unit, since norms can be personal."""
    meta, norm, scaler = file.meta, *_settings(file.meta)
    behind, lines, stems = [f"Scaler: {{enabled: {scaler}}}", f"Norm: {{kind: {norm}}}", "ReLU"], [], {}
    for part, width in enumerate(meta["base_conv"], 1):
        stems |= {f"conv{part}": f"{len(lines)}_0_padded_conv2d", f"bn{part}": f"{len(lines) + 2}_0_norm/{norm}"}
        side = file.arrays[f"global_init/0.conv{part}.weight"].shape[-1]
        lines += [f"PaddedConv2D: {{filters: {width}, kernel_size: {side}}}", *behind]
        lines += ["MaxPooling2D"] if part < 3 else []
    lines.append("Flatten")
    for part, width in enumerate(meta["base_fc"], 1):
        stems |= {f"fc{part}": f"{len(lines)}_0_dense", f"bn{part + 3}": f"{len(lines) + 2}_0_norm/{norm}"}
        lines += [f"Dense: {{units: {width}}}", *behind]
    stems["fc3"] = f"{len(lines)}_0_dense"
    return [*lines, "Dense: {units: !classes}"], stems


def _settings(meta):
    return "bn" if meta["track"] else "sbn", str(bool(meta["rescale_layer"])).lower()
