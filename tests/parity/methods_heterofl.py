"""Replays vectors of the HeteroFL authors' code, in both precisions and with both engines.

It compares the sub-models sent to clients, losses and gradient norms of every local step, trained sub-models, the merge,
complete rounds (with and without the label cut), the statistics query, and the final model's logits.
"""

import dataclasses

import methods_common as common
import numpy as np
import tensorflow as tf
from methods_files import File, Gaps

from hetero_tf.base import registry
from hetero_tf.base.replicas import Replicas
from hetero_tf.data.dataset import Dataset, Split
from hetero_tf.data.inputs import masked_text
from hetero_tf.evaluation import predictor
from hetero_tf.methods.losses.masked_cross_entropy import masked
from hetero_tf.models.state import concat_values
from hetero_tf.rounds.merge import axis_mask
from hetero_tf.rounds.submodel_cut import merged_coordinates

STAGES = ("cut", "loss", "norm", "client", "merge", "round", "unchanged", "sbn", "global", "local")
# float64: 1e-8 everywhere. float32: the tolerances of README.md.
TOLERANCES = {
    "float64": dict.fromkeys(STAGES, 1e-8),
    "float32": dict.fromkeys(STAGES, 1e-5) | {"cut": 0.0, "norm": 1e-4, "unchanged": 0.0},
}
ENGINES = ("sequential", "stacked")
# In float32 one ReLU near zero can move a small ResNet with batch norm by this much; only that file type may.
FLIPPED = 1e-3


def replay(path, precisions=tuple(TOLERANCES), engines=ENGINES):
    """Replay a file: (stage, largest difference, tolerance) of every stage of every run that the file has."""
    results = []
    for engine in engines:
        double_passes = False
        for precision in precisions:
            file = Vectors(path, precision)
            if not file.has_results:
                continue
            may_flip = file.meta["model"] == "resnet18" and file.meta["norm"] == "bn" and precision == "float32"
            limits = TOLERANCES[precision].copy()
            if double_passes and may_flip:
                limits |= {stage: FLIPPED for stage in STAGES if stage not in ("cut", "unchanged")}
            gaps = replay_run(file, engine)
            double_passes = precision == "float64" and all(gap <= limits[stage] for stage, gap in gaps.items())
            results += [(f"{precision} {engine} {stage}", gap, limits[stage]) for stage, gap in gaps.items()]
    return results


def replay_run(file, engine):
    """Replay the run of a file in its precision: `Gaps` of all stages."""
    gaps = Gaps()
    whole = Replay(file, gaps, engine, label_cut=False)
    compare_clients(whole)
    covered = [whole.covered(plan) for plan in whole.plans]
    state = compare_rounds(whole, covered)
    compare_rounds(Replay(file, gaps, engine, label_cut=True), covered)
    compare_evaluation(whole, state)
    if gaps.keys() != whole.stages():
        raise SystemExit(f"{file.name}: shows {sorted(gaps)} instead of {sorted(whole.stages())}")
    return gaps


def compare_clients(replay):
    """Compare cut, local training and merge of every client and round, from the weights of the authors' run."""
    file, gaps, state, submodel_of = replay.file, replay.gaps, replay.start(), replay.process.family.submodel_of
    for number, plan in enumerate(replay.plans):
        trained = []
        for slot, client in enumerate(plan.clients.tolist()):
            prefix = f"round{number}/client{client}"
            if replay.has_cut(number, client):
                submodel = replay.process.setup.submodels[submodel_of[plan.levels[slot]]]
                row = concat_values(list(state.weights.values()))
                (received,) = submodel.cut.gather(row, [_coordinates(replay, plan, slot, number)])
                sent = dict(zip(replay.process.paths, submodel.block.values_of(received), strict=True))
                gaps.note("cut", sent, replay.read_values(f"{prefix}/before", sent))
            result = replay.trainer(state, plan, slot)
            replay.note("loss", result.losses, f"{prefix}/loss")
            gaps.note("norm", result.norms, file.result(f"{prefix}/grad_norm"), relative=True)
            # A shortened file may omit the weights of wide clients; the merge still includes them.
            if not file.omits(f"{prefix}/after"):
                replay.compare_values(result, prefix)
            trained.append(result.values)
        after = replay.expected(f"round{number}/global_after")
        gaps.note("merge", _merge(replay, state, plan, number, trained), after)
        state = common.state_of(replay.process, after, number + 1)


