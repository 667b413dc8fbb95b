"""The methods with recorded rounds: the recipe of a file, its plans, and what only files of a method list."""

import dataclasses
import json
import re
from unittest import mock

import numpy as np
import tensorflow as tf
from recorded_file import Gaps, keras_layout, variable_paths
from recorded_rounds import Entry, Replay, Run, build_process, mean_loss, named_levels, with_weights

from hetero_tf.base import registry
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.codecs import Field, running_text
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.inputs import masked_text
from hetero_tf.evaluation import statistics_query
from hetero_tf.methods.losses import softmax_twice
from hetero_tf.methods.losses.cross_entropy import softmax_cross_entropy
from hetero_tf.methods.losses.masked_cross_entropy import masked
from hetero_tf.models.state import concat_values
from hetero_tf.models.variables import queried, values
from hetero_tf.rounds.merge import axis_mask, coverage, merge_updates
from hetero_tf.rounds.round_setup import build_submodels
from hetero_tf.rounds.submodel_cut import merged_coordinates

BOTH = [
    Run(f"f{precision[-2:]}/", precision, engine)
    for engine in ("sequential", "stacked")
    for precision in ("float64", "float32")
]


def post_activation_resnet(meta, blocks, norm, stem, scaled=""):
    """A ResNet whose norms follow its convolutions: lines of model.layers, and its stems.

    `meta` has a width and `blocks` a number of blocks for each stage. Names of PyTorch's norms begin with `stem`;
    `scaled` is a prefix of every width.
    """
    widths = [f"{scaled}{width}" for width in meta["widths"]]
    lines = [f"[PaddedConv2D: {{filters: {widths[0]}, use_bias: false}}, Norm: {{kind: {norm}}}, ReLU]"]
    stems = {"conv1": "0_0_padded_conv2d", f"{stem}1": f"0_1_norm/{norm}"}
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True), 1):
        for block in range(count):
            name, layer = f"layer{stage}.{block}", f"{len(lines)}_0_post_activation_block"
            stems |= {f"{name}.conv{part}": f"{layer}/conv{part}" for part in (1, 2)}
            stems |= {f"{name}.{stem}{part}": f"{layer}/norm{part}/{norm}" for part in (1, 2)}
            stems |= {f"{name}.shortcut.0": f"{layer}/shortcut", f"{name}.shortcut.1": f"{layer}/norm3/{norm}"}
            stride = 2 if stage > 1 and block == 0 else 1
            lines.append(f"PostActivationBlock: {{filters: {width}, stride: {stride}, norm: {norm}, scaler: false}}")
    stems["linear"] = f"{len(lines)}_1_dense"
    return [*lines, "[GlobalAveragePooling2D, Dense: {units: !classes}]"], stems


def pre_activation_stems(name, layer, norm, part="n"):
    """The stems of a pre-activation block."""
    convolutions = {f"{name}.{part}": f"{layer}/{part}" for part in ("conv1", "conv2", "shortcut")}
    return convolutions | {f"{name}.{part}{number}": f"{layer}/norm{number}/{norm}" for number in (1, 2)}


