#!/usr/bin/env python3
"""Times the same local steps in PyTorch, one client after the other as in the authors' code, to compare with round.py.

    benchmarks/torch_loop.py --model mnist --levels a-e [--steps 300] [--repeats 3] [--json]

The networks, widths, batches, loss and SGD are those of the recipes mnist, cifar10 and wikitext2: batch norm without
running averages, Scaler, absent labels as logit 0, clipping to norm 1, momentum, weight decay. Denormal numbers are
flushed to zero, as TensorFlow does; otherwise PyTorch can be several times slower. Examples are random pixels, or
words, with the number of different words per client of WikiText-2, because only time is measured. Cutting sub-models,
merging and augmentation are excluded. Times are medians of full rounds on a quiet machine.

PyTorch can be faster: with several clients in one network at narrow levels, or two processes of one thread at wide
levels (see RESULTS.md).

hetero_tf does not require PyTorch. Install it in a separate environment.
"""

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hetero_tf.base import hardware  # noqa: E402

try:
    import torch
    from torch import nn
except ImportError:
    print(
        "torch_loop.py needs PyTorch, which is not installed; install it in a separate environment: "
        "python3 -m venv torch_env && torch_env/bin/pip install torch numpy, then "
        "torch_env/bin/python benchmarks/torch_loop.py",
        file=sys.stderr,
    )
    sys.exit(2)

