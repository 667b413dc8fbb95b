#!/usr/bin/env python3
"""Writes a starter recipe for each of many data sets with `new --yes`, trains it unchanged, and compares its score.

    benchmarks/new_recipes.py DIR [--only iris co2] [--texts ROOT] [--data_dir DATA] [--json]

The score is that of the last round on the test examples; the baseline is the line `to beat` of the recipe: the most
frequent class, the mean or the last value, whichever applies. Each data set is written into DIR/NAME in a format that
its users have. It comes from a package on PYTHONPATH (scikit-learn, statsmodels, plotly, vega_datasets, sktime,
pydataset), from Debian packages of texts (fortunes, fortunes-de, fortunes-es, fortunes-ru, fortunes-zh; their root
folder with --texts) or from the data folder (MNIST, CIFAR-10). One that is not installed is skipped by name.
"""

import argparse
import csv
import gzip
import importlib.util
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import checkout

from hetero_tf.base import hardware

FORTUNES = "usr/share/games/fortunes"
# Characters of the longest text of a topic, and the texts of a topic.
LONGEST_TEXT, MOST_TEXTS = 600, 400
ROUNDING = 1e-6
HEADER = ("data", "format", "rows", "columns", "task", "metric", "score", "baseline", "beats it", "new s", "train s")


@dataclass(frozen=True)
class Trial:
    """A data set and how its user calls `new`.

    Attributes:
        source: Importable package, "texts" for the root of Debian packages, or "data" for the data folder.
        file: File or folder in the source; "" if `write` needs none.
        write: `(file, folder) -> path` that writes the data into a folder and returns the argument of `new`.
        format: Format of the written data.
        flags: Further flags of `new`.
    """

    source: str
    file: str
    write: Callable[[Path, Path], str]
    format: str = "CSV"
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """Result of a trial; the fields follow `HEADER`."""

    data: str
    format: str
    rows: int
    columns: str
    task: str
    metric: str
    score: float
    baseline: float
    beats: bool
    new_seconds: float
    train_seconds: float


def write_csv(path: Path, rows) -> str:
    """Write rows as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def copy(file: Path, folder: Path) -> str:
    """Copy a file, decompressed."""
    target = folder / file.name.removesuffix(".gz")
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as source, target.open("wb") as out:
        shutil.copyfileobj(source, out)
    return str(target)


def load_toy(name: str):
    """Return a toy data set of scikit-learn."""
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")()


def toy_rows(name: str):
    """Return the header and the rows of a toy data set of scikit-learn; classes have their names."""
    import numpy as np

    toy = load_toy(name)
    targets, names = toy.target, toy.get("target_names", ["target"])
    columns = ["target"] if targets.ndim == 1 else list(names)
    values = np.asarray(names)[targets] if targets.ndim == 1 and len(names) > 1 else targets
    return [[*toy.feature_names, *columns], *([*x, *np.atleast_1d(y)] for x, y in zip(toy.data, values))]


def toy_csv(name: str):
    """Return a writer of a toy data set of scikit-learn as CSV."""
    return lambda file, folder: write_csv(folder / f"{name}.csv", toy_rows(name))


def toy_parquet(file: Path, folder: Path) -> str:
    """Write the wine data as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    header, *rows = toy_rows("wine")
    pq.write_table(pa.table({name: list(column) for name, column in zip(header, zip(*rows))}), folder / "wine.parquet")
    return str(folder / "wine.parquet")


def digit_pictures(file: Path, folder: Path) -> str:
    """Write scikit-learn's digits as PNG files in a folder for each class."""
    import numpy as np
    import tensorflow as tf

    toy = load_toy("digits")
    for index, (image, label) in enumerate(zip(toy.images, toy.target)):
        path = folder / "digits" / str(label) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png((image * 255 / 16).astype(np.uint8)[..., None]).numpy())
    return str(folder / "digits")


def digit_properties(file: Path, folder: Path) -> str:
    """Write scikit-learn's digits with the labels even, above 4, divisible by 3, and with a loop, as .npz."""
    import numpy as np

    toy = load_toy("digits")
    x, digits = (toy.images * 255 / 16).astype(np.uint8)[..., None], toy.target
    y = np.stack([digits % 2 == 0, digits > 4, digits % 3 == 0, np.isin(digits, (0, 6, 8, 9))], 1)
    path = folder / "digit_properties.npz"
    np.savez(path, x_train=x[:1437], y_train=y[:1437], x_test=x[1437:], y_test=y[1437:])
    return str(path)