class HeteroFL(Replay):
    """HeteroFL, from the authors' code in both precisions; rounds also with the label cut."""

    RUNS = BOTH
    TOLERANCE = {"float64": 1e-8, "float32": 1e-5}
    SUBMODEL = "prefix"

    def __init__(self, path, run):
        super().__init__(path, run)
        if self.is_text:
            self.process = with_recorded_masks(self, self.process)
            self.trainer.process = self.process
        label_cut = self.build(self.text.replace('"label_cut": false', '"label_cut": true'))
        self.processes = [self.process, with_recorded_masks(self, label_cut) if self.is_text else label_cut]

    @property
    def is_text(self):
        return self.meta["model"] == "transformer"

    def tolerance(self, stage):
        return 1e-4 if stage == "norm" and self.run.precision == "float32" else super().tolerance(stage)

    def sizes(self):
        return [1] * len(self.meta["levels"])

    def sections(self):
        meta = self.meta
        levels = list(dict.fromkeys([meta["global_level"], *meta["levels"]]))
        return {
            "levels": {"widths": {level: float(meta["level_rate"][level]) for level in levels}},
            "input": {"name": "masked_text", "segment": meta["bptt"]} if self.is_text else {"name": "images"},
            "round": {"submodel": self.SUBMODEL},
            "client": {"loss": "masked_cross_entropy" if meta["mask"] else "cross_entropy", "label_cut": False},
            "optimizer": {"clip_norm": meta["clip_norm"]},
            "evaluate": {"best": "global_perplexity" if self.is_text else "global_accuracy"},
        }

    def network(self):
        norm = {"bn": "sbn"}.get(self.meta.get("norm"), self.meta.get("norm"))
        scaler = f"Scaler: {{enabled: {str(bool(self.meta.get('scale'))).lower()}}}"
        networks = {"conv": self.conv, "resnet18": self.resnet, "transformer": self.transformer}
        return networks[self.meta["model"]](norm, scaler)

    def conv(self, norm, scaler):
        widths = self.meta["hidden"]
        lines = [
            f"[PaddedConv2D: {{filters: !w {width}}}, {scaler}, Norm: {{kind: {norm}}}, ReLU, MaxPooling2D]"
            for width in widths
        ]
        lines[-1] = lines[-1].replace(", MaxPooling2D", "")
        stems = {f"blocks.{5 * stage}": f"{stage}_0_padded_conv2d" for stage in range(len(widths))}
        stems |= {f"blocks.{5 * stage + 2}": f"{stage}_2_norm/{norm}" for stage in range(len(widths))}
        stems[f"blocks.{5 * len(widths) + 1}"] = f"{len(widths) + 1}_0_dense"
        return [*lines, "GlobalAveragePooling2D", "Dense: {units: !classes}"], stems

    def resnet(self, norm, scaler):
        widths, options = self.meta["hidden"], f"norm: {norm}, scaler: {scaler.split()[-1].rstrip('}')}"
        lines = [f"PaddedConv2D: {{filters: !w {widths[0]}, use_bias: false}}"]
        stems = {
            "conv1": "0_0_padded_conv2d",
            "n4": f"{len(widths) + 1}_1_norm/{norm}",
            "linear": f"{len(widths) + 2}_0_dense",
        }
        for stage, (width, blocks) in enumerate(zip(widths, self.meta.get("blocks", [2, 2, 2, 2])), 1):
            layer = f"{{PreActivationBlock: {{filters: !w {width}, {options}}}}}"
            lines.append(f"Repeat: {{times: {blocks}, first: {{stride: {1 if stage == 1 else 2}}}, layer: {layer}}}")
            for block in range(blocks):
                stems |= pre_activation_stems(f"layer{stage}.{block}", f"{stage}_{block}_0_pre_activation_block", norm)
        return [
            *lines,
            f"[{scaler}, Norm: {{kind: {norm}}}, ReLU, GlobalAveragePooling2D]",
            "Dense: {units: !classes}",
        ], stems

    def transformer(self, norm, scaler):
        sizes = self.meta["tcfg"]
        width, heads, top, embedding = (
            sizes["embedding_size"],
            sizes["num_heads"],
            "transformer_embedding",
            "0_0_masked_token_embedding",
        )
        stems = {f"{top}.embedding": f"{embedding}/tokens", f"{top}.norm": f"{embedding}/norm"}
        stems[f"{top}.positional_embedding.positional_embedding"] = f"{embedding}/places"
        for number in range(sizes["num_layers"]):
            name, layer = f"transformer_encoder.layers.{number}", f"1_{number}_0_transformer_block"
            parts = {"linear_q": "query", "linear_k": "key", "linear_v": "value", "linear_o": "output"}
            stems |= {f"{name}.mha.{part}": f"{layer}/attention/{ours}_" for part, ours in parts.items()}
            parts = {"norm1": "norm1", "norm2": "norm2", "linear1": "expand", "linear2": "contract"}
            stems |= {f"{name}.{part}": f"{layer}/{ours}" for part, ours in parts.items()}
        stems |= {
            "decoder.linear1": "2_0_dense",
            "decoder.norm1": "2_3_layer_normalization",
            "decoder.linear2": "3_0_dense",
        }
        block = f"{{TransformerBlock: {{heads: {heads}, head_width: !w {width // heads}, hidden: !w {sizes['hidden_size']}}}}}"
        return [
            f"MaskedTokenEmbedding: {{classes: !classes, positions: {self.meta['bptt']}, width: !w {width}}}",
            f"Repeat: {{times: {sizes['num_layers']}, same_initial_values: true, layer: {block}}}",
            f"[Dense: {{units: !w {width}}}, Scaler, GELU, LayerNormalization: {{epsilon: 1.0e-5}}]",
            "Dense: {units: !classes}",
        ], stems

    def read_batches(self):
        if not self.is_text:
            return super().read_batches()
        batches, self.rows = [], []
        for number, cohort in enumerate(self.file.cohorts):
            batches.append({})
            for client in cohort:
                prefix = f"round{number}/client{client}"
                tokens = self.file.input(f"{prefix}/tokens")
                ids = np.arange(len(self.rows), len(self.rows) + len(tokens), dtype=np.int32)
                batches[-1][client] = [ids] * self.file.steps(prefix, "step{}/mask")
                self.rows.extend(tokens)
        return batches

    def dataset(self):
        if not self.is_text:
            return super().dataset()
        longest = max(map(len, self.rows))
        padded = np.stack([np.pad(row, (0, longest - len(row))) for row in self.rows])
        tokens, test = self.meta["num_tokens"], Split(self.file.input("eval/tokens"), None)
        fields = (Field("text", running_text.Codec(longest, count=tokens)),)
        return Dataset(Split(padded, None), test, fields, tokens, self.file.name)

    def build(self, text):
        return build_process(text, self.dataset(), self.sizes(), self.meta["label_split"])

    def entries(self, number):
        levels, segment = self.process.recipe.levels.names, self.meta.get("bptt", 0)
        return [
            Entry(
                client,
                levels.index(self.meta["levels"][client]),
                ids,
                starts=[segment * step for step in range(len(ids))],
            )
            for client, ids in self.batches[number].items()
        ]

    def compare_client(self, state, prefix, entry):
        super().compare_client(state, prefix, entry)
        if self.run.precision == "float32" and any(name.startswith(f"{prefix}/before/") for name in self.file.arrays):
            sent = self.trainer(state, entry.first(0)).values
            self.gaps.note("cut", sent, self.read_values(f"{prefix}/before", sent))
        if self.run.precision == "float32" and f"{prefix}/accuracy" in self.file:
            steps = range(len(entry.batches))
            accuracies = [self.accuracy(self.step_logits(self.trained[-1], step)[0], entry, step) for step in steps]
            self.gaps.note("accuracy", accuracies, self.file.arrays[f"{prefix}/accuracy"])

    def accuracy(self, logits, entry, step):
        """Return the accuracy of a step's logits in percent."""
        hits = np.argmax(self.masked(logits, entry.client), -1) == self.process.dataset.train.y[entry.batches[step]]
        return 100 * np.mean(hits)

    def masked(self, logits, client):
        """Return logits with zeros for labels that a client lacks, if the loss has them."""
        masks_labels = registry.find("losses", self.process.recipe.client.loss.name).MASKS_LABELS
        return masked(logits, self.process.partition.label_mask[client][None]) if masks_labels else logits

    def client_perplexity(self, client, name):
        """Compare the perplexities of the steps."""
        self.gaps.note("perplexity", np.exp(client.trained.losses), self.file.result(name), relative=True)

    def compare_round(self, state, number):
        self.compare_merge(state, number)
        return super().compare_round(state, number)

    def compare_merge(self, state, number):
        """Compare the merge alone, of the clients that were trained one by one."""
        setup, total, merged = self.process.setup, 0.0, []
        for _, _, entry, trained in self.trained:
            cut = setup.submodels[self.process.family.submodel_of[entry.level]].cut
            present, labels = setup.examples.present[entry.client], tf.range(setup.examples.present.shape[1])
            round, client, zero = map(tf.constant, (state.round, entry.client, 0))
            coordinates = cut.coordinates(setup.algorithm.submodel, round, client, zero, labels, zero)
            merged.append(merged_coordinates(coordinates, present))
            total += cut.scatter_sum(concat_values(list(trained.values.values()))[None], merged[-1:])
        layout, cut, ones = self.process.state_layout, setup.layout.cut, tf.ones(len(merged), self.run.precision)
        masks = {axis: tf.stack([axis_mask(axis, each, ones.dtype) for each in merged]) for axis in cut.distinct}
        covered = coverage(cut, masks, {0: ones}, [0] * len(cut.shapes))
        rows = merge_updates(setup, layout.pack(layout.values_of(state)), total, covered)
        self.gaps.note("merge", layout.unpack(rows)["weights"], self.recorded_round(number))

    def compare_predictions(self, state):
        file, evaluator, statistics = self.file, self.process.evaluator, {}
        if paths := [variable.path for variable in queried(evaluator.global_model)]:
            statistics = dict(zip(paths, self.statistics(list(state.weights.values()))))
            for name, path in variable_paths(paths, self.stems).items():
                self.note("sbn", statistics[path], f"sbn/{name}")
        model = self.process.network(state, statistics=statistics)
        if self.is_text:
            hidden = file.input("eval/mask") == 1
            logits = model(np.where(hidden, self.meta["num_tokens"], file.input("eval/tokens")), training=False)
            self.note("global", np.transpose(logits, (0, 2, 1)), "eval/global/logits")
        else:
            logits = model(file.input("eval/img"), training=False)
            self.note("global", logits, "eval/global/logits")
            self.compare_local(logits)
            self.compare_accuracy(logits, "eval/global")
        metrics = evaluator.measure_global(list(state.weights.values()), list(statistics.values()))
        self.note("global", metrics["global_loss"], "eval/global/loss")
        if self.is_text:
            expected = file.result("eval/global/perplexity")
            self.gaps.note("global", metrics["global_perplexity"], expected, relative=True)

    def statistics(self, weights):
        """Return the running statistics of the query over the file's images."""
        file, process = self.file, self.process
        images, labels = tf.constant(file.input("sbn/img")), tf.constant(file.input("sbn/label"))
        models = process.evaluator.global_model, process.family.predictor(process.recipe.levels.global_level)
        size = self.meta["sbn_batch"]
        examples = dataclasses.replace(process.setup.examples, x=images, y=labels)
        calibrate = statistics_query.StatisticsQuery(*models, examples, size, Replicas(2))
        full, short = statistics_query.statistics_batches([np.arange(len(images))], size)
        return calibrate(weights, full, short, 0)

    def compare_local(self, logits):
        """Compare the logits of each client's test examples under its labels."""
        for client in range(len(self.process.partition.label_mask)):
            rows = self.file.input(f"eval/local{client}/rows")
            local = self.masked(tf.gather(logits, rows), client)
            self.note("local", local, f"eval/local{client}/logits")
            self.note("local", mean_loss(local, self.file.input("eval/label")[rows]), f"eval/local{client}/loss")
            self.compare_accuracy(local, f"eval/local{client}", rows)

    def compare_accuracy(self, logits, prefix, rows=slice(None)):
        """Compare an accuracy in percent, which files have for the run in float32."""
        if self.run.precision == "float32":
            accuracy = 100 * np.mean(np.argmax(logits, -1) == self.file.input("eval/label")[rows])
            self.gaps.note("accuracy", accuracy, self.file.arrays[f"{prefix}/accuracy"])


