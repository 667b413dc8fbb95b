"""The recipe text for the settings of a vector file."""

NORMS = {"bn": "sbn"}


def recipe_text(meta, precision, engine, label_cut):
    """A complete recipe; `meta` as in the file, `label_cut` on or off."""
    levels = list(dict.fromkeys([meta["global_level"], *meta["levels"]]))
    widths = ", ".join(f"{level}: {float(meta['level_rate'][level])}" for level in levels)
    active = max(map(len, meta["users_per_round"]))
    clip = meta["clip_norm"]
    return f"""
name: parity
data: {{name: synthetic}}
input: {{{_input(meta)}}}
partition: {{name: iid, clients: {len(meta["levels"])}}}
model:
  layers:
{_layers(meta)}
levels:
  widths: {{{widths}}}
  mix: {{{", ".join(f"{level}: 1" for level in levels)}}}
round: {{clients: {active}}}
client:
  batch_size: 10
  loss: {"masked_cross_entropy" if meta["mask"] else "cross_entropy"}
  label_cut: {str(label_cut).lower()}
optimizer: {{learning_rate: {meta["lr"]}, momentum: {meta["momentum"]}, weight_decay: {meta["weight_decay"]}, clip_norm: {clip}}}
rounds: 1
evaluate: {{best: {"global_perplexity" if meta["model"] == "transformer" else "global_accuracy"}}}
engine: {engine}
precision: {precision}
"""


def _input(meta):
    return f"name: masked_text, segment: {meta['bptt']}" if meta["model"] == "transformer" else "name: images"


def _layers(meta):
    layers = {"conv": _conv, "resnet18": _resnet, "transformer": _transformer}[meta["model"]](meta)
    return "\n".join(f"    - {layer}" for layer in layers)


def _settings(meta):
    return NORMS.get(meta["norm"], meta["norm"]), str(bool(meta["scale"])).lower()


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
        f"Repeat: {{times: {blocks}, first: {{stride: {1 if place == 0 else 2}}}, layer: {{PreActivationBlock: "
        f"{{filters: !w {width}, norm: {norm}, scaler: {scaler}}}}}}}"
        for place, (width, blocks) in enumerate(zip(meta["hidden"], meta.get("blocks", [2, 2, 2, 2])))
    ]
    return [
        f"PaddedConv2D: {{filters: !w {meta['hidden'][0]}, use_bias: false}}",
        *stages,
        f"Scaler: {{enabled: {scaler}}}",
        f"Norm: {{kind: {norm}}}",
        "ReLU",
        "GlobalAveragePooling2D",
        "Dense: {units: !classes}",
    ]


def _transformer(meta):
    sizes = meta["tcfg"]
    width, heads = sizes["embedding_size"], sizes["num_heads"]
    return [
        f"MaskedTokenEmbedding: {{classes: !classes, positions: {meta['bptt']}, width: !w {width}}}",
        f"Repeat: {{times: {sizes['num_layers']}, same_initial_values: true, layer: {{TransformerBlock: {{heads: {heads}, "
        f"head_width: !w {width // heads}, hidden: !w {sizes['hidden_size']}}}}}}}",
        f"Dense: {{units: !w {width}}}",
        "Scaler",
        "GELU",
        "LayerNormalization: {epsilon: 1.0e-5}",
        "Dense: {units: !classes}",
    ]