def _merge(replay, state, plan, number, trained):
    """Return `{path: value}` after the merge of the trained values of a plan's clients."""
    setup, submodel_of, total, merged = replay.process.setup, replay.process.family.submodel_of, 0.0, []
    for slot, values in enumerate(trained):
        present = setup.examples.present[plan.clients[slot]]
        merged.append(merged_coordinates(_coordinates(replay, plan, slot, number), present))
        row, cut = concat_values(list(values.values())), setup.submodels[submodel_of[plan.levels[slot]]].cut
        total += cut.scatter_sum(row[None], merged[-1:])
    masks = {
        axis: tf.stack([axis_mask(axis, coordinates, replay.file.precision) for coordinates in merged])
        for axis in setup.layout.cut.distinct
    }
    return common.merge(replay.process, state, total, masks, tf.ones(len(merged), replay.file.precision))


def _coordinates(replay, plan, slot, number):
    """Coordinates of the client in a slot of a plan."""
    setup, submodel = replay.process.setup, replay.process.family.submodel_of[plan.levels[slot]]
    labels = tf.range(setup.examples.present.shape[1])
    number, client, zero = map(tf.constant, (number, int(plan.clients[slot]), 0))
    choose = setup.algorithm.submodel
    return setup.submodels[submodel].cut.coordinates(choose, number, client, zero, labels, zero)


def compare_rounds(replay, covered):
    """Compare all rounds, with the masks of `Replay.covered` of each; return the last `State`."""
    state = replay.start()
    for number, plan in enumerate(replay.plans):
        state = replay.compare_round(state, plan, number, covered[number])
    return state


def compare_evaluation(replay, state):
    """Compare the statistics query, and global and local logits and losses of the final model."""
    file, gaps, evaluator = replay.file, replay.gaps, replay.process.evaluator
    weights, paths = list(state.weights.values()), predictor.statistics_paths(evaluator.global_model)
    names = [f"sbn/{name}.running_{part}" for name in file.statistics_names() for part in ("mean", "var")]
    if len(names) != len(paths):
        raise SystemExit(f"{file.name}: its statistics do not match the norms of the model")
    statistics = _statistics(replay, weights) if paths else []
    for value, name in zip(statistics, names, strict=True):
        replay.note("sbn", value, name)
    metrics = evaluator.measure_global(weights, statistics)
    if file.text:
        model = replay.process.network(state, statistics=dict(zip(paths, statistics)))
        hidden = file.input("eval/mask") == 1
        logits = model(np.where(hidden, file.meta["num_tokens"], file.input("eval/tokens")), training=False)
        replay.note("global", np.transpose(logits, (0, 2, 1)), "eval/global/logits")
        gaps.note("global", metrics["global_perplexity"], file.result("eval/global/perplexity"), relative=True)
    else:
        logits = tf.function(evaluator.build_outputs(evaluator.global_model))(weights, statistics)
        replay.note("global", logits, "eval/global/logits")
        _compare_local(replay, logits)
    replay.note("global", metrics["global_loss"], "eval/global/loss")


def _statistics(replay, weights):
    file, process = replay.file, replay.process
    images, labels = tf.constant(file.input("sbn/img")), tf.constant(file.input("sbn/label"))
    models = process.evaluator.global_model, process.family.predictor(process.recipe.levels.global_level)
    size = file.meta["sbn_batch"]
    examples = dataclasses.replace(process.setup.examples, x=images, y=labels)
    calibrate = predictor.StatisticsQuery(*models, examples, size, Replicas(2))
    full, short = predictor.statistics_batches([np.arange(len(images))], size)
    return calibrate(weights, full, short, 0)


def _compare_local(replay, logits):
    tests, first = replay.process.evaluator.tests, 0
    logits = tf.gather(logits, tests.examples)
    if registry.find("losses", replay.process.recipe.client.loss.name).MASKS_LABELS:
        logits = masked(logits, tests.label_mask[tests.clients[tests.owners]])
    for client, ids in enumerate(replay.process.partition.test):
        if len(ids):
            replay.note("local", logits[first : first + len(ids)], f"eval/local{client}/logits")
            first += len(ids)


