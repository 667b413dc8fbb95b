"""Replays FjORD: a width drawn for every batch, with or without distillation from the client's largest width."""

import methods_common as common
import methods_files as files
import numpy as np
import tensorflow as tf


def replay(path):
    """(stage, gap, tolerance) of one file."""
    file, gaps = files.File(path), files.Gaps()
    examples = common.Examples()
    work = [
        {client: examples.batches(file, f"round{number}/client{client}") for client in cohort["users"]}
        for number, cohort in enumerate(file.meta["rounds"])
    ]
    process = common.build_process(
        _recipe(file), examples.dataset(len(file.arrays["global_init/linear.bias"]), file.name), _sizes(file, work)
    )
    paths, shapes = _paths(file, process), dict(zip(process.paths, process.parts.placement.cut.shapes))
    before = file.weights("global_init", paths, shapes)
    state = common.state_of(process, before)
    trainer = common.Trainer(process)
    for number, cohort in enumerate(file.meta["rounds"]):
        plan = _plan(file, number, work[number])
        covered = {path: np.zeros(shape, bool) for path, shape in shapes.items()}
        for slot, client in enumerate(cohort["users"]):
            counts = np.count_nonzero(plan.rows[slot] >= 0, axis=-1)[: plan.steps[slot]]
            trained, place = trainer(state, plan, slot), f"round{number}/client{client}"
            _compare_client(file, paths, shapes, place, trained, counts, gaps)
            # The first channels, as many as the client's level has.
            for path, value in trained.values.items():
                covered[path][tuple(map(slice, value.shape))] = True
        old, state = state, common.merged(process, state, plan)
        expected = file.weights(f"f64/round{number}/global_after", paths, shapes)
        gaps.note("round", state.weights, expected)
        gaps.note_kept("kept", state.weights, old.weights, covered)
        gaps.note_kept("kept", expected, before, covered)
        before = expected
    _compare_prediction(file, process, state, gaps)
    stages = {"loss", "client", "round", "kept", "predict"}
    return gaps.told(file, stages if file.meta["kd"] else stages | {"reported"})


def _sizes(file, work):
    """Examples of each client of each round: they change there, so that a client counts as another one each round."""
    return [sum(map(len, cohort.get(client, [[0]]))) for cohort in work for client in range(len(file.meta["max_p"]))]


def _levels(file):
    """`{width: name of its level}`, the widest first."""
    return {width: chr(ord("a") + place) for place, width in enumerate(sorted(file.meta["p_s"], reverse=True))}


def _recipe(file):
    meta, channels = file.meta, file.meta["widths"]
    blocks = [
        f"PostActivationBlock: {{filters: !w {filters}, stride: {1 if stage == 0 or place else 2}, norm: wbn, "
        "scaler: false}"
        for stage, (filters, count) in enumerate(zip(channels, meta["blocks"]))
        for place in range(count)
    ]
    stem = f"[PaddedConv2D: {{filters: !w {channels[0]}, use_bias: false}}, Norm: {{kind: wbn}}, ReLU]"
    head, levels = "[GlobalAveragePooling2D, Dense: {units: !classes}]", _levels(file)
    return f"""
{common.recipe_head(len(meta["rounds"]) * len(meta["max_p"]), [stem, *blocks, head])}
levels:
  widths: {{{", ".join(f"{name}: {width}" for width, name in levels.items())}}}
  mix: {{{", ".join(f"{name}: 1" for name in levels.values())}}}
round: {{clients: {max(len(cohort["users"]) for cohort in meta["rounds"])}, weighting: samples, label_rows: all}}
client:
  batch_size: 10
  loss: cross_entropy
  stages: {{name: nested, distill: {str(meta["kd"]).lower()}}}
  coupling: {"self_distillation" if meta["kd"] else "sum"}
optimizer: {{learning_rate: {meta["lr"]}, momentum: {meta["momentum"]}, weight_decay: {meta["weight_decay"]},
            clip_norm: null}}
rounds: 1
precision: float64
"""


def _paths(file, process):
    """`{PyTorch name: variable path}`; statistics have the number of their channels in both names."""
    specs = process.recipe.model.layers
    blocks = [spec.name for spec in specs if spec.kind == "PostActivationBlock"]
    named = {spec.kind: spec.name for spec in specs}
    stems = {"conv1": named["PaddedConv2D"], "bn1": f"{named['Norm']}/wbn", "linear": named["Dense"]}
    places = [(stage, place) for stage, count in enumerate(file.meta["blocks"], 1) for place in range(count)]
    for block, (stage, place) in zip(blocks, places, strict=True):
        stem = f"layer{stage}.{place}"
        stems |= {f"{stem}.conv{part}": f"{block}/conv{part}" for part in (1, 2)}
        stems |= {f"{stem}.bn{part}": f"{block}/norm{part}/wbn" for part in (1, 2)}
        stems |= {f"{stem}.shortcut.0": f"{block}/shortcut", f"{stem}.shortcut.1": f"{block}/norm3/wbn"}
    found = files.variable_paths([path for path in process.paths if "/moving_" not in path], stems)
    layers = {layer: stem for stem, layer in stems.items()}
    for path in process.paths:
        layer, _, leaf = path.rpartition("/")
        if leaf.startswith("moving_"):
            kind, _, channels = leaf.rpartition("_")
            found[f"{layers[layer]}.bn.{channels}.{files.LEAVES[kind]}"] = path
    return found


def _plan(file, number, work):
    levels, widths, cohort = list(_levels(file)), sorted(file.meta["p_s"]), file.meta["rounds"][number]
    largest, entries = file.meta["max_p"], []
    for client, drawn in zip(cohort["users"], cohort["draws"], strict=True):
        level, stages = levels.index(largest[client]), [widths.index(width) for width in drawn]
        entries.append(common.Entry(number * len(largest) + client, level, work[client], stages))
    return common.plan(entries)


def _compare_client(file, paths, shapes, place, trained, counts, gaps):
    full = file.result(f"{place}/full_loss") if file.meta["kd"] else 0.0
    gaps.note("loss", trained.losses, file.result(f"{place}/loss") + full)
    if not file.meta["kd"]:
        gaps.note("reported", np.average(trained.losses, weights=counts), file.result(f"{place}/reported_loss"))
    # A client of this project holds the first channels only; the vectors' decays all of them.
    whole = file.weights(f"f64/{place}/after", paths, shapes)
    first = {path: whole[path][tuple(map(slice, value.shape))] for path, value in trained.values.items()}
    gaps.note("client", trained.values, first)


def _compare_prediction(file, process, state, gaps):
    images, labels = file.input("eval/img"), file.input("eval/label")
    for width, level in _levels(file).items():
        logits = common.predict(process, state, images, level)
        place = f"eval/p{width}"
        gaps.note("predict", logits, file.result(f"{place}/logits"))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        gaps.note("predict", tf.reduce_mean(losses), file.result(f"{place}/loss"))
        gaps.note("predict", np.mean(np.argmax(logits, 1) == labels), file.result(f"{place}/accuracy"))
