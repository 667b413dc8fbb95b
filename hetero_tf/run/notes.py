"""Lines and notes on data, levels and engine of a learning process, for `describe` and the start of a run."""

import numpy as np

from hetero_tf.base.formatting import escape_line
from hetero_tf.data.described import DescribedDataset
from hetero_tf.data.targets import LABEL
from hetero_tf.models.adapter_pairs import find_adapters
from hetero_tf.models.family import ModelFamily
from hetero_tf.models.global_layout import shapes
from hetero_tf.planning.plan import assign_levels
from hetero_tf.run.federation import Federation


def data_description(process: Federation) -> list[str]:
    """Return lines that show how the data were understood; none if only their description is known."""
    return [] if isinstance(process.dataset, DescribedDataset) else process.dataset.describe()


def warnings(process: Federation) -> list[str]:
    """Return sentences about data and levels that make a result poor or meaningless."""
    equal, dataset = equal_levels(process.family), process.dataset
    is_described = isinstance(dataset, DescribedDataset)
    sentences = [] if is_described else dataset.warnings(len(process.partition.train))
    if equal:
        sentences.append(
            f"levels {', '.join(equal)} are the same model, since no size of the model depends on the width; write `!w "
            "n` for sizes that shrink with it"
        )
    levels, build = process.recipe.levels, process.family.training_model
    if process.recipe.round.uncovered == "zeros" and find_adapters(build(levels.global_level, process.family.classes)):
        sentences.append(
            "round.uncovered: zeros counts clients of lower rank as zeros, so every round shrinks the ranks that they "
            "lack; use left_out, or round.adapters: products"
        )
    sentences += _privacy_warnings(process.recipe.privacy, len(process.partition.train))
    return [*sentences, *_label_warnings(process), *_mix_warnings(levels), *_device_warnings(levels)]


def _privacy_warnings(privacy, clients):
    sentences = []
    if privacy is not None and privacy.seed is not None:
        sentences.append(
            "privacy.seed is fixed: whoever knows it can subtract the noise; remove it for a private model"
        )
    if privacy is not None and privacy.delta * clients >= 1:
        sentences.append(
            f"privacy.delta is not below 1 / {clients} clients, so the bound allows a release of all data of a client"
        )
    return sentences


def _mix_warnings(levels):
    """Return a sentence if a mix of several levels lacks a wider level of the recipe."""
    first, widths = levels.global_level, levels.widths
    wider = [name for name in widths if widths[name] > widths[first]]
    if len(levels.mix) == 1 or not wider:
        return []
    return [
        f"levels.mix has no level {wider[0]}, so the global model has the channels of level {first}: width "
        f"{widths[first]:g} instead of {widths[wider[0]]:g}"
    ]


def _device_warnings(levels):
    """Return sentences about clients and levels that `levels.fit: device` leaves out of the training."""
    if levels.level_of_client is None:
        return []
    clients, unfit = len(levels.level_of_client), int((levels.level_of_client < 0).sum())
    sentences = [f"{unfit} of {clients} clients never train: no level fits their device"] if unfit else []
    if not levels.mix[levels.global_level]:
        sentences.append(
            f"no device fits level {levels.global_level}: the part of the global model that only it has keeps its "
            "initial values"
        )
    return sentences


def label_coverage(process: Federation) -> np.ndarray | None:
    """Count the clients that train the channels of each level, for each label.

    Returns:
        int [levels, labels]: clients with the label whose level is at least as wide; None if there is one level,
        clients change their level, or a level trains other channels in other rounds.
    """
    recipe, mask = process.recipe, process.partition.label_mask
    levels = recipe.levels
    is_prefix = recipe.round.submodel.name == "prefix" and recipe.round.mask is None
    if not is_prefix or len(levels.names) == 1 or (levels.assignment == "dynamic" and levels.level_of_client is None):
        return None
    of_client = assign_levels(levels, len(mask), recipe.seed, 0, np.arange(len(mask)))
    widths = np.asarray([levels.widths[name] for name in levels.names])
    trained = np.asarray([0.0 if name in levels.idle else levels.widths[name] for name in levels.names])[of_client]
    if levels.level_of_client is not None:
        trained[levels.level_of_client < 0] = 0.0
    return np.stack([mask[trained >= width].sum(axis=0) for width in widths])


def _label_warnings(process):
    """Return a sentence if the widest channels never learn a label that narrower ones learn."""
    coverage = label_coverage(process) if process.dataset.targets == LABEL else None
    # Without any client at the widest level, `_device_warnings` has a sentence.
    if coverage is None or not coverage[0].any():
        return []
    lacking = np.flatnonzero((coverage[0] == 0) & (coverage.max(axis=0) > 0))
    if not lacking.size:
        return []
    names = process.dataset.class_names or tuple(map(str, range(process.dataset.classes)))
    level = process.recipe.levels.global_level
    labels = ", ".join(names[label] for label in lacking[:5]) + ", ..." * (lacking.size > 5)
    return [
        f"no client of level {level} has the labels {labels}, so the channels that only it trains never learn "
        "them; compare methods/splitmix, and the narrowest level on all clients"
    ]


def baseline(process: Federation) -> tuple[str, float, str] | None:
    """Return `(metric, value, prediction)` of a constant prediction on the test examples, or None if undefined."""
    dataset = process.dataset
    return None if dataset.outputs or isinstance(dataset, DescribedDataset) else dataset.baseline


def equal_levels(family: ModelFamily) -> tuple[str, ...]:
    """Return the levels of the mix if they have different widths but equal models; else nothing."""
    levels = family.recipe.levels
    names = levels.names
    has_widths = len({levels.widths[name] for name in names}) > 1
    if not has_widths or levels.budgets or levels.depths or levels.members or levels.entries or family.drawn:
        return ()
    models = [shapes(family, name, family.classes) for name in names]
    has_stages = any(len(family.stages[name]) > 1 for name in names)
    return () if has_stages or any(model != models[0] for model in models) else names


def format_engine(report: dict) -> str:
    """Return one line on the execution of clients, and a line for each level that cannot be batched."""
    levels_by_count: dict[int, list[str]] = {}
    for level, clients in report["clients_at_once"].items():
        levels_by_count.setdefault(clients, []).append(level)
    batches = [
        f"{clients} clients together" if clients > 1 else "one client at a time"
        for clients in sorted(levels_by_count, reverse=True)
    ]
    if len(batches) > 1:
        groups = (levels for _, levels in sorted(levels_by_count.items(), reverse=True))
        batches = [f"{batch} {_describe_levels(levels)}" for batch, levels in zip(batches, groups)]
    parallel, kernel_threads = report["parallel"], report["threads"]
    threads = f"{parallel} thread" if parallel == 1 else f"{parallel} threads"
    threads += f" of {kernel_threads} kernel threads" if kernel_threads > 1 else ""
    verb = "training" if parallel == 1 else "each training"
    details = [
        f"{report['device'].upper()}, {report['precision']}" + ", compiled by XLA" * report["compiled"],
        f"{threads}, {verb} {', '.join(batches)}",
    ]
    if report["by_taps"]:
        details.append(f"wide kernels tap by tap {_describe_levels(report['by_taps'])}")
    if report["by_winograd"]:
        details.append(f"convolutions by Winograd's algorithm {_describe_levels(report['by_winograd'])}")
    if report["replicas"] > 1:
        details.append(f"{report['replicas']} replicas share each round")
    return "\n".join(["engine: " + "; ".join(details), *map(escape_line, report["reasons"])])


def _describe_levels(levels):
    return f"at level{'s' * (len(levels) > 1)} {', '.join(levels)}"
