"""One word at each position of a text: the words themselves, which the input may hide, or the next ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.data.codecs import running_text
from hetero_tf.data.targets import LABEL, BaseTargets, check_range, find, rank

# Most likely words of a position, and the word that hides another.
TOP = 5
MASK = "<mask>"


class Targets(BaseTargets):
    """One word at each position."""

    DTYPE, NDIM = None, 0
    DESCRIPTION = "no labels"
    RANKED = ("word", "probability")

    def check(self, location: str, split: Any, dataset: Any) -> None:
        if not isinstance(dataset.codec, running_text.Codec):
            example = dataset.codec.EXAMPLE
            raise InputError(f"{location}: expected {find(LABEL).DESCRIPTION}, one per {example}. Received: none")
        check_range(location, "word id", split.x, dataset.classes)
        words = dataset.codec.vocabulary
        if words is not None and len(words) != dataset.classes:
            raise InputError(
                f"{dataset.source}: `vocabulary` must have one entry per class. Received: {len(words)} entries, "
                f"classes={dataset.classes}"
            )

    def baseline(self, dataset: Any) -> tuple[str, float, str]:
        counts = np.bincount(dataset.train.x.reshape(-1), minlength=dataset.classes) + 1.0
        loss = -np.log(counts / counts.sum())[dataset.test.x.reshape(-1)].mean()
        return "global_perplexity", float(np.exp(loss)), f"{dataset.codec.tokenizer} by their frequency"

    def draw(self, labels: np.ndarray, classes: int, shape: Sequence[int], statistics: Any) -> None:
        return None

    def names(self, class_names: Sequence[str], classes: int, top: int) -> tuple[str, ...]:
        return super().names(class_names, classes, min(top, TOP))

    def read(self, outputs: Mapping[str, np.ndarray], class_names: Sequence[str], count: int) -> list[Any]:
        """Return the likeliest next words, or lists with an entry for each `<mask>`."""
        if "next_words" in outputs:
            if not outputs["lengths"]:
                raise InputError("the beginning of a sentence must contain a word")
            return rank([word.decode() for word in outputs["next_words"]], outputs["next_probabilities"], count)
        if not outputs["is_mask"].any():
            raise InputError(f"a sentence must contain {MASK} for the word to predict")
        masks = zip(outputs["topk_tokens"], outputs["topk_probabilities"], outputs["is_mask"])
        rankings = [
            rank([word.decode() for word in words], values, count) for words, values, is_mask in masks if is_mask
        ]
        return list(map(list, zip(*rankings)))
