"""Reads a vector file of the HeteroFL authors' code, which may be shortened or hold one precision only."""

from methods_files import File


class Vectors(File):
    """A `File` that knows its model and what it leaves out."""

    @property
    def text(self):
        """Whether the examples are rows of words."""
        return self.meta["model"] == "transformer"

    def leaves_out(self, name):
        """Whether a shortened file says that it does not hold what stands under a name."""
        return name in self.meta.get("left_out", ())

    @property
    def has_results(self):
        """Whether the file holds the run in this precision; shortened files may leave one out."""
        return not self.leaves_out(self.prefix)

    def steps(self, place):
        """Number of local steps of a client, by its place "roundR/clientU"."""
        return super().steps(place, "step{}/mask" if self.text else "batch{}/img")

    def names(self):
        """PyTorch parameter names in the order of the Keras model's variables."""
        names_of = {"conv": _conv, "resnet18": _resnet, "transformer": _transformer}[self.meta["model"]]
        return [name for name in names_of(self.meta) if f"global_init/{name}" in self.arrays]

    def statistics_names(self):
        """Names of the norms that have running statistics, in the order of the Keras model."""
        stems = [name.removesuffix(".weight") for name in self.names()]
        return [stem for stem in stems if f"{self.prefix}sbn/{stem}.running_mean" in self.arrays]


def _pair(stem):
    return [f"{stem}.weight", f"{stem}.bias"]


def _conv(meta):
    stages = [
        [*_pair(f"blocks.{5 * stage}"), *_pair(f"blocks.{5 * stage + 2}")] for stage in range(len(meta["hidden"]))
    ]
    head = 5 * len(meta["hidden"]) + 1
    return [*sum(stages, []), *_pair(f"blocks.{head}")]


def _resnet(meta):
    names = ["conv1.weight"]
    for stage in range(1, 5):
        for block in range(8):
            stem = f"layer{stage}.{block}"
            names += [*_pair(f"{stem}.n1"), *_pair(f"{stem}.n2")]
            names += [f"{stem}.{part}.weight" for part in ("conv1", "conv2", "shortcut")]
    return [*names, *_pair("n4"), *_pair("linear")]


def _transformer(meta):
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
