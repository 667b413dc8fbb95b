"""Updates, masks of single entries and SCAFFOLD for the rounds of `oracle_methods`, from the papers.

Nothing of the package is used, only the names and options of a recipe's plug-ins.
"""

import numpy as np


def updated(process, initial, trained):
    """The values that a client sends: `{path: value}`."""
    update = process.recipe.client.update
    if update is None:
        return trained
    change = {path: trained[path] - initial[path] for path in trained if "moving_" not in path}
    length = np.sqrt(sum(np.sum(value**2) for value in change.values()))
    share = min(1, update.options["norm"] / length) if length else 1
    return trained | {path: initial[path] + share * value for path, value in change.items()}


def remembered(process, moved, control, steps, rate):
    """The change of a client's memory of a variable."""
    correction = process.recipe.client.correction
    if correction is None or correction.name == "proximal":
        return np.zeros_like(moved)
    if correction.name == "dynamic":
        return -correction.options["alpha"] * moved
    return -control - moved / (steps * rate)


def merged(process, initial, trained):
    """A bool array of the entries of a variable that count: with a mask, those that changed."""
    return np.ones(initial.shape, bool) if process.recipe.round.mask is None else initial != trained


def thresholds(process, level, values):
    """`{path: smallest magnitude inside the mask}`; 0 where nothing is masked."""
    masked = [path for path in values if path.rpartition("/")[2] in ("kernel", "bias", "embeddings")]
    if process.recipe.round.mask is None:
        return dict.fromkeys(values, 0.0)
    sizes = np.sort(np.concatenate([np.abs(values[path]).ravel() for path in masked]))[::-1]
    number = max(1, int(len(sizes) * process.recipe.levels.entries.get(level, 1.0)))
    return {path: sizes[number - 1] if path in masked else 0.0 for path in values}


def inside(value, threshold):
    """bool, the entries of a variable that its mask lets through."""
    return np.abs(value) >= threshold


def factor(process, value, threshold):
    """The derivative of a masked value by the value."""
    mask = process.recipe.round.mask
    if mask is None or not mask.options["surrogate"]:
        return 1.0
    size = np.abs(value)
    return 1 + np.divide(2 * threshold * size, (size + threshold) ** 2, where=size + threshold > 0, out=0 * size)