CLASSES, BATCH = 10, 10
# WikiText-2: words, average number of different words of a client, and words of a step.
WORDS, CLIENT_WORDS, SEGMENT, MASKED = 33_278, 3_774, 64, 0.15
WIDTHS = {"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.125, "e": 0.0625}
# Shape of an image, examples of a client, and learning rate, by model.
SETTINGS = {"mnist": ((1, 28, 28), 600, 0.01), "cifar10": ((3, 32, 32), 500, 0.1)}
TEXT, TEXT_RATE = "wikitext2", 0.1


class Scaler(nn.Module):
    """Divides by the relative width while training."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, inputs):
        """Any shape, the same."""
        return inputs / self.scale if self.training else inputs


class PreActivationBlock(nn.Module):
    """Two 3x3 convolutions, each preceded by Scaler, norm and ReLU, added to a shortcut; see `hetero_tf/layers`."""

    def __init__(self, before, after, stride, scale):
        super().__init__()
        self.first = activation(before, scale)
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = activation(after, scale)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        same = stride == 1 and before == after
        self.shortcut = None if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, inputs):
        """[batch, before, height, width] -> [batch, after, height / stride, width / stride]."""
        hidden = self.first(inputs)
        shortcut = inputs if self.shortcut is None else self.shortcut(hidden)
        return self.conv2(self.second(self.conv1(hidden))) + shortcut


def activation(channels, scale):
    """Scaler, batch norm of the batch's own moments, ReLU."""
    return nn.Sequential(Scaler(scale), nn.BatchNorm2d(channels, track_running_stats=False), nn.ReLU())


def build(model, width):
    """The network at a width: convolutions of 64 to 512 channels, or the PreResNet18 of blocks [2, 2, 2, 2]."""
    sizes = [math.ceil(size * width) for size in (64, 128, 256, 512)]
    layers, channels = [], SETTINGS[model][0][0]
    if model == "cifar10":
        layers, channels = [nn.Conv2d(channels, sizes[0], 3, 1, 1, bias=False)], sizes[0]
    for stage, size in enumerate(sizes):
        if model == "mnist":
            layers += [nn.Conv2d(channels, size, 3, 1, 1), activation(size, width)]
            layers += [nn.MaxPool2d(2)] if stage < 3 else []
        else:
            layers += [
                PreActivationBlock(channels, size, 1 if stage == 0 else 2, width),
                PreActivationBlock(size, size, 1, width),
            ]
        channels = size
    layers += [activation(channels, width)] if model == "cifar10" else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class TransformerBlock(nn.Module):
    """Self-attention and a two-layer network, each added to its input and normalised; see `hetero_tf/layers`."""

    def __init__(self, width, heads, head_width, hidden, scale, dropout=0.2):
        super().__init__()
        self.heads, self.shape = heads, (heads, head_width)
        self.query, self.key, self.value = (scaled(width, heads * head_width, scale) for _ in range(3))
        self.out = scaled(heads * head_width, width, scale)
        self.expand = nn.Sequential(scaled(width, hidden, scale), nn.GELU(), nn.Dropout(dropout))
        self.contract = nn.Sequential(scaled(hidden, width, scale), nn.Dropout(dropout))
        self.drop, self.norm1, self.norm2 = nn.Dropout(dropout), nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, inputs):
        """[rows, positions, width], the same."""
        query, key, value = (
            part(inputs).unflatten(-1, self.shape).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        weights = (query @ key.transpose(-1, -2) / self.shape[1] ** 0.5).softmax(-1)
        attended = self.out((weights @ value).transpose(1, 2).flatten(2))
        inputs = self.norm1(inputs + self.drop(attended))
        return self.norm2(inputs + self.contract(self.expand(inputs)))


def scaled(before, after, scale):
    """A dense layer and its Scaler."""
    return nn.Sequential(nn.Linear(before, after), Scaler(scale))


class MaskedWords(nn.Module):
    """The Transformer of the recipe wikitext2 at a width: ids of words, some of them masked, to logits of all words."""

    def __init__(self, width, blocks=4, heads=8):
        super().__init__()
        size, head_width, hidden = (math.ceil(full * width) for full in (256, 32, 512))
        self.words, self.position_table = nn.Embedding(WORDS + 1, size), nn.Embedding(SEGMENT, size)
        self.start = nn.Sequential(Scaler(width), nn.LayerNorm(size), nn.Dropout(0.2))
        self.blocks = nn.Sequential(*(TransformerBlock(size, heads, head_width, hidden, width) for _ in range(blocks)))
        self.head = nn.Sequential(scaled(size, size, width), nn.GELU(), nn.LayerNorm(size), nn.Linear(size, WORDS))

    def forward(self, words):
        """[rows, positions] to [rows, positions, WORDS]."""
        positions = torch.arange(words.shape[1])
        return self.head(self.blocks(self.start(self.words(words) + self.position_table(positions))))


def batches(model, examples, steps):
    """Inputs and targets of each step of a client: a new order per epoch, or consecutive words."""
    if model == TEXT:
        for step in range(steps):
            words = examples[step % len(examples)][None]
            yield torch.where(torch.rand(words.shape) < MASKED, WORDS, words), words
        return
    pixels, labels = examples
    order = []
    for _ in range(steps):
        order = order if len(order) else torch.randperm(len(pixels)).split(BATCH)
        rows, order = order[0], order[1:]
        yield (pixels[rows].float() / 255 - 0.1307) / 0.3081, labels[rows]


def train(args, network, examples, present):
    """Trains one client; returns the sum of losses."""
    network.train()
    rate = TEXT_RATE if args.model == TEXT else SETTINGS[args.model][2]
    optimizer = torch.optim.SGD(network.parameters(), rate, momentum=0.9, weight_decay=5e-4)
    total = 0.0
    for inputs, targets in batches(args.model, examples, args.steps):
        optimizer.zero_grad()
        logits = network(inputs).masked_fill(~present, 0)
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total


def play_round(args, levels, examples, present):
    """Runs one round: every client trains a network of its level; returns the sum of losses."""
    widths = [WIDTHS[levels[client % len(levels)]] for client in range(args.clients)]
    networks = (MaskedWords(width) if args.model == TEXT else build(args.model, width) for width in widths)
    return sum(train(args, network, examples, present) for network in networks)


def drawn(model):
    """Random examples of a client, and a mask of its classes."""
    if model == TEXT:
        client_words = torch.randperm(WORDS)[:CLIENT_WORDS]
        present = torch.zeros(WORDS, dtype=torch.bool)
        present[client_words] = True
        return client_words[torch.randint(0, CLIENT_WORDS, (327, SEGMENT))], present
    shape, examples, _ = SETTINGS[model]
    pixels = torch.randint(0, 256, (examples, *shape), dtype=torch.uint8)
    return (pixels, torch.randint(0, CLASSES, (examples,))), torch.ones(CLASSES, dtype=torch.bool)


def timed(work):
    """Seconds of `work()`."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def peak_flops(size=2048, repeats=5):
    """Float32 operations per second of a matrix product, the best of some runs."""
    value = torch.randn(size, size)
    return 2 * size**3 / min(timed(lambda: value @ value) for _ in range(repeats))


def measure(args):
    """All printed values, as a dict."""
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    examples, present = drawn(args.model)
    levels = args.levels.split("-")
    first = timed(lambda: play_round(args, levels, examples, present))
    seconds = statistics.median(timed(lambda: play_round(args, levels, examples, present)) for _ in range(args.repeats))
    steps = args.clients * args.steps
    return {
        "model": args.model,
        "levels": args.levels,
        "torch": torch.__version__,
        "threads": args.threads,
        "clients": args.clients,
        "steps": steps,
        "first_round_s": first,
        "round_s": seconds,
        "ms_per_step": 1000 * seconds / steps,
        "examples_per_s": steps * (SEGMENT if args.model == TEXT else BATCH) / seconds,
        "peak_gflops": peak_flops() / 1e9,
    }


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*SETTINGS, TEXT], default="mnist")
    parser.add_argument("--levels", default="a", help="a, e, a-e, a-b-c-d-e...: levels in turn")
    parser.add_argument("--clients", type=int, default=10, help="clients of a round")
    parser.add_argument("--steps", type=int, default=300, help="steps of each client")
    parser.add_argument("--repeats", type=int, default=3, help="timed rounds after the first")
    parser.add_argument("--threads", type=int, default=hardware.core_count())
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    args = parser.parse_args()
    for name in ("clients", "steps", "repeats", "threads"):
        if getattr(args, name) < 1:
            parser.error(f"`--{name}` must be at least 1. Received: {name}={getattr(args, name)}")
    if not set(args.levels.split("-")) <= set(WIDTHS):
        parser.error(f"`--levels` must name levels of {', '.join(WIDTHS)}. Received: levels={args.levels}")
    return args


def main():
    """Measures and prints."""
    args = parse()
    result = measure(args)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:18} {value if not isinstance(value, float) else format(value, ',.3f')}")


if __name__ == "__main__":
    main()