def with_recorded_masks(replay, process):
    """Return the process with the file's masks instead of random numbers, and rows without padding."""
    file, bptt = replay.file, replay.meta["bptt"]
    prefixes = [
        (number, client, f"round{number}/client{client}")
        for number, cohort in enumerate(file.cohorts)
        for client in cohort
    ]
    # The training split has the rows in this order.
    lengths = np.asarray(list(map(len, replay.rows)), np.int32)
    test, steps = file.arrays["eval/mask"], max(len(ids) for clients in replay.batches for ids in clients.values())
    most = max(len(test), *(len(ids[0]) for clients in replay.batches for ids in clients.values()))
    table = np.zeros((len(file.cohorts) + 1, len(replay.meta["levels"]), steps, most, bptt), np.float32)
    for number, client, prefix in prefixes:
        for step in range(file.steps(prefix, "step{}/mask")):
            mask = file.arrays[f"{prefix}/step{step}/mask"]
            table[number, client, step, : mask.shape[0], : mask.shape[1]] = mask
    table[-1, 0, 0, : test.shape[0], : test.shape[1]] = test

    def recorded_uniform(key, shape):
        # Training keys are (seed, round, client, step), one for each client of a block; test keys are
        # (seed, row, start).
        mask = tf.gather_nd(table, key[..., 1:]) if key.shape[-1] == 4 else tf.constant(table)[-1, 0, 0]
        return 1.0 - mask[..., : shape[0], : shape[1]]

    source = masked_text.build(file.precision, segment=bptt, uniform=recorded_uniform)

    def batch(x, y, rows, start, key, labels, training, length=None):
        # Idle clients of a step read row 0, which is not shorter than the other rows.
        most = tf.reduce_min(tf.gather(lengths, rows[..., 0])) if training else x.shape[1]
        return source.batch(x[:, :most], y, rows, start, key, labels, training)

    masked_input = dataclasses.replace(source, batch=batch)
    examples = dataclasses.replace(process.setup.examples, input=masked_input)
    evaluator = dataclasses.replace(process.evaluator, examples=examples)
    setup = dataclasses.replace(process.setup, examples=examples)
    return dataclasses.replace(process, input=masked_input, setup=setup, evaluator=evaluator)


class Channels(int):
    """Size of a convolution's output axis, different from the equal sizes of other axes."""

    def __new__(cls, size, conv):
        channels = super().__new__(cls, size)
        channels.conv = conv
        return channels

    def __eq__(self, other):
        return isinstance(other, Channels) and (int(self), self.conv) == (int(other), other.conv)

    def __hash__(self):
        return hash((int(self), self.conv))


class FedRolex(HeteroFL):
    """Rolling windows, or recorded coordinates of each convolution, client and round."""

    RUNS = Replay.RUNS
    SUBMODEL = "rolling"

    def network(self):
        self.meta["model"] = "resnet18"
        return super().network()

    @property
    def is_text(self):
        return False

    def build(self, text):
        process = super().build(text)
        if self.meta["algo"] != "random":
            return process
        windows = _windows(variable_paths(process.paths, self.network()[1]))
        cut, tables = process.setup.layout.cut, self.coordinates()

        def named(axis, conv):
            return axis if conv is None else dataclasses.replace(axis, size=Channels(axis.size, conv))

        axes = tuple(
            tuple(named(axis, conv) for axis, conv in zip(axes, windows[path], strict=True))
            for path, axes in zip(process.paths, cut.axes, strict=True)
        )

        def choose(size, count, round, client, seed):
            return tf.gather_nd(tf.constant(tables[size.conv, count]), [[round, client]])[0]

        layout = dataclasses.replace(process.setup.layout, cut=dataclasses.replace(cut, axes=axes))
        algorithm = dataclasses.replace(process.setup.algorithm, submodel=choose)
        blocks, masks = zip(*((each.block, each.mask) for each in process.setup.submodels))
        submodels = build_submodels(layout, blocks, masks)
        setup = dataclasses.replace(process.setup, layout=layout, algorithm=algorithm, submodels=submodels)
        return dataclasses.replace(process, setup=setup)

    def coordinates(self):
        """`{(convolution, number of channels): int32 [rounds, clients, channels]}`, by the rounds' own numbers."""
        last, tables = max(cohort["t"] for cohort in self.meta["rounds"]), {}
        for name in self.file.arrays:
            if match := re.fullmatch(r"round(\d+)/client(\d+)/index/(.+)", name):
                index = self.file.input(name)
                size = (last + 1, len(self.meta["levels"]), len(index))
                table = tables.setdefault((match[3], len(index)), np.zeros(size, np.int32))
                table[self.meta["rounds"][int(match[1])]["t"], int(match[2])] = index
        return tables

    def compare_predictions(self, state):
        images, labels = self.file.input("eval/img"), self.file.input("eval/label")
        logits = self.predict(state, images, training=True)
        self.note("global", logits, "eval/global/logits")
        self.note("global", mean_loss(logits, labels), "eval/global/loss")
        self.note("global", self.predict(state, images[:3], training=True), "eval/global_first3/logits")
        for client, mask in enumerate(self.process.partition.label_mask):
            self.note("local", np.where(mask, logits, 0.0), f"eval/local{client}/logits")


def _windows(paths):
    """`{variable path: name of the convolution whose outputs each dimension is, or None}`."""
    windows, entered, left = {}, None, "conv1.weight"
    for name, path in sorted(paths.items(), key=lambda pair: (not pair[0].startswith("conv1"), pair[0])):
        block, _, layer = name.rpartition(".")[0].rpartition(".")
        inner, outer = f"{block}.conv1.weight", f"{block}.conv2.weight"
        # A block begins with the output of the previous block.
        if layer == "conv1" and block:
            entered, left = left, outer
        ends = {
            "n1": (entered,),
            "n2": (inner,),
            "n4": (left,),
            "linear": (left, None) if name.endswith("weight") else (None,),
            "conv1": (None, None, entered, inner) if block else (None, None, None, name),
            "conv2": (None, None, inner, outer),
            "shortcut": (None, None, entered, outer),
        }
        windows[path] = ends[layer]
    return windows