def shape_masks(file: Path, folder: Path) -> str:
    """Write generated shapes with their masks as PNG files."""
    import tensorflow as tf

    from hetero_tf.data import shapes

    train = shapes.load(None).train
    for name, arrays in (("images", train.x), ("masks", train.y[..., None])):
        (folder / "shapes" / name).mkdir(parents=True)
        for index, array in enumerate(arrays):
            (folder / "shapes" / name / f"{index}.png").write_bytes(tf.io.encode_png(array.astype("uint8")).numpy())
    return str(folder / "shapes")


def unquoted(file: Path, folder: Path) -> str:
    """Write a CSV file without the apostrophes around its names."""
    (folder / file.name).write_text(file.read_text().replace("'", ""))
    return str(folder / file.name)


def json_rows(file: Path, folder: Path) -> str:
    """Write a JSON list of objects as CSV."""
    rows = json.loads(file.read_text())
    return write_csv(folder / f"{file.stem}.csv", [list(rows[0]), *(list(row.values()) for row in rows)])


def archived(name: str):
    """Return a writer that extracts a CSV file of pydataset's archive."""

    def write(file: Path, folder: Path) -> str:
        with tarfile.open(file) as archive:
            (folder / Path(name).name).write_bytes(archive.extractfile(f"resources/rdata/csv/{name}").read())
        return str(folder / Path(name).name)

    return write


def read_ts(file: Path):
    """Return the series float32 [n, time, channels], cut to the shortest one, and the labels of a .ts file."""
    import numpy as np

    lines = file.read_text().partition("@data\n")[2].split()
    parts = [line.split(":") for line in lines]
    series = [np.array([channel.split(",") for channel in channels], np.float32).T for *channels, _ in parts]
    shortest = min(map(len, series))
    return np.stack([each[:shortest] for each in series]), np.array([label for *_, label in parts])


def series_npz(file: Path, folder: Path) -> str:
    """Write the training and the test series of a problem of sktime as .npz."""
    import numpy as np

    splits = {split: read_ts(file / f"{file.name}_{split.upper()}.ts") for split in ("train", "test")}
    shortest = min(x.shape[1] for x, _ in splits.values())
    arrays = {f"x_{split}": x[:, :shortest] for split, (x, _) in splits.items()}
    np.savez(folder / f"{file.name}.npz", **arrays, **{f"y_{split}": y for split, (_, y) in splits.items()})
    return str(folder / f"{file.name}.npz")


def read_topics(folder: Path, topics: tuple[str, ...]):
    """Yield `(text, topic)` of files of fortunes, without colors."""
    for topic in topics:
        texts = (folder / topic).read_text(encoding="utf-8", errors="replace").split("\n%\n")
        plain = (" ".join(re.sub(r"\x1b\[\d*m", "", text).split()) for text in texts)
        yield from (
            (text[:LONGEST_TEXT], topic.partition(".")[0]) for text in itertools.islice(plain, MOST_TEXTS) if text
        )


def topic_csv(*topics: str):
    """Return a writer of the texts of some topics as CSV."""
    return lambda file, folder: write_csv(folder / "topics.csv", [("text", "topic"), *read_topics(file, topics)])


def topic_json(*topics: str):
    """Return a writer of the texts of some topics as JSON lines."""

    def write(file: Path, folder: Path) -> str:
        lines = (json.dumps({"text": text, "topic": topic}) for text, topic in read_topics(file, topics))
        (folder / "topics.jsonl").write_text("\n".join(lines))
        return str(folder / "topics.jsonl")

    return write


def topic_folders(*topics: str):
    """Return a writer of the texts of some topics as a folder of text files for each topic."""

    def write(file: Path, folder: Path) -> str:
        for index, (text, topic) in enumerate(read_topics(file, topics)):
            (folder / "topics" / topic).mkdir(parents=True, exist_ok=True)
            (folder / "topics" / topic / f"{index}.txt").write_text(text, encoding="utf-8")
        return str(folder / "topics")

    return write