class Vectors(File):
    """A `File` with the names of its model and a list of the arrays that it omits."""

    @property
    def text(self):
        """True if the examples are rows of words."""
        return self.meta["model"] == "transformer"

    def omits(self, name):
        """True if a shortened file lists a name as omitted."""
        return name in self.meta.get("left_out", ())

    @property
    def has_results(self):
        """True if the file has the run in this precision; shortened files may omit one."""
        return not self.omits(self.prefix)

    def steps(self, prefix):
        """Number of local steps of a client, by its prefix "roundR/clientU"."""
        return super().steps(prefix, "step{}/mask" if self.text else "batch{}/img")

    def names(self):
        """PyTorch parameter names in the order of the Keras model's variables."""
        names_of = {"conv": _conv_names, "resnet18": _resnet_names, "transformer": _transformer_names}
        return [name for name in names_of[self.meta["model"]](self.meta) if f"global_init/{name}" in self.arrays]

    def statistics_names(self):
        """Names of the norms that have running statistics, in the order of the Keras model."""
        stems = [name.removesuffix(".weight") for name in self.names()]
        return [stem for stem in stems if f"{self.prefix}sbn/{stem}.running_mean" in self.arrays]


class Replay(common.Replay):
    """One file in one precision, set up as a learning process with its plans."""

    def __init__(self, vectors, gaps, engine, label_cut):
        self.file, meta = vectors, vectors.meta
        dataset, work = _text_data(vectors) if vectors.text else _image_data(vectors)
        text, labels = heterofl_recipe(vectors, engine, label_cut), meta["label_split"]
        tests = [self._test_rows(client, dataset.test.y) for client in range(len(labels))]
        process = common.build_process(text, dataset, [1] * len(labels), labels, tests=tests)
        super().__init__(vectors, gaps, process, {})
        self.paths = dict(zip(vectors.names(), process.paths, strict=True))
        self.plans = [self.plan_of(batches, meta["bptt"] if vectors.text else 0) for batches in work]
        if vectors.text:
            self._use_recorded_masks()

    def _use_recorded_masks(self):
        """Replace the input of the process and of its evaluator by one that reads the file's masks."""
        process, masked_input = self.process, _recorded_masks_input(self.file, self.plans)
        examples = dataclasses.replace(process.setup.examples, input=masked_input)
        setup = dataclasses.replace(process.setup, examples=examples)
        evaluator = dataclasses.replace(process.evaluator, examples=examples)
        self.process = dataclasses.replace(process, input=masked_input, setup=setup, evaluator=evaluator)
        self.trainer = common.Trainer(self.process)

    def _test_rows(self, client, labels):
        """Return the rows of a client's test examples. The file must list them if any has the client's labels."""
        name = f"eval/local{client}/rows"
        has_label = [] if labels is None else np.isin(labels, self.file.meta["label_split"][client])
        if np.any(has_label) and name not in self.file:
            raise SystemExit(f"{self.file.name}: lacks {name}")
        return np.asarray(self.file.arrays.get(name, []), np.int32)

    def covered(self, plan):
        """`{path: mask of the entries that some client covers}`: its level's share of every axis, and its labels."""
        masks = {path: np.zeros(shape, bool) for path, shape in self.shapes.items()}
        # The label axes: rows of the words' vectors, and the outputs of the last layer.
        axes = {**({0: 0} if self.file.text else {}), len(masks) - 2: -1, len(masks) - 1: -1}
        for client, level in zip(plan.clients.tolist(), plan.levels.tolist()):
            block = self.process.setup.submodels[self.process.family.submodel_of[level]].block
            for position, (mask, shape) in enumerate(zip(masks.values(), block.client_shapes, strict=True)):
                index = [np.arange(size) for size in shape]
                if position in axes:
                    index[axes[position]] = np.asarray(self.meta["label_split"][client])
                mask[np.ix_(*index)] = True
        return masks

    def stages(self):
        """Stages that the file must show."""
        shown = {
            "cut": any(
                self.has_cut(number, client) for number, cohort in enumerate(self.file.cohorts) for client in cohort
            ),
            "sbn": self.meta.get("norm") == "bn",
            "local": not self.file.text,
        }
        return {stage for stage in STAGES if shown.get(stage, True)}

    def has_cut(self, number, client):
        """True if the file has the sub-model that a client received. It has it in float32, never for the global level."""
        whole = self.meta["levels"][client] == self.meta["global_level"]
        left_out = self.file.omits(f"round{number}/client{client}/before")
        return self.file.precision == "float32" and not whole and not left_out