class FjORD(Replay):
    """A random width for every batch, with or without distillation from the client's largest width.

    Each round has new clients, since a client's examples change.
    """

    RUNS = (Run(engine="auto"),)

    @property
    def levels(self):
        return named_levels(self.meta["p_s"])

    def network(self):
        return post_activation_resnet(self.meta, self.meta["blocks"], "wbn", "bn", "!w ")

    def sections(self):
        distill = self.meta["kd"]
        return {
            "levels": {"widths": self.levels},
            "round": {"weighting": "samples", "label_rows": "all"},
            "client": {
                "stages": {"name": "nested", "distill": distill},
                "coupling": "self_distillation" if distill else "sum",
            },
        }

    def sizes(self):
        clients = range(len(self.meta["max_p"]))
        return [sum(map(len, batches.get(client, [[0]]))) for batches in self.batches for client in clients]

    def entries(self, number):
        levels, widths, cohort = list(self.levels.values()), sorted(self.levels.values()), self.meta["rounds"][number]
        # The weights of the merge are numbers of examples, which differ between the rounds of a client.
        first = number * len(self.meta["max_p"])
        for client, drawn in zip(cohort["users"], cohort["draws"], strict=True):
            if (name := f"round{number}/client{client}/p_draws") in self.file:
                self.gaps.note("draws", np.float32(drawn), np.float32(self.file.arrays[name]))
        return [
            Entry(
                first + client,
                levels.index(self.meta["max_p"][client]),
                self.batches[number][client],
                list(map(widths.index, drawn)),
                recorded=client,
            )
            for client, drawn in zip(cohort["users"], cohort["draws"], strict=True)
        ]

    def client_loss(self, client, name):
        full = self.file.result(f"{client.prefix}/full_loss") if self.meta["kd"] else 0.0
        self.gaps.note("loss", client.trained.losses, self.file.result(name) + full)

    def client_full_loss(self, client, name):
        """A part of the loss."""

    def client_reported_loss(self, client, name):
        """Compare the mean over examples of the loss without that of the largest width."""
        losses = client.trained.losses
        if self.meta["kd"]:
            losses = losses - self.file.result(f"{client.prefix}/full_loss")
        self.note("reported loss", np.average(losses, weights=list(map(len, client.entry.batches))), name)

    def client_after(self, client, name):
        # A client of this project has only the first channels; the vectors' client decays all of them.
        whole, trained = self.expected(name), client.trained.values
        first = {path: whole[path][tuple(map(slice, value.shape))] for path, value in trained.items()}
        self.gaps.note("client", trained, first)

    def compare_predictions(self, state):
        images, labels = self.file.input("eval/img"), self.file.input("eval/label")
        for level, width in self.levels.items():
            logits = self.predict(state, images, level)
            self.note("predict", logits, f"eval/p{width}/logits")
            self.note("predict", mean_loss(logits, labels), f"eval/p{width}/loss")
            self.note("predict", np.mean(np.argmax(logits, 1) == labels), f"eval/p{width}/accuracy")


class Fiarse(Replay):
    """Masks of single weights by their magnitude: `f64/` is the public code, whose mask has no gradient;
    `surrogate/` is the run with the documented gradient. A level is a share of the entries."""

    RUNS = (
        Run(engine="sequential", options={"surrogate": False}),
        Run(precision="float32", options={"surrogate": False}),
        Run("surrogate/", options={"surrogate": True}),
    )
    TOLERANCE = {"float64": 1e-9, "float32": 2e-5}
    EXACT = ("unchanged", "entries")

    @property
    def levels(self):
        return named_levels(self.meta["sizes"])

    def network(self):
        return post_activation_resnet(self.meta, self.meta["num_blocks"], "sbn", "norm")

    def sections(self):
        return {
            "levels": {"widths": dict.fromkeys(self.levels, 1.0), "entries": self.levels},
            "round": {
                "mask": {"name": "fiarse", **self.run.options},
                "label_rows": "all",
                "server": {"name": "sgd", "learning_rate": self.meta["lr_global"]},
            },
        }

    def sizes(self):
        return [1] * len(self.meta["client_size"])

    def read_batches(self):
        # Clients that no round trains have examples too.
        clients = range(len(self.sizes()))
        return {client: self.examples.batches(self.file, f"client{client}") for client in clients}

    def entries(self, number):
        return [self.entry(number, client) for client in self.file.cohorts[number]]

    def entry(self, number, client):
        """A client's steps of a round: its batches in a cycle, from the position after its last round."""
        steps, batches = self.meta["K"], self.batches[client]
        earlier = sum(client in cohort for cohort in self.file.cohorts[:number])
        chosen = [batches[(earlier * steps + step) % len(batches)] for step in range(steps)]
        return Entry(client, list(self.levels.values()).index(self.meta["client_size"][client]), chosen)

    def threshold(self, state, level):
        """Return the threshold of a level for given global values, and the number of maskable values that reach it."""
        submodel = self.process.setup.submodels[self.process.family.submodel_of[level]]
        row = tf.concat([tf.reshape(value, [-1]) for value in state.weights.values()], 0)
        start, key = (tf.tile(each[None], [submodel.block.clients, 1]) for each in (row, tf.constant([0, 0, -1])))
        thresholds = submodel.mask.prepare(start, key)[0].numpy()
        return thresholds.max(), np.count_nonzero((np.abs(row) >= thresholds)[thresholds > 0])

    def client_threshold(self, client, name):
        """Compare the threshold of a client, and without a gradient the number of entries inside its mask."""
        threshold, reached = self.threshold(client.state, client.entry.level)
        self.note("threshold", threshold, name)
        if self.run.prefix == "f64/":
            self.gaps.note("entries", reached, self.file.arrays[f"{client.prefix}/mask_nonzeros"])

    def compare_predictions(self, state):
        for index, size in enumerate(self.meta["sizes"]):
            level, prefix = list(self.levels.values()).index(size), f"eval/size{index}"
            self.note("eval threshold", self.threshold(state, level)[0], f"{prefix}/threshold")
            self.compare_logits(state, prefix, list(self.levels)[level], training=True)


