"""The recipe text for the settings of a HeteroFL vector file."""

from methods_common import recipe_text

NORMS = {"bn": "sbn"}


def heterofl_recipe(file, engine, label_cut, **round):
    """A complete recipe; `label_cut` on or off, `round` what else stands in that section."""
    meta, text = file.meta, file.meta["model"] == "transformer"
    levels = list(dict.fromkeys([meta["global_level"], *meta["levels"]]))
    return recipe_text(
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
    stem = f"PaddedConv2D: {{filters: !w {meta['hidden'][0]}, use_bias: false}}"
    end = f"[Scaler: {{enabled: {scaler}}}, Norm: {{kind: {norm}}}, ReLU, GlobalAveragePooling2D]"
    return [stem, *stages, end, "Dense: {units: !classes}"]


def _transformer(meta):
    sizes = meta["tcfg"]
    width, heads = sizes["embedding_size"], sizes["num_heads"]
    return [
        f"MaskedTokenEmbedding: {{classes: !classes, positions: {meta['bptt']}, width: !w {width}}}",
        f"Repeat: {{times: {sizes['num_layers']}, same_initial_values: true, layer: {{TransformerBlock: {{heads: {heads}, "
        f"head_width: !w {width // heads}, hidden: !w {sizes['hidden_size']}}}}}}}",
        f"[Dense: {{units: !w {width}}}, Scaler, GELU, LayerNormalization: {{epsilon: 1.0e-5}}]",
        "Dense: {units: !classes}",
    ]