def _image_data(vectors):
    """Return all batches of all clients as one training split, and the batches of each round."""
    examples = common.Examples()
    work = examples.rounds(vectors)
    classes = len(vectors.arrays["global_init/" + vectors.names()[-1]])
    test = vectors.input("eval/img"), vectors.input("eval/label")
    return examples.dataset(classes, vectors.name, test), work


def _text_data(vectors):
    """Return all token rows as one right-padded split, and for each round the rows of every client and step."""
    rows, work = [], []
    for number, cohort in enumerate(vectors.cohorts):
        work.append({})
        for client in cohort:
            prefix = f"round{number}/client{client}"
            tokens = vectors.input(f"{prefix}/tokens")
            batch = np.arange(len(rows), len(rows) + len(tokens), dtype=np.int32)
            work[-1][client] = [batch] * vectors.steps(prefix)
            rows.extend(tokens)
    longest = max(map(len, rows))
    padded = np.stack([np.pad(row, (0, longest - len(row))) for row in rows])
    test = Split(vectors.input("eval/tokens"), None)
    return Dataset(Split(padded, None), test, classes=vectors.meta["num_tokens"], source=vectors.name), work


def _recorded_masks_input(vectors, planned):
    """Return the production input with the file's masks instead of random numbers, and rows without padding."""
    bptt, prefixes = vectors.meta["bptt"], []
    for number, cohort in enumerate(vectors.cohorts):
        prefixes += [(number, client, f"round{number}/client{client}") for client in cohort]
    # The training split has the rows in this order.
    tokens = [vectors.arrays[f"{prefix}/tokens"] for *_, prefix in prefixes]
    lengths = np.concatenate(
        [np.full(len(client_tokens), client_tokens.shape[1], np.int32) for client_tokens in tokens]
    )
    test, steps = vectors.arrays["eval/mask"], max(plan.rows.shape[1] for plan in planned)
    max_rows = max(map(len, [test, *tokens]))
    table = np.zeros((len(planned) + 1, len(vectors.meta["levels"]), steps, max_rows, bptt), np.float32)
    for number, client, prefix in prefixes:
        for step in range(vectors.steps(prefix)):
            mask = vectors.arrays[f"{prefix}/step{step}/mask"]
            table[number, client, step, : mask.shape[0], : mask.shape[1]] = mask
    table[-1, 0, 0, : test.shape[0], : test.shape[1]] = test

    def recorded_uniform(key, shape):
        # Training keys are (seed, round, client, step), one for each client of a block; test keys are
        # (seed, row, start).
        mask = tf.gather_nd(table, key[..., 1:]) if key.shape[-1] == 4 else tf.constant(table)[-1, 0, 0]
        return 1.0 - mask[..., : shape[0], : shape[1]]

    source = masked_text.build(vectors.precision, segment=bptt, uniform=recorded_uniform)

    def batch(x, y, rows, start, key, labels, training, length=None):
        # Idle clients of a step read row 0, which is not shorter than the other rows.
        max_rows = tf.reduce_min(tf.gather(lengths, rows[..., 0])) if training else x.shape[1]
        return source.batch(x[:, :max_rows], y, rows, start, key, labels, training)

    return dataclasses.replace(source, batch=batch)


def _pair(stem):
    return [f"{stem}.weight", f"{stem}.bias"]


def _conv_names(meta):
    stages = [
        [*_pair(f"blocks.{5 * stage}"), *_pair(f"blocks.{5 * stage + 2}")] for stage in range(len(meta["hidden"]))
    ]
    head = 5 * len(meta["hidden"]) + 1
    return [*sum(stages, []), *_pair(f"blocks.{head}")]


