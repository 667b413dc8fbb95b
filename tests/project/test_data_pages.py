"""The pages of `docs/data` are true: recipes load, and every command runs in order, with data such as the page shows."""

import csv
import json
import re
import shlex
import signal
import urllib.request
from pathlib import Path

import folders
import numpy as np
import programs
import pytest
from changed_pages import page_cases
from each import for_each
from ports import free_ports

from hetero_tf import recipe
from hetero_tf.cli import main
from hetero_tf.cli.flags import define_flags

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = sorted((CHECKOUT / "docs/data").glob("*.md"))
RNG = np.random.default_rng(3)


def commands(page):
    """The commands of a page, each as a list of words without the program."""
    lines = re.findall(r"^    bin/hetero_tf (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def requests(page):
    """The bodies of requests to the served model."""
    bodies = re.findall(r"""models/a:predict -d '(.*?)'$""", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [json.loads(body) for body in bodies]


@for_each(PAGES)
def test_recipes_load_and_flags_exist(page):
    text = page.read_text("utf-8")
    blocks = [block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "\nrounds:" in block]
    assert all(recipe.loads(block).name == f"my_{block.split('name: my_')[1].split()[0]}" for block in blocks)
    assert set(re.findall(r"(?<![\w-])--([a-z_]+)(?![\w-])", text)) <= set(define_flags())


def write_table(path, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)


def flowers():
    """A table such as the one of the pages, whose species follows from the petals."""
    x = RNG.uniform(1, 6, (60, 4)).round(1)
    species = np.array(["setosa", "versicolor"])[(x[:, 2] > 3).astype(int)]
    names = ["garden", "sepal_length", "sepal_width", "petal_length", "petal_width", "species"]
    return [names, *([f"garden_{i % 10}", *map(float, x[i]), species[i]] for i in range(60))]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the files that the pages name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    write_table("flowers.csv", flowers())
    names, *rows = flowers()
    pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}), "flowers.parquet")
    days = np.arange("2020-01-01", "2020-07-01", dtype="datetime64[D]")
    write_table("sales.csv", [["day", "sales"], *([day, np.sin(i / 3).round(4)] for i, day in enumerate(days))])
    words = {"sport": "goal team match player win", "food": "bread soup rice salt plate"}
    texts = [[" ".join(RNG.choice(words[topic].split(), 7)), topic] for topic in words for _ in range(30)]
    write_table("messages.csv", [["text", "topic"], *texts])
    Path("book.txt").write_text("the cat sat on the mat and then it ran\n" * 300)
    folders.write_pictures(tmp_path / "pictures", ("cat", "dog"), images=20, size=32)
    folders.write_masks(tmp_path / "streets", images=30, size=64)
    folders.write_sounds(tmp_path / "spoken", ("english", "italian"), clips=15)
    x, y = RNG.integers(0, 255, (40, 16, 16, 3), np.uint8), np.arange(40) % 2
    np.savez("images.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])
    return tmp_path


@pytest.mark.parametrize("page", page_cases(PAGES))
def test_every_command_runs_and_every_request_is_answered(page, folder, capsys):
    """Two rounds of each training; `serve` is started for the requests."""
    for words in commands(page):
        if words[0] == "serve":
            continue
        shorter = ["--set", "rounds=2"] if words[0] == "--recipe" else []
        assert main.main(["hetero_tf", *words, *shorter]) == 0, (words, capsys.readouterr().err)
    for body in requests(page):
        (run_dir,) = {words[words.index("--run_dir") + 1] for words in commands(page) if words[0] == "predict"}
        assert "predictions" in answer(run_dir, body), body


def answer(run_dir, body):
    assert main.main(["hetero_tf", "export", "--run_dir", run_dir]) == 0
    (port,) = free_ports(1)
    server = programs.shared().start("serve", "--run_dir", run_dir, "--port", port, cwd=Path.cwd())
    try:
        assert server.until(lambda: "Serving at" in server.out), server.err
        url = f"http://127.0.0.1:{port}/v1/models/a:predict"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)
    finally:
        server.kill(signal.SIGTERM).wait()
