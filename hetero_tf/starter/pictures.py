"""Pictures and clips: their size or duration, from folders of one class each, a column, or TensorFlow Datasets."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hetero_tf.base.errors import InputError
from hetero_tf.base.files import read_bytes
from hetero_tf.data.audio import inspect_sounds
from hetero_tf.data.codecs.sound import SOUNDS
from hetero_tf.data.folder import CLASS_LEVELS, iterate_files, split_folders
from hetero_tf.data.inspection import sample
from hetero_tf.data.masks import decode_mask
from hetero_tf.data.picture_files import ENDINGS, LARGEST_FILE, picture_header
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Request, requested_task

# Pictures whose size and channels are read.
SAMPLED_PICTURES = 200
# Pictures of one size stay unchanged up to this one; others become the largest of these sizes that fits.
LARGEST_UNCHANGED, SIZES = 96, (96, 64, 32)


def draft_folder(folder: Path, request: Request) -> DataDraft:
    """Draft how a recipe reads a folder with one folder of pictures for each class."""
    task = requested_task(request, LABEL_TASKS)
    options = choose_size(_sample_files(folder))
    loader = {"name": Choice("folder"), "path": Choice(request.path)}
    return DataDraft({**loader, **options}, task or Choice("classification", "one folder for each class"))


def draft_masks(folder: Path, request: Request) -> DataDraft:
    """Draft how a recipe reads a folder with images/ and masks/."""
    task = requested_task(request, ["segmentation"])
    train, _ = split_folders(folder)
    options = choose_size(_sample_files(train / "images"))
    loader = {"name": Choice("masks"), "path": Choice(request.path)}
    contents = {str(file): read_bytes(file, LARGEST_FILE, follow=True) for file in _sample_files(train / "masks")}
    present = {int(value) for each in contents.items() for value in np.unique(decode_mask(*each))}
    if present != set(range(len(present))):
        reason = f"values of the masks of {SAMPLED_PICTURES} pictures, one for each class"
        options["values"] = Choice(sorted(present), reason, True)
    return DataDraft({**loader, **options}, task or Choice("segmentation", "one class for each pixel"))


def _sample_files(folder):
    files = sorted(file for file in iterate_files(folder, CLASS_LEVELS) if file.suffix.lower() in ENDINGS)
    return sample(files, SAMPLED_PICTURES)


def choose_size(sources: Iterable[bytes | Path]) -> dict[str, Choice]:
    """Choose the options `size` and `channels` from the contents or paths of picture files."""
    headers = [header for source in sources if (header := picture_header(source))]
    if not headers:
        raise InputError("none of the sampled pictures has a readable header; save them as PNG or JPEG")
    is_grey = all(mode == "grey" for *_, mode in headers)
    channels = Choice(1, "all sampled pictures are grey") if is_grey else Choice(3, "color")
    side = int(np.median([min(width, height) for width, height, _ in headers]))
    width, height, _ = headers[0]
    if len({header[:2] for header in headers}) > 1 or max(width, height) > LARGEST_UNCHANGED:
        size = next((each for each in SIZES if each <= side), side)
        reason = f"the median of the shorter sides is {side}; a larger size costs time and may score higher"
    else:
        size, reason = side, f"all sampled pictures have {width} x {height} pixels and become squares"
        if width == height:
            return {"size": Choice(width, "the size of all sampled pictures"), "channels": channels}
    return {"size": Choice(size, reason, True), "channels": channels}


def draft_tfds(request: Request) -> DataDraft:
    """Draft how a recipe reads a set of TensorFlow Datasets."""
    task = requested_task(request, LABEL_TASKS)
    options = {"name": Choice("tfds"), "dataset": Choice(request.path)}
    if request.path.partition("/")[0] == "emnist":
        options["transpose"] = Choice(True, "the pictures of emnist are stored transposed")
    return DataDraft(options, task or Choice("classification", "pictures with one label each"))


# Speech and most sounds differ below half of this rate.
ENOUGH = 16_000
# Seconds of a longer clip cost much time.
LONGEST = 10.0


def draft_audio(folder: Path, request: Request) -> DataDraft:
    """Draft how a recipe reads a folder with one folder of WAV files for each class."""
    task = requested_task(request, LABEL_TASKS)
    files = sorted(str(file) for file in iterate_files(folder, CLASS_LEVELS) if file.suffix.lower() in SOUNDS.endings)
    sounds = inspect_sounds(files)
    if sounds is None:
        raise InputError(f"{folder}: none of the sampled WAV files has a readable header; copy them again")
    loader = {"name": Choice("audio"), "path": Choice(request.path)}
    options = {"rate": _choose_rate(sounds), "seconds": _choose_seconds(sounds)}
    return DataDraft({**loader, **options}, task or Choice("classification", "one folder for each class"))


def _choose_rate(sounds):
    rate, count = sounds.rates[0]
    if rate > ENOUGH:
        return Choice(ENOUGH, f"most files have {rate:,} Hz; sounds above {ENOUGH // 2:,} Hz need a higher rate", True)
    if count < sounds.examined:
        return Choice(rate, "the rate of most files; others are converted", True)
    return Choice(rate, "the rate of the files")


def _choose_seconds(sounds):
    shortest, median, most, longest = sounds.seconds
    if shortest == longest and longest <= LONGEST:
        return Choice(longest, "the duration of all files")
    seconds = max(round(min(most, 2 * median, LONGEST), 1), 0.1)
    extent = f"files have {shortest:.3g} to {longest:.3g} s, {median:.3g} in the median"
    return Choice(seconds, f"{extent}; longer ones are cut off, zeros follow shorter ones", True)