class SplitMix(Replay):
    """Ensembles of narrow networks; each client trains some of them. A level is a number of networks."""

    TOLERANCE = {"float64": 1e-9}
    # Running variances can be large.
    RELATIVE = "above 1"

    @property
    def levels(self):
        return named_levels(int(1 / float(part) / self.meta["atom"]) for part in self.meta["slim_ratios"].split("-"))

    @property
    def networks(self):
        return max(self.levels.values())

    def network(self):
        self.norm = "bn" if self.meta["track"] else "sbn"
        self.scaler = str(bool(self.meta["rescale_layer"])).lower()
        return {"resnet": self.resnet, "digit": self.digit}[self.meta["net"]]()

    def resnet(self):
        norm, widths = self.norm, self.meta["base_hidden"]
        lines = [f"[PaddedConv2D: {{filters: {widths[0]}, use_bias: false}}, Scaler: {{enabled: {self.scaler}}}]"]
        stems = {"conv1": "0_0_padded_conv2d"}
        for stage, (width, blocks) in enumerate(zip(widths, self.meta["num_blocks"], strict=True), 1):
            for block in range(blocks):
                stems |= pre_activation_stems(f"layer{stage}.{block}", f"{len(lines)}_0_pre_activation_block", norm)
                options = f"filters: {width}, stride: {2 if stage > 1 and block == 0 else 1}, norm: {norm}"
                lines.append(f"PreActivationBlock: {{{options}, scaler: {self.scaler}, scaler_at: products}}")
        stems |= {"n4": f"{len(lines)}_0_norm/{norm}", "linear": f"{len(lines)}_3_dense"}
        return [*lines, f"[Norm: {{kind: {norm}}}, ReLU, GlobalAveragePooling2D, Dense: {{units: !classes}}]"], stems

    def digit(self):
        """The network of digits; each norm is a unit, since norms can be personal."""
        behind, lines, stems = [f"Scaler: {{enabled: {self.scaler}}}", f"Norm: {{kind: {self.norm}}}", "ReLU"], [], {}
        for part, width in enumerate(self.meta["base_conv"], 1):
            stems |= {
                f"conv{part}": f"{len(lines)}_0_padded_conv2d",
                f"bn{part}": f"{len(lines) + 2}_0_norm/{self.norm}",
            }
            side = self.file.arrays[f"global_init/0.conv{part}.weight"].shape[-1]
            lines += [f"PaddedConv2D: {{filters: {width}, kernel_size: {side}}}", *behind]
            lines += ["MaxPooling2D"] if part < 3 else []
        lines.append("Flatten")
        for part, width in enumerate(self.meta["base_fc"], 1):
            stems |= {f"fc{part}": f"{len(lines)}_0_dense", f"bn{part + 3}": f"{len(lines) + 2}_0_norm/{self.norm}"}
            lines += [f"Dense: {{units: {width}}}", *behind]
        stems["fc3"] = f"{len(lines)}_0_dense"
        return [*lines, "Dense: {units: !classes}"], stems

    def sections(self):
        stems = self.network()[1]
        personal = (
            [layer.split("_")[0] for stem, layer in stems.items() if "bn" in stem] if self.meta["local_bn"] else []
        )
        return {
            "levels": {"widths": dict.fromkeys(self.levels, self.meta["atom"]), "members": self.levels},
            "round": {"weighting": "samples", "label_rows": "all", "personal": personal},
            "client": {"loss": "batch_masked_cross_entropy" if self.meta["mask_loss"] else "cross_entropy"},
        }

    def sizes(self):
        return self.meta["client_sizes"]

    read_batches = Fiarse.read_batches

    def one_network(self, prefix, number):
        """Read `{path: value}` of one network under a prefix of the file."""
        side = self.meta["image"][1] // 4
        paths = {f"{number}.{name}": path for name, path in self.paths.items()}
        shapes = {path: shape[1:] for path, shape in self.shapes.items()}
        return self.file.weights(prefix, paths, shapes, {f"{number}.fc1.weight": (side, side)})

    def read_values(self, prefix, smaller=()):
        networks = [self.one_network(prefix, number) for number in range(self.networks)]
        return {path: np.stack([one[path] for one in networks]) for path in networks[0]}

    def entries(self, number):
        entries = []
        for client in self.file.cohorts[number]:
            prefix = f"round{number}/client{client}"
            networks = self.file.arrays[f"{prefix}/bases"].tolist()
            if "user_rate" in self.file:
                rate = self.file.arrays["user_rate"][client]
                self.gaps.note("networks", len(networks), int(rate / self.meta["atom"]))
            batches = [self.batches[client][batch] for batch in self.file.arrays[f"{prefix}/step_batch"]]
            level = list(self.levels.values()).index(len(networks))
            entries += [Entry(client, level, batches, member=member) for member in networks]
        return entries

    def client_loss(self, client, name):
        slot = self.file.arrays[f"{client.prefix}/bases"].tolist().index(client.entry.member)
        self.gaps.note("loss", client.trained.losses, self.file.result(name)[:, slot])

    def client_reported_loss_acc(self, client, name):
        """Compare the mean loss and accuracy over the networks of a client, after its last one."""
        same = [other for other in self.trained if other.prefix == client.prefix]
        if len(same) == len(self.file.arrays[f"{client.prefix}/bases"]):
            steps = range(len(client.entry.batches))
            means = [self.loss_and_accuracy(each, steps, each.trained.losses) for each in same]
            self.note("reported loss", np.mean(means, 0), name)

    def client_after(self, client, name):
        expected = self.one_network(self.run.prefix + name, client.entry.member)
        self.gaps.note("client", client.trained.values, expected, self.RELATIVE)

    def compare_predictions(self, state):
        if "num_base" in self.file:
            self.gaps.note("networks", self.networks, self.file.arrays["num_base"])
        if not self.meta["local_bn"]:
            self.compare_networks(state, "eval")
            self.compare_sorted(state)
            return
        for client in range(len(self.meta["client_sizes"])):
            one = self.client_state(state, client)
            expected = self.expected(f"local_bn/client{client}")
            table = {path: table[client] for path, table in one.clients["personal"].items()}
            self.gaps.note("personal", table, {path: expected[path] for path in table}, self.RELATIVE)
            self.compare_networks(one, f"eval/client{client}")

    def compare_networks(self, state, prefix):
        """Compare mean logits of the first networks, and their metrics, for each level's number of networks."""
        for level, networks in self.levels.items():
            # The mean of all networks does not depend on their order.
            if prefix != "sort" or networks < self.networks:
                self.compare_logits(state, f"{prefix}/members{networks}", level, training=not self.meta["track"])

    def compare_sorted(self, state):
        """Compare the accuracy of each network, their order, and mean logits of the first ones in this order."""

        def reordered(order):
            weights = {path: tf.gather(value, order) for path, value in state.weights.items()}
            return dataclasses.replace(state, weights=weights)

        accuracies = []
        for network in range(self.networks):
            one = reordered([network] * self.networks)
            accuracies.append(self.metrics(self.eval_logits(one, training=not self.meta["track"]))[1])
        order = np.argsort(accuracies)[::-1]
        self.note("accuracy", accuracies, "sort/base_acc")
        if "sort/order" in self.file:
            self.gaps.note("order", order, self.file.arrays["sort/order"])
        self.compare_networks(reordered(order), "sort")


