"""Choices of a starter recipe: a value with its reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetero_tf.base.errors import InputError
from hetero_tf.data.dataset import Dataset
from hetero_tf.data.inspection import ColumnSummary

# Summaries of the columns of a table by name.
Summaries = Mapping[str, ColumnSummary]
# Tasks of examples with one label.
LABEL_TASKS = ("classification", "binary", "ordinal")


@dataclass(frozen=True)
class Choice:
    """A value of a recipe key.

    Attributes:
        value: Plain value, see `recipe.write.flow`.
        reason: Comment on the line of the key; "" for no comment.
        is_doubtful: Whether the comment asks the user to check the value.
    """

    value: Any
    reason: str = ""
    is_doubtful: bool = False

    @property
    def comment(self) -> str:
        """The reason as a comment without `#`; "" for no comment."""
        return f"check: {self.reason}" if self.is_doubtful else self.reason


Options = Mapping[str, Choice]


@dataclass(frozen=True)
class Request:
    """Data of the user, and the choices that the user made.

    Attributes:
        path: Path, as written by the user, or a name of TensorFlow Datasets.
        data_dir: Data folder or None, see `data_files.find`.
        task: Name of the task; None: the targets determine it.
        label: Columns of labels or targets; empty: the columns determine them.
    """

    path: str
    data_dir: Path | None
    task: str | None
    label: tuple[str, ...]


@dataclass(frozen=True)
class DataDraft:
    """The options of `data`, of which `name` is the first one, the task, and sentences that the user should check."""

    options: dict[str, Choice]
    task: Choice
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecipeDraft:
    """A recipe before it is written: its layers are YAML lines with comments, its other keys are in order."""

    name: str
    data: DataDraft
    dataset: Dataset
    warnings: tuple[str, ...]
    layers: tuple[str, ...]
    keys: dict[str, Choice]


def requested_task(request: Request, allowed: Sequence[str]) -> Choice | None:
    """Return the task of the request, or None if it has none."""
    if request.task is None:
        return None
    if request.task not in allowed:
        raise InputError(f"--task: {request.path} can train {' or '.join(allowed)}. Received: --task={request.task}")
    return Choice(request.task, "set by --task")
