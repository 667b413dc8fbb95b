"""Export of models that predict one label per example."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from hetero_tf.base.escaping import quote_markdown
from hetero_tf.data.inputs import all_labels
from hetero_tf.export.limits import assert_in_graph, max_examples, pad_if_empty
from hetero_tf.export.task import ExportTask
from hetero_tf.methods.tasks import Task

# Notes list the names of at most this number of targets.
MAX_LISTED_NAMES = 50


class LabelledTask(ExportTask):
    """Export of a model with one label per example.

    Signatures return the predictions of the task, such as "logits" and "probabilities" float32 [n, classes] and "class"
    int32 [n]; an invalid example gets NaN and class -1.

    Attributes:
        NOUN: Plural noun for the examples in messages.
    """

    PORTABLE_SIGNATURE = "serve_numbers"
    CHECKED_EXAMPLES = 32
    NOUN = "rows"

    @property
    def targets(self) -> Task:
        """The task of the model, which converts its outputs to predictions."""
        return self.process.evaluator.measures.task

    @property
    def output_name(self) -> str:  # type: ignore[override]
        return self.targets.output_name

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an example."""
        return self.process.input.shape(self.process.dataset.train.x)

    @property
    def max_batch_size(self) -> int:
        return max_examples(self.model)

    @property
    def limits(self) -> dict[str, int]:
        return {self.NOUN: self.max_batch_size}

    def check(self, batch: tf.Tensor, *shape: int | None, noun: str | None = None) -> tf.Tensor:
        """Return a batch [n, *shape]; the graph raises an error for another shape or too many examples."""
        batch, limit = tf.ensure_shape(batch, (None, *shape)), self.max_batch_size
        count = tf.shape(batch)[0]
        message = f"a request must have at most {limit} {noun or self.NOUN}."
        return assert_in_graph(batch, count <= limit, message, [count])

    def decode_each(self, files: tf.Tensor, decode: Callable) -> tf.Tensor:
        """Decode files independently to float32 [n, *shape]; a file that `decode` rejects becomes NaN.

        Args:
            files: string [n].
            decode: `(scalar string, shape) -> float32 [*shape]`.
        """
        count, blank = tf.shape(files, tf.int64)[0], tf.fill(self.shape, np.float32(np.nan))
        # A graph cannot catch errors of operations, but a dataset can drop elements that raise one. It decodes one file
        # at a time, since ten large pictures in parallel would take ten times the memory.
        numbered = tf.data.Dataset.from_tensor_slices(files).enumerate()
        decoded = numbered.map(lambda index, data: (index, decode(data, self.shape))).ignore_errors()
        # The extra element, at the index after the last file, keeps the batch from being empty.
        extra = tf.data.Dataset.from_tensors((count, blank))
        indices, examples = decoded.concatenate(extra).batch(count + 1).get_single_element()
        blanks = tf.fill(tf.concat([tf.shape(files) + 1, self.shape], 0), np.float32(np.nan))
        return tf.tensor_scatter_nd_update(blanks, indices[:, None], examples)[:-1]

    def classify(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs for floats [n, ...] of a request; examples that are not finite are invalid."""
        # A ReLU may turn NaN into 0, which would make the output look valid.
        is_valid = tf.reduce_all(tf.abs(x) <= tf.float32.max, list(range(1, x.shape.rank)))
        return self.classify_valid(pad_if_empty(x), is_valid)

    def classify_valid(self, x: tf.Tensor, is_valid: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs for examples of which some are invalid.

        Args:
            x: Stored examples [n, ...], or a blank one if n is 0.
            is_valid: bool [n].
        """
        raw_logits = tf.cast(self.model(self.model_inputs(x), training=False), tf.float32)[: tf.shape(is_valid)[0]]
        logits = tf.where(tf.reshape(is_valid, [-1, *[1] * (raw_logits.shape.rank - 1)]), raw_logits, np.nan)
        return self.targets.predict(logits, is_valid)

    def add_class_names(self, outputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Add "class_name" string [n] to outputs if the data set names its classes; "" for class -1."""
        class_names = self.process.dataset.class_names
        # A text for each pixel of a map would be large.
        if class_names is None or "class" not in outputs or outputs["class"].shape.rank != 1:
            return outputs
        # Class -1 gets the last name, which is empty.
        names = tf.gather(tf.constant([*class_names, ""]), outputs["class"] % (len(class_names) + 1))
        return {**outputs, "class_name": names}

    def request(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return {self.INPUT_NAME: x}

    def model_inputs(self, x: tf.Tensor) -> tf.Tensor:
        """Return the inputs of the Keras model for examples of a request or data set, prepared as in training."""
        count, axis = tf.shape(x)[0], all_labels(self.process.dataset.classes)
        key, labels = tf.zeros([1], tf.int32), tf.zeros([count], tf.int32)
        inputs, _ = self.process.input.batch(x, labels, tf.range(count), 0, key, axis, training=False)
        return inputs

    def measure(self, predict: Callable) -> dict[str, float]:
        test, size = self.process.dataset.test, self.process.recipe.evaluate.batch_size
        starts = range(0, len(test.x), size)
        outputs = [self.outputs_of(predict(**self.request(test.x[start : start + size]))) for start in starts]
        measures = self.process.evaluator.measures
        metrics = measures.measure(tf.constant(np.concatenate(outputs)), test.labels)
        return {name: float(value) for name, value in metrics.items()}

    @property
    def invalid(self) -> str:
        """Text for the predictions of an invalid example, such as "NaN and class -1"."""
        index = self.targets.index_name
        return "NaN" if index is None else f"NaN and {index} -1"

    @property
    def target_notes(self) -> list[str]:
        """Sentence on the order of the targets; none if they have no names or their names are in the predictions."""
        names = self.process.dataset.class_names
        if names is None or self.targets.index_name == "class" or len(names) > MAX_LISTED_NAMES:
            return []
        return [f"Order of the {self.targets.prediction_name}: {', '.join(map(quote_markdown, names))}."]