class DepthFL(Replay):
    """DepthFL's Flower baseline, which its first author wrote. A level is a depth, the deepest first."""

    @property
    def levels(self):
        depths = range(len(self.meta["widths"]), 0, -1)
        return dict(zip("abcd", depths))

    def network(self):
        """A block for each depth, and an exit after all blocks but the last."""
        head, plain, widths = (
            "GlobalAveragePooling2D, Dense: {units: !classes}]",
            "norm: bn, scaler: false",
            self.meta["widths"],
        )
        lines = [f"[PaddedConv2D: {{filters: {widths[0]}, use_bias: false}}, Norm: {{kind: bn}}, ReLU]"]
        stems = {"conv1": "0_0_padded_conv2d", "bn1.norm": "0_1_norm/bn"}
        for stage, width in enumerate(widths, 1):
            layer = f"{len(lines)}_0_post_activation_block"
            stems |= {f"layer{stage}.0.{name}": f"{layer}/{ours}" for name, ours in self.BLOCK.items()}
            lines.append(f"PostActivationBlock: {{filters: {width}, stride: {2 if stage > 1 else 1}, {plain}}}")
            if later := widths[stage:]:
                gate = f"{len(lines)}_0_attention_gate"
                stems |= {
                    f"attention{stage}.0.{name}": f"{gate}/separable/{ours}" for name, ours in self.SEPARABLE.items()
                }
                stems |= {f"attention{stage}.1.norm": f"{gate}/norm3/bn"}
                for index in range(len(later)):
                    layer = f"{len(lines)}_{index + 1}_separable_block"
                    stems |= {
                        f"scala{stage}.{index}.{name}": f"{layer}/{ours}" for name, ours in self.SEPARABLE.items()
                    }
                stems[f"middle_fc{stage}"] = f"{len(lines)}_{len(later) + 2}_dense"
                chain = "".join(f"SeparableBlock: {{filters: {more}, {plain}}}, " for more in later)
                lines.append(f"Exit: [AttentionGate: {{{plain}}}, {chain}{head}")
        stems["fc_layer"] = f"{len(lines)}_1_dense"
        return [*lines, f"[{head}"], stems

    BLOCK = {
        **{"conv1": "conv1", "bn1.norm": "norm1/bn", "conv2": "conv2", "bn2.norm": "norm2/bn"},
        **{"downsample.0": "shortcut", "downsample.1.norm": "norm3/bn"},
    }
    SEPARABLE = {
        **{"operations.0": "deep1", "operations.1": "mix1", "operations.2.norm": "norm1/bn"},
        **{"operations.4": "deep2", "operations.5": "mix2", "operations.6.norm": "norm2/bn"},
    }

    def sections(self):
        fit = self.meta["fit"]
        dynamic = {"name": "dynamic", "alpha": fit["alpha"]} if fit["feddyn"] else None
        coupling = {"name": "mutual", "floor": 1e-7, "ramp": 300} if fit["kd"] else "sum"
        # If all exits are trained, a client trains its complete sub-model.
        counted = {} if fit["extended"] else {"untrained": "counted"}
        return {
            "levels": {"widths": dict.fromkeys(self.levels, 1), "depths": self.levels},
            "round": {"label_rows": "all", "server": dynamic or "replace", **counted},
            "client": {
                "coupling": coupling if fit["extended"] else "last",
                "stages": {"name": "joint", "exits": "all" if fit["extended"] else "last"},
                "correction": dynamic,
            },
            "schedule": {"name": "exponential", "factor": self.meta["lr_decay"]},
            "evaluate": {"exits": "mean"},
        }

    def sizes(self):
        return [1] * self.meta["num_clients"]

    def entries(self, number):
        deepest = len(self.meta["widths"])
        return [
            Entry(client, deepest - self.meta["depth"][client], ids) for client, ids in self.batches[number].items()
        ]

    def client_loss(self, client, name):
        """Compare the losses, to which the public code adds FedDyn's term."""
        losses = [loss + self.pull(client, step) for step, loss in enumerate(client.trained.losses)]
        self.note("loss", losses, name)

    def pull(self, client, step):
        """FedDyn's term before a step: `-<weights, memory> + alpha / 2 |weights - start|^2`."""
        total, alpha, state = 0.0, self.meta["fit"]["alpha"], client.state
        before = self.trainer(state, client.entry.first(step)).values if state.clients["memory"] else {}
        for path, memory in state.clients["memory"].items():
            if path in before and not path.rpartition("/")[2].startswith("moving_"):
                moved = before[path] - np.asarray(state.weights[path])
                total += alpha / 2 * np.sum(moved**2) - np.sum(before[path] * np.asarray(memory[client.entry.client]))
        return total

    def client_step(self, client, name):
        """Compare the logits of all exits in a step, [exits, batch, classes]."""
        self.note("exits", self.step_logits(client, int(name.rpartition("step")[2])), f"{name}/logits_steps")

    def client_dual_after(self, client, name):
        """Compare the client's memory, which the file stores flattened."""
        paths, prefix = self.paths, f"{self.run.prefix}{name}/"
        for name in [name for name in self.file.arrays if name.startswith(prefix)]:
            path = paths[name.removeprefix(prefix)]
            shape = self.file.arrays["global_init/" + name.removeprefix(prefix)].shape
            expected = keras_layout(self.file.arrays[name].reshape(shape), client.trained.memory[path].shape)
            self.gaps.note("memory", client.trained.memory[path], expected)

    def compare_round(self, state, number):
        after = super().compare_round(state, number)
        for slot in after.server.values():
            expected = self.expected(f"round{number}/h")
            self.gaps.note("server", {path: slot[path] for path in expected}, expected)
        return after

    def compare_predictions(self, state):
        file, process = self.file, self.process
        images, labels = tf.constant(file.input("eval/img")), file.input("eval/label")
        model = process.family.training_model(process.recipe.levels.global_level, process.dataset.classes)
        for variable in values(model):
            variable.assign(state.weights[variable.path])
        exits = np.stack(model(images, training=False))
        self.note("exit logits", exits, "eval/exits/logits")
        self.note("exit logits", np.mean(exits.argmax(-1) == labels, -1), "eval/exits/accuracy")
        for level, depth in self.levels.items():
            if f"{file.prefix}eval/depth{depth}/loss" in file:
                loss = mean_loss(process.network(state, level)(images, training=False), labels)
                self.note("prediction", loss, f"eval/depth{depth}/loss")
        metrics, _ = process.evaluate(state)
        self.note("prediction", metrics["global_loss"], "eval/ensemble/loss")
        self.note("prediction", metrics["global_accuracy"] / 100, "eval/ensemble/accuracy")