def _resnet_names(meta):
    names = ["conv1.weight"]
    for stage in range(1, 5):
        for block in range(8):
            stem = f"layer{stage}.{block}"
            names += [*_pair(f"{stem}.n1"), *_pair(f"{stem}.n2")]
            names += [f"{stem}.{part}.weight" for part in ("conv1", "conv2", "shortcut")]
    return [*names, *_pair("n4"), *_pair("linear")]


def _transformer_names(meta):
    top = "transformer_embedding"
    names = [
        f"{top}.embedding.weight",
        f"{top}.positional_embedding.positional_embedding.weight",
        *_pair(f"{top}.norm"),
    ]
    for layer in range(meta["tcfg"]["num_layers"]):
        stem = f"transformer_encoder.layers.{layer}"
        parts = [*(f"mha.linear_{part}" for part in "qkvo"), "norm1", "norm2", "linear1", "linear2"]
        names += sum((_pair(f"{stem}.{part}") for part in parts), [])
    return names + sum((_pair(f"decoder.{part}") for part in ("linear1", "norm1", "linear2")), [])


def heterofl_recipe(file, engine, label_cut, **round):
    """Return a complete recipe with the label cut on or off; `round` has more keys of that section."""
    meta, text = file.meta, file.meta["model"] == "transformer"
    levels = list(dict.fromkeys([meta["global_level"], *meta["levels"]]))
    return common.recipe_text(
        file,
        len(meta["levels"]),
        {"conv": _conv, "resnet18": _resnet, "transformer": _transformer}[meta["model"]](meta),
        {level: float(meta["level_rate"][level]) for level in levels},
        input={"name": "masked_text", "segment": meta["bptt"]} if text else {"name": "images"},
        round=round,
        client={"loss": "masked_cross_entropy" if meta["mask"] else "cross_entropy", "label_cut": label_cut},
        optimizer={"clip_norm": meta["clip_norm"]},
        evaluate={"best": "global_perplexity" if text else "global_accuracy"},
        engine=engine,
        precision=file.precision,
    )


def _settings(meta):
    return {"bn": "sbn"}.get(meta["norm"], meta["norm"]), str(bool(meta["scale"])).lower()


def _conv(meta):
    norm, scaler = _settings(meta)
    stages = [
        f"[PaddedConv2D: {{filters: !w {width}}}, Scaler: {{enabled: {scaler}}}, Norm: {{kind: {norm}}}, ReLU, "
        "MaxPooling2D]"
        for width in meta["hidden"]
    ]
    stages[-1] = stages[-1].replace(", MaxPooling2D", "")
    return [*stages, "GlobalAveragePooling2D", "Dense: {units: !classes}"]


def _resnet(meta):
    norm, scaler = _settings(meta)
    stages = [
        f"Repeat: {{times: {blocks}, first: {{stride: {1 if stage == 0 else 2}}}, layer: {{PreActivationBlock: "
        f"{{filters: !w {width}, norm: {norm}, scaler: {scaler}}}}}}}"
        for stage, (width, blocks) in enumerate(zip(meta["hidden"], meta.get("blocks", [2, 2, 2, 2])))
    ]
    stem = f"PaddedConv2D: {{filters: !w {meta['hidden'][0]}, use_bias: false}}"
    end = f"[Scaler: {{enabled: {scaler}}}, Norm: {{kind: {norm}}}, ReLU, GlobalAveragePooling2D]"
    return [stem, *stages, end, "Dense: {units: !classes}"]


def _transformer(meta):
    sizes = meta["tcfg"]
    width, heads = sizes["embedding_size"], sizes["num_heads"]
    return [
        f"MaskedTokenEmbedding: {{classes: !classes, positions: {meta['bptt']}, width: !w {width}}}",
        f"Repeat: {{times: {sizes['num_layers']}, same_initial_values: true, layer: {{TransformerBlock: {{"
        f"heads: {heads}, head_width: !w {width // heads}, hidden: !w {sizes['hidden_size']}}}}}}}",
        f"[Dense: {{units: !w {width}}}, Scaler, GELU, LayerNormalization: {{epsilon: 1.0e-5}}]",
        "Dense: {units: !classes}",
    ]
