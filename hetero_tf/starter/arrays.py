"""NumPy arrays: the task, from the dtype and shape of the targets in a .npz file or a folder of .npy files."""

from pathlib import Path

import numpy as np

from hetero_tf.base.npz_reader import read_arrays
from hetero_tf.data.inspection import inspect_column
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Request, requested_task
from hetero_tf.starter.labels import task_of_numbers


def draft_npz(file: Path, request: Request) -> DataDraft:
    """Draft how a recipe reads a .npz file."""
    x, y = read_arrays(file, ["x_train", "y_train"]).values()
    options = {"name": Choice("npz"), "path": Choice(request.path)}
    if x.ndim == 3 and x.dtype.kind == "f" and ((x < 0) | (x > 1)).any():
        reason = f"x_train {list(x.shape)} has numbers outside 0 to 1, so its axes are examples, time and channels"
        options["kind"] = Choice("series", reason, True)
    tasks = [*LABEL_TASKS, "regression", "multi_label", "segmentation"]
    return DataDraft(options, requested_task(request, tasks) or task_of(y))


def draft_npy(request: Request) -> DataDraft:
    """Draft how a recipe reads a folder of .npy files, whose labels are whole numbers."""
    options = {"name": Choice("npy"), "path": Choice(request.path)}
    task = requested_task(request, LABEL_TASKS)
    return DataDraft(options, task or Choice("classification", "whole numbers as labels"))


def task_of(y: np.ndarray) -> Choice:
    """Return the task of an array of targets."""
    shape = f"y_train is {y.dtype} {list(y.shape)}"
    if y.dtype.kind in "UO" or y.size == 0:
        return Choice("classification", shape)
    if y.ndim >= 3:
        return Choice("segmentation", f"{shape}: one class for each pixel")
    if y.ndim == 2:
        are_flags = bool(np.isin(y, (0, 1)).all())
        if are_flags and (y.sum(1) == 1).all():
            return Choice("classification", f"{shape} with exactly one 1 in each row")
        return (
            Choice("multi_label", f"{shape} of 0 and 1") if are_flags else Choice("regression", f"{shape} of numbers")
        )
    return task_of_numbers(inspect_column("y_train", y))