class LGFedAvg(Replay):
    """LG-FedAvg's code; units outside a file's list of global names are personal."""

    LAYERS = {
        "mlp": [
            "[Flatten, Dense: {{units: {0}}}, ReLU]",
            *["[Dense: {{units: {1}}}, ReLU]"] * 2,
            "[Dense: {{units: {2}}}, ReLU]",
            "Dense: {{units: !classes}}",
        ],
        "cnn": [
            *[f"[Conv2D: {{{{filters: {{{part}}}, kernel_size: 5}}}}, ReLU, MaxPooling2D]" for part in (0, 1)],
            "[Flatten, Dense: {{units: {2}}}, ReLU]",
            "[Dense: {{units: {3}}}, ReLU]",
            "Dense: {{units: !classes}}",
        ],
    }
    STEMS = {
        "mlp": {
            **{"layer_input": "0_1_dense", "layer_out": "4_0_dense"},
            **{f"layer_hidden{number}": f"{number}_0_dense" for number in (1, 2, 3)},
        },
        "cnn": {
            "conv1": "0_0_conv2d",
            "conv2": "1_0_conv2d",
            "fc1": "2_1_dense",
            "fc2": "3_0_dense",
            "fc3": "4_0_dense",
        },
    }

    @property
    def flattened(self):
        """The dense kernel after Flatten: height and width of the map."""
        return {"mlp": {}, "cnn": {"fc1.weight": (5, 5)}}[self.meta["net"]]

    def network(self):
        lines = self.LAYERS[self.meta["net"]]
        return [line.format(*self.meta["widths"]) for line in lines], self.STEMS[self.meta["net"]]

    def sections(self):
        meta = self.meta
        shared = {name.rpartition(".")[0] for name in meta["global_names"]}
        personal = [layer.partition("_")[0] for stem, layer in self.STEMS[meta["net"]].items() if stem not in shared]
        loss = {"mlp": "softmax_twice", "cnn": "cross_entropy"}[meta["net"]]
        return {
            "round": {"label_rows": "all", "personal": personal},
            "client": {"epochs": meta["local_epochs"], "batch_size": meta["batch"], "loss": loss},
            "evaluate": {"batch_size": meta["test_batch"]},
        }

    def sizes(self):
        return [1] * len(self.meta["labels"])

    def read_batches(self):
        batches, size = [], self.meta["batch"]
        for client in range(len(self.meta["labels"])):
            images, labels = self.file.input(f"client{client}/img"), self.file.input(f"client{client}/label")
            starts = range(0, len(labels), size)
            batches.append(
                [self.examples.add(images[first : first + size], labels[first : first + size]) for first in starts]
            )
        return batches

    def dataset(self):
        test = Split(self.file.input("test/img"), self.file.input("test/label"))
        return dataclasses.replace(super().dataset(), test=test)

    def build(self, text):
        tests = [self.file.input(f"client{client}/test_rows") for client in range(len(self.sizes()))]
        return build_process(text, self.dataset(), self.sizes(), tests=tests)

    def entries(self, number):
        return [
            Entry(client, 0, self.batches[client] * self.meta["local_epochs"]) for client in self.file.cohorts[number]
        ]

    def start(self):
        """Also begin the records of the driver: each client's best network, and those of the best round."""
        state = super().start()
        accuracy, _ = self.local_metrics(state)
        self.best = [(each, self.network_of(self.client_state(state, one))) for one, each in enumerate(accuracy)]
        self.best_round = -np.inf, []
        return state

    def client_reported_loss(self, client, name):
        """Compare the mean loss of the steps."""
        self.note("reported loss", client.trained.losses.mean(), name)

    def client_after(self, client, name):
        start = {path: table[client.entry.client].numpy() for path, table in client.state.clients["personal"].items()}
        weights = {**client.state.weights, **start}
        super().client_after(client._replace(state=dataclasses.replace(client.state, weights=weights)), name)

    def is_merged(self, path):
        return path.split("_")[0] not in self.process.recipe.round.personal

    def compare_round(self, state, number):
        """Compare personal values too: as trained, or bit-equal for absent clients; and the clients' test results."""
        after = super().compare_round(state, number)
        trained = {one.entry.client: self.expected(f"{one.prefix}/after") for one in self.trained}
        for path, table in after.clients["personal"].items():
            for client, value in enumerate(table):
                if client in trained:
                    self.gaps.note("personal", value, trained[client][path])
                else:
                    self.gaps.note("unchanged", value, state.clients["personal"][path][client])
        metrics = self.local_metrics(after)
        for name, value in zip(("accuracy", "test_loss"), metrics):
            self.note("local", value, f"round{number}/local/{name}")
        self.compare_best(after, number, metrics[0])
        return after

    def local_metrics(self, state):
        """Return the accuracies of the client models in percent, and their losses as the authors report them."""
        logits, tests = self.local_logits(state), self.process.partition.test
        targets = self.process.dataset.test.y[tests.ids]
        hits = np.argmax(logits, -1) == targets
        loss = softmax_twice.loss if self.meta["net"] == "mlp" else (lambda z, y, *_: softmax_cross_entropy(z, y))
        losses = loss(logits, tf.constant(targets), None, 0).numpy()
        parts = [np.split(values, np.cumsum(tests.sizes)[:-1]) for values in (100 * hits, losses)]
        return [list(map(np.mean, values_by_client)) for values_by_client in parts]

    def compare_best(self, state, number, accuracy):
        """Compare the mean of the clients' best networks so far (of equal ones, the last)."""
        networks = [self.network_of(self.client_state(state, client)) for client in range(len(accuracy))]
        pairs = zip(zip(accuracy, networks), self.best)
        self.best = [max(pair, key=lambda one: one[0]) for pair in pairs]
        mean = mean_network([network for _, network in self.best])
        for name, value in zip(("accuracy", "test_loss"), self.measured(self.outputs_of(state, mean))):
            self.note("mean of best", value, f"round{number}/avg_of_best/{name}")
        if np.mean(accuracy) > self.best_round[0]:
            shared = {path: value for path, value in mean.items() if self.is_merged(path)}
            self.best_round = np.mean(accuracy), [network | shared for _, network in self.best]

    def network_of(self, state):
        """Return `{path: value}` of a state's predictor."""
        return {variable.path: variable.numpy() for variable in values(self.process.network(state))}

    def outputs_of(self, state, network):
        """Return the outputs of a network for all test images."""
        personal = {path: tf.zeros_like(table) + network[path] for path, table in state.clients["personal"].items()}
        state = dataclasses.replace(state, clients={**state.clients, "personal": personal})
        return self.outputs(with_weights(state, network)).numpy()

    def measured(self, outputs, rows=slice(None)):
        """Return the accuracy in percent, and the cross-entropy with outputs as logits."""
        labels = self.process.dataset.test.y[rows]
        return 100 * np.mean(outputs[rows].argmax(-1) == labels), mean_loss(outputs[rows], labels)

    def local_logits(self, state):
        """Return the logits of each client's test examples by its personal model."""
        evaluator = self.process.evaluator.clients["test"]
        results_of = evaluator.build_personal(["outputs"], lambda outputs, rows, client: {"outputs": outputs})
        weights, personal, *_ = evaluator.personal_values(state)
        return tf.function(results_of)(weights, personal, tf.constant(0))["outputs"]

    def outputs(self, state):
        """Outputs of the authors' network for test images: probabilities (mlp) or their logarithms (cnn)."""
        logits = self.predict(state, self.process.dataset.test.x)
        return tf.nn.softmax(logits) if self.meta["net"] == "mlp" else tf.nn.log_softmax(logits)

    def compare_predictions(self, state):
        outputs = [self.outputs(self.client_state(state, client)).numpy() for client in range(len(self.sizes()))]
        for client, client_outputs in enumerate(outputs):
            self.note("client outputs", client_outputs, f"eval/local{client}/outputs")
        self.note("mean outputs", np.mean(outputs, 0), "eval/ensemble/outputs")
        self.gaps.note("mean net", self.network_of(state), self.expected("mean_after"))
        self.note("mean net", self.outputs(state), "eval/mean/outputs")
        self.compare_final(state, self.best_round[1])

    def compare_final(self, state, networks):
        """Compare the driver's last networks: each of them, their mean, and both ensembles."""
        outputs = np.stack([self.outputs_of(state, network) for network in networks])
        votes, rows = np.eye(self.classes)[outputs.argmax(-1)].sum(0), self.process.partition.test
        accuracy, loss = self.measured(outputs.mean(0))
        metrics = {
            "local/accuracy": np.mean([self.measured(*one)[0] for one in zip(outputs, rows)]),
            "mean/accuracy": self.measured(self.outputs_of(state, mean_network(networks)))[0],
            "ensemble/accuracy_mean_of_outputs": accuracy,
            "ensemble/loss": loss,
            "ensemble/accuracy_majority": self.measured(votes)[0],
        }
        for name, value in metrics.items():
            self.note("final", value, f"final/{name}")


def mean_network(networks):
    """Return the mean of several `{path: value}`."""
    return {path: np.mean([network[path] for network in networks], 0) for path in networks[0]}


