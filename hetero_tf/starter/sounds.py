"""Sound clips: their rate and duration, from a folder with one folder of WAV files for each class."""

from pathlib import Path

from hetero_tf.base.errors import InputError
from hetero_tf.data.audio import inspect_sounds
from hetero_tf.data.codecs.sound import SOUNDS
from hetero_tf.data.folder import CLASS_LEVELS, iterate_files
from hetero_tf.starter.choices import LABEL_TASKS, Choice, DataDraft, Request, requested_task

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