def topic_arrow(*topics: str):
    """Return a writer of the texts of some topics as Hugging Face's `save_to_disk` writes them."""

    def write(file: Path, folder: Path) -> str:
        import pyarrow as pa

        texts, labels = zip(*read_topics(file, topics))
        table, saved = pa.table({"text": list(texts), "topic": list(labels)}), folder / "topics"
        saved.mkdir()
        with pa.ipc.new_stream(str(saved / "data-00000-of-00001.arrow"), table.schema) as writer:
            writer.write_table(table)
        (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
        (saved / "dataset_info.json").write_text(json.dumps({"features": {}}))
        return str(saved)

    return write


def running_text(*topics: str):
    """Return a writer of the texts of some topics as one text file."""

    def write(file: Path, folder: Path) -> str:
        (folder / "text.txt").write_text("\n".join(text for text, _ in read_topics(file, topics)), encoding="utf-8")
        return str(folder / "text.txt")

    return write


def named(name: str):
    """Return a writer that writes nothing: `new` takes the name of a data set."""
    return lambda file, folder: name


_STATSMODELS, _PLOTLY, _SERIES = "datasets/{0}/{0}.csv", "package_data/datasets/{}.csv.gz", "datasets/data/{}"
TRIALS = {
    "iris": Trial("sklearn", "", toy_csv("iris")),
    "wine": Trial("sklearn", "", toy_parquet, "Parquet"),
    "breast_cancer": Trial("sklearn", "", toy_csv("breast_cancer")),
    "diabetes": Trial("sklearn", "", toy_csv("diabetes")),
    "linnerud": Trial("sklearn", "", toy_csv("linnerud"), flags=("--label=Weight,Waist,Pulse",)),
    "digits": Trial("sklearn", "", digit_pictures, "PNG folders"),
    "digit_properties": Trial("sklearn", "", digit_properties, "npz"),
    "shapes": Trial("hetero_tf", "", shape_masks, "PNG masks"),
    "fair": Trial("statsmodels", _STATSMODELS.format("fair"), copy),
    "anes96": Trial("statsmodels", _STATSMODELS.format("anes96"), unquoted, flags=("--label=vote",)),
    "spector": Trial("statsmodels", _STATSMODELS.format("spector"), unquoted),
    "star98": Trial("statsmodels", _STATSMODELS.format("star98"), copy, flags=("--label=PR50M",)),
    "randhie": Trial("statsmodels", _STATSMODELS.format("randhie"), copy, flags=("--label=mdvis",)),
    "heart": Trial("statsmodels", _STATSMODELS.format("heart"), copy, flags=("--label=survival",)),
    "modechoice": Trial("statsmodels", _STATSMODELS.format("modechoice"), copy, flags=("--label=choice",)),
    "co2": Trial("statsmodels", _STATSMODELS.format("co2"), copy),
    "sunspots": Trial("statsmodels", _STATSMODELS.format("sunspots"), copy),
    "cars": Trial("vega_datasets", "_data/cars.json", json_rows),
    "seattle_weather": Trial("vega_datasets", "_data/seattle-weather.csv", copy),
    "employment": Trial("vega_datasets", "_data/us-employment.csv", copy, flags=("--label=nonfarm",)),
    "tips": Trial("plotly", _PLOTLY.format("tips"), copy, flags=("--label=tip",)),
    "gapminder": Trial("plotly", _PLOTLY.format("gapminder"), copy, flags=("--label=lifeExp",)),
    "diamonds": Trial("pydataset", "resources.tar.gz", archived("ggplot2/diamonds.csv"), flags=("--label=price",)),
    "titanic": Trial("pydataset", "resources.tar.gz", archived("COUNT/titanic.csv")),
    "airline": Trial("sktime", _SERIES.format("Airline/Airline.csv"), copy),
    "italy_power": Trial("sktime", _SERIES.format("ItalyPowerDemand"), series_npz, "npz series"),
    "basic_motions": Trial("sktime", _SERIES.format("BasicMotions"), series_npz, "npz series"),
    "gun_point": Trial("sktime", _SERIES.format("GunPoint"), series_npz, "npz series"),
    "japanese_vowels": Trial("sktime", _SERIES.format("JapaneseVowels"), series_npz, "npz series"),
    "english_topics": Trial("texts", FORTUNES, topic_folders("food", "computers", "law", "science"), "text folders"),
    "german_topics": Trial("texts", f"{FORTUNES}/de", topic_csv("witze", "infodrom", "woerterbuch", "unfug")),
    "spanish_topics": Trial(
        "texts",
        f"{FORTUNES}/es",
        topic_json("refranes.fortunes", "leydemurphy.fortunes", "arte.fortunes", "ciencia.fortunes"),
        "JSON lines",
    ),
    "russian_topics": Trial("texts", f"{FORTUNES}/ru", topic_arrow("murphy", "love", "polit"), "save_to_disk"),
    "chinese_topics": Trial("texts", FORTUNES, topic_csv("tang300", "song100", "chinese")),
    "chinese_text": Trial("texts", FORTUNES, running_text("tang300", "song100"), "text file"),
    "german_text": Trial("texts", f"{FORTUNES}/de", running_text("witze"), "text file"),
    "mnist": Trial("data", "tfds/mnist", named("mnist"), "TFDS"),
    "cifar10": Trial("data", "tfds/cifar10", named("cifar10"), "TFDS"),
}


def locate(trial: Trial, args) -> Path | None:
    """Return the file of a trial; None if its source is not installed."""
    roots = {"texts": args.texts, "data": args.data_dir or os.environ.get("HETERO_TF_DATA", "")}
    if trial.source in roots:
        root = roots[trial.source]
    else:
        spec = importlib.util.find_spec(trial.source)
        root = None if spec is None else (spec.submodule_search_locations or [None])[0]
    if not root or not Path(root, trial.file).exists():
        return None
    return Path(root, trial.file)


def call(*words: str) -> float:
    """Run the program; return its seconds."""
    start, env = time.monotonic(), {**os.environ, "PYTHONPATH": str(checkout.ROOT)}
    done = subprocess.run([sys.executable, "-m", "hetero_tf", *words], env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return time.monotonic() - start


def measure(name: str, trial: Trial, file: Path, args) -> Row:
    """Write the data of a trial, and train its starter recipe through the command line."""
    from hetero_tf import recipe as recipes
    from hetero_tf.base import metrics
    from hetero_tf.data.inspection import TableSummary
    from hetero_tf.run.data import load_data

    folder = args.dir / name
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    path, recipe, run_dir = trial.write(file, folder / "data"), str(folder / "recipe.yaml"), str(folder / "run")
    shared = [f"--data_dir={args.data_dir}"] if args.data_dir else []
    new_seconds = call("new", path, "--yes", f"--out={recipe}", *trial.flags, *shared)
    train_seconds = call(f"--recipe={recipe}", f"--run_dir={run_dir}", *shared)
    loaded = recipes.load(recipe, ())
    dataset = load_data(loaded, args.data_dir)
    metric, baseline, _ = dataset.baseline
    last = json.loads(Path(run_dir, "metrics.jsonl").read_text().splitlines()[-1])
    metric = metric.removeprefix("global_")
    score, is_lower = last[f"global_{metric}"], metrics.find_metric(f"global_{metric}").better == "lower"
    is_table = isinstance(dataset.summary, TableSummary)
    shape = len(dataset.summary.columns) if is_table else " x ".join(map(str, dataset.train.x.shape[1:]))
    rows = len(dataset.train.x) + len(dataset.test.x)
    # A float32 score may differ from an equal baseline by rounding.
    beats = score < baseline * (1 - ROUNDING) if is_lower else score > baseline * (1 + ROUNDING)
    times = round(new_seconds, 1), round(train_seconds, 1)
    return Row(name, trial.format, rows, str(shape), loaded.task.name, metric, score, baseline, beats, *times)


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path, help="folder of the written data, recipes and runs")
    parser.add_argument("--only", nargs="+", choices=TRIALS, default=list(TRIALS), help="names of data sets")
    parser.add_argument("--texts", default="/", help="root folder of the Debian packages of texts")
    parser.add_argument("--data_dir")
    parser.add_argument("--json", action="store_true", help="one JSON line for each data set instead of a table")
    return parser.parse_args()


def main():
    """Prints a row for each data set; returns 1 if a recipe failed or does not beat its baseline."""
    args, is_worse = parse(), False
    hardware.import_quietly()
    if not args.json:
        print(f"| {' | '.join(HEADER)} |\n|{' --- |' * len(HEADER)}")
    for name in args.only:
        trial = TRIALS[name]
        if (file := locate(trial, args)) is None:
            lacks = f" or lacks {trial.file}" if trial.file else ""
            print(f"{name}: skipped, {trial.source} is not installed{lacks}", file=sys.stderr)
            continue
        try:
            row = measure(name, trial, file, args)
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
            is_worse = True
            continue
        is_worse |= not row.beats
        *texts, score, baseline, beats, new_seconds, train_seconds = asdict(row).values()
        cells = [*texts, f"{score:.4g}", f"{baseline:.4g}", "yes" if beats else "no", new_seconds, train_seconds]
        print(json.dumps(asdict(row)) if args.json else f"| {' | '.join(map(str, cells))} |", flush=True)
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