class FeDepth(Replay):
    """FeDepth's public code: blockwise training with a link or exits, partial training, peers.

    A level is a budget group; only the complete model and levels with peers need a true budget.
    """

    TOLERANCE = {"float64": 1e-9}
    # Names of the budget groups 0..3 as levels.
    NAMES = "abcd"
    # Factors of the clients of budget groups 0..3 for an exit in the public code's merge; exits not listed have 1.
    EXIT_FACTORS = {1: (4, 0, 0, 0), 2: (2, 2, 0, 0), 3: (2, 0, 2, 0), 4: (2, 2, 0, 0), 5: (4, 0, 0, 0)}

    @property
    def has_peers(self):
        return self.meta["variant"] == "mkd"

    @property
    def levels(self):
        return [self.NAMES[group] for group in sorted({*self.meta["budget_group"]}, reverse=True)]

    def network(self):
        arrays = {
            name[len("global_init/") :]: self.file.arrays[name]
            for name in self.file.arrays
            if name.startswith("global_init/")
        }
        self.exits = {int(match[1]) for name in arrays if (match := re.fullmatch(r"pre_linear(\d+)\.bias", name))}
        units, norm = (
            sum(name.endswith(".0.conv1.weight") for name in arrays),
            "bn" if self.meta["track_running_stats"] else "sbn",
        )
        lines = [f"[PaddedConv2D: {{filters: {len(arrays['first.weight'])}, use_bias: false}}, Norm: {{kind: {norm}}}]"]
        stems = {"first": "0_0_padded_conv2d", "first_norm": f"0_1_norm/{norm}"}
        for unit in range(1, units + 1):
            stem, layer = f"layer{unit}.0", f"{len(lines)}_0_pre_activation_block"
            stems |= pre_activation_stems(stem, layer, norm) | {
                f"{stem}.bn{part}": f"{layer}/norm{part}/{norm}" for part in (1, 2)
            }
            filters, stride = len(arrays[f"{stem}.conv1.weight"]), 2 if f"{stem}.shortcut.weight" in arrays else 1
            options = f"filters: {filters}, stride: {stride}, norm: {norm}, scaler: false, residual: activated"
            lines.append(f"PreActivationBlock: {{{options}}}")
            if unit in self.exits or unit == units:
                # In models with several exits no ReLU follows the norm of a head.
                before, exit, position = (f"pre_linear{unit}", unit, 2) if self.exits else ("bn9", "", 3)
                stems |= {before: f"{len(lines)}_0_norm/{norm}", f"linear{exit}": f"{len(lines)}_{position}_dense"}
                pooled = f"Norm: {{kind: {norm}}}, {'' if self.exits else 'ReLU, '}GlobalAveragePooling2D"
                lines.append(f"{'' if unit == units else 'Exit: '}[{pooled}, Dense: {{units: !classes}}]")
        return lines, stems

    def sections(self):
        units = {level: self.meta["stages_by_group"][str(self.NAMES.index(level))] for level in self.levels}
        whole = [list(range(1, 1 + max(stages[-1][-1] for stages in units.values())))]
        budgets = {level: 0.5 if stages != whole else 2 if self.has_peers else 1 for level, stages in units.items()}
        exit = "branch" if self.meta["variant"] == "heads" else "link"
        return {
            "levels": {"widths": dict.fromkeys(self.levels, 1.0), "budgets": budgets},
            "round": {"weighting": "samples", "untrained": "counted", "label_rows": "all"},
            "client": {
                "stages": {"name": "given_stages", "units": json.dumps(units), "peers": self.has_peers, "exit": exit},
                "coupling": {"name": "mutual", "ramp": None} if self.has_peers else "sum",
            },
        }

    def sizes(self):
        factors = [group + 1 if self.meta["resource_weight"] else 1 for group in self.meta["budget_group"]]
        return [size * factor for size, factor in zip(self.meta["client_train_sizes"], factors, strict=True)]

    def build(self, text):
        # Without the patch, later tests would see the registered plug-in.
        with mock.patch.dict(registry._registered["stages"]):
            registry.register_plugin("given_stages")
            return super().build(text)

    def entries(self, number):
        return [self.entry(number, client) for client in self.file.cohorts[number]]

    def entry(self, number, client):
        """A client's steps with the stage of each."""
        prefix = f"round{number}/client{client}"
        batches = [self.batches[number][client][batch] for batch in self.file.arrays[f"{prefix}/step_batch"]]
        level = self.levels.index(self.NAMES[self.meta["budget_group"][client]])
        return Entry(client, level, batches, self.file.arrays[f"{prefix}/step_stage"].tolist())

    def before_round(self, state, number):
        """Give each client the peer with which it starts in the public code, where all clients share one."""
        peers = {path: table.numpy() for path, table in state.clients["peers"].items()}
        for client in self.file.cohorts[number]:
            for path, value in self.expected(f"round{number}/client{client}/aux_before").items():
                peers[path][client, 0] = value
        state = dataclasses.replace(
            state, clients={**state.clients, "peers": {p: tf.constant(v) for p, v in peers.items()}}
        )
        return super().before_round(state, number)

    def client_loss(self, client, name):
        parts = (
            {"loss", "kl", "aux_loss", "aux_kl"} & set(self.file.parts(client.prefix))
            if client.trained.peers
            else {"loss"}
        )
        total = sum(self.file.result(f"{client.prefix}/{part}") for part in parts)
        self.gaps.note("loss", client.trained.losses, total)

    def client_kl(self, client, name):
        """A part of the loss."""

    client_aux_loss = client_aux_kl = client_aux_before = client_kl

    def client_reported_loss_acc(self, client, name):
        """Compare the mean loss of the steps of the last stage, and its accuracy."""
        stages = client.entry.stages
        steps = [step for step, stage in enumerate(stages) if stage == stages[-1]]
        # The losses of a client with a peer have all parts.
        others = {"kl", "aux_loss", "aux_kl"} & set(self.file.parts(client.prefix)) if client.trained.peers else ()
        losses = client.trained.losses - sum(self.file.result(f"{client.prefix}/{part}") for part in others)
        self.note("reported loss", self.loss_and_accuracy(client, steps, losses), name)

    def client_aux_after(self, client, name):
        """Compare the trained peer."""
        self.gaps.note("peer", client.trained.peers[0], self.expected(name))

    def client_after_stage(self, client, name):
        """Compare the values after a stage; those that the file does not list keep the bits of the stage before."""
        stages = client.entry.stages
        steps = [sum(stage < last for stage in stages) for last in (int(name[-1]), int(name[-1]) - 1)]
        after, before = (self.trainer(client.state, client.entry.first(count)).values for count in steps)
        changed = self.expected(name)
        self.gaps.note("stage", {path: after[path] for path in changed}, changed)
        for path in after.keys() - changed.keys():
            self.gaps.note("unchanged", after[path], before[path])

    def is_merged(self, path):
        """The public code weights the exits 1 to 5, unless it is the last one, by budget group without a division."""
        return path not in self.exit_factors()

    def exit_factors(self):
        """`{path: factor of each budget group}` of the exits that the public code weights by group."""
        numbers = {path: re.match(r"(?:pre_)?linear(\d)\.", name) for name, path in self.paths.items()}
        weighed = self.EXIT_FACTORS.keys() - {max(self.exits, default=0)}
        return {
            path: self.EXIT_FACTORS[int(match[1])]
            for path, match in numbers.items()
            if match and int(match[1]) in weighed
        }

    def compare_weighed_exits(self, number):
        """Compare the exits that the public code weights by group: a plain sum, divided by all examples."""
        recorded, sizes = self.expected(f"round{number}/global_after"), np.asarray(self.sizes())
        for path, factors in self.exit_factors().items():
            counts = {one.entry.client: factors[self.meta["budget_group"][one.entry.client]] for one in self.trained}
            weighed = sum(
                counts[one.entry.client] * sizes[one.entry.client] * one.trained.values[path] for one in self.trained
            )
            self.gaps.note("weighed exits", weighed / sum(sizes[list(counts)]), recorded[path])

    def compare_round(self, state, number):
        self.compare_weighed_exits(number)
        after = super().compare_round(state, number)
        for client in self.file.cohorts[number]:
            if expected := self.expected(f"round{number}/client{client}/aux_after"):
                peers = {path: table[client, 0] for path, table in after.clients["peers"].items()}
                self.gaps.note("peer", peers, expected)
        return with_weights(after, self.expected(f"round{number}/global_after"))

    def compare_predictions(self, state):
        self.compare_logits(state, "eval", training=not self.meta["track_running_stats"])


METHODS = {
    "heterofl": HeteroFL,
    "FedRolex": FedRolex,
    "FjORD": FjORD,
    "DepthFL": DepthFL,
    "LG-FedAvg": LGFedAvg,
    "fedepth": FeDepth,
    "splitmix": SplitMix,
    "fiarse": Fiarse,
}


def replay(path, method, precisions=("float64", "float32"), engines=("sequential", "stacked")):
    """Replay a file in the chosen runs: (stage, largest difference, tolerance) of every stage of every run."""
    runs, results, files = METHODS[method].RUNS, [], []
    chosen = [run for run in runs if run.precision in precisions and run.engine in engines] or runs
    for run in chosen:
        recorded = METHODS[method](path, run)
        if not recorded.file.omits(run.prefix):
            name = f"{run.prefix[:-1]} {run.precision} {run.engine} " if len(runs) > 1 else ""
            results += [(name + stage, *numbers) for stage, *numbers in recorded.replay()]
            files.append(recorded.file)
    # Without some of the precisions, not all arrays are read.
    if len({run.precision for run in chosen}) == len({run.precision for run in runs}):
        results += compare_rest(files)
    return results


def compare_rest(files):
    """Compare what no run of a file reads: results in float32 must be those in float64; nothing else may remain."""
    gaps, arrays = Gaps(), files[0].arrays
    arrays.read = set().union(*(file.arrays.read for file in files))
    for name in files[0].unread("f32/"):
        if (twin := name.replace("f32/", "f64/")) in arrays.read:
            gaps.note("float32", arrays[name], arrays[twin], relative="above 1")
    unread = files[0].unread()
    stages = [(stage, gap, 1e-4) for stage, gap in gaps.items()]
    return [*stages, ("arrays that were not compared", len(unread), 0.0, *unread)]
