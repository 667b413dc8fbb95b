"""The networks of the recipes mnist, cifar10 and wikitext2 in PyTorch, and random examples of their clients."""

import dataclasses
import math

import torch
from torch import nn

CLASSES, BATCH = 10, 10
# WikiText-2: words, average number of different words of a client, rows of a client, and words of a step.
WORDS, CLIENT_WORDS, ROWS, SEGMENT, MASKED = 33_278, 3_774, 327, 64, 0.15
WIDTHS = {"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.125, "e": 0.0625}
# Shape of an image, examples of a client, and learning rate, by model.
SETTINGS = {"mnist": ((1, 28, 28), 600, 0.01), "cifar10": ((3, 32, 32), 500, 0.1)}
TEXT, TEXT_RATE = "wikitext2", 0.1
MODELS = (*SETTINGS, TEXT)


def learning_rate(model):
    """The learning rate of a recipe."""
    return TEXT_RATE if model == TEXT else SETTINGS[model][2]


def new_network(model, width):
    """A network of a recipe at a relative width."""
    return MaskedWords(width) if model == TEXT else image_network(model, width)


class Scaler(nn.Module):
    """Divides by the relative width while training."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, inputs):
        """Any shape, the same."""
        return inputs / self.scale if self.training else inputs


class Activation(nn.Sequential):
    """Scaler, batch norm of the batch's own moments, ReLU."""

    def __init__(self, channels, scale):
        super().__init__(Scaler(scale), nn.BatchNorm2d(channels, track_running_stats=False), nn.ReLU())


class ScaledLinear(nn.Sequential):
    """A dense layer and its Scaler."""

    def __init__(self, before, after, scale):
        super().__init__(nn.Linear(before, after), Scaler(scale))


class PreActivationBlock(nn.Module):
    """Two 3x3 convolutions, each preceded by Scaler, norm and ReLU, added to a shortcut; see `hetero_tf/layers`."""

    def __init__(self, before, after, stride, scale):
        super().__init__()
        self.first = Activation(before, scale)
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = Activation(after, scale)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        same = stride == 1 and before == after
        self.shortcut = None if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, inputs):
        """[batch, before, height, width] -> [batch, after, height / stride, width / stride]."""
        hidden = self.first(inputs)
        shortcut = inputs if self.shortcut is None else self.shortcut(hidden)
        return self.conv2(self.second(self.conv1(hidden))) + shortcut


def image_network(model, width):
    """Convolutions of 64 to 512 channels, or the PreResNet18 of blocks [2, 2, 2, 2]."""
    sizes = [math.ceil(size * width) for size in (64, 128, 256, 512)]
    layers, channels = [], SETTINGS[model][0][0]
    if model == "cifar10":
        layers, channels = [nn.Conv2d(channels, sizes[0], 3, 1, 1, bias=False)], sizes[0]
    for stage, size in enumerate(sizes):
        if model == "mnist":
            layers += [nn.Conv2d(channels, size, 3, 1, 1), Activation(size, width)]
            layers += [nn.MaxPool2d(2)] if stage < 3 else []
        else:
            layers += [
                PreActivationBlock(channels, size, 1 if stage == 0 else 2, width),
                PreActivationBlock(size, size, 1, width),
            ]
        channels = size
    layers += [Activation(channels, width)] if model == "cifar10" else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class TransformerBlock(nn.Module):
    """Self-attention and a two-layer network, each added to its input and normalised; see `hetero_tf/layers`."""

    def __init__(self, width, heads, head_width, hidden, scale, dropout=0.2):
        super().__init__()
        self.shape = (heads, head_width)
        self.project = ScaledLinear(width, 3 * heads * head_width, scale)
        self.out = ScaledLinear(heads * head_width, width, scale)
        self.expand = nn.Sequential(ScaledLinear(width, hidden, scale), nn.GELU(), nn.Dropout(dropout))
        self.contract = nn.Sequential(ScaledLinear(hidden, width, scale), nn.Dropout(dropout))
        self.drop, self.norm1, self.norm2 = nn.Dropout(dropout), nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, inputs):
        """[rows, positions, width], the same."""
        query, key, value = self.project(inputs).unflatten(-1, (3, *self.shape)).permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(-1, -2) / self.shape[1] ** 0.5).softmax(-1)
        attended = self.out((weights @ value).transpose(1, 2).flatten(2))
        inputs = self.norm1(inputs + self.drop(attended))
        return self.norm2(inputs + self.contract(self.expand(inputs)))


class MaskedWords(nn.Module):
    """The Transformer of the recipe wikitext2 at a width: ids of words, some of them masked, to logits of all words."""

    def __init__(self, width, blocks=4, heads=8):
        super().__init__()
        size, head_width, hidden = (math.ceil(full * width) for full in (256, 32, 512))
        self.words, self.position_table = nn.Embedding(WORDS + 1, size), nn.Embedding(SEGMENT, size)
        self.start = nn.Sequential(Scaler(width), nn.LayerNorm(size), nn.Dropout(0.2))
        self.blocks = nn.Sequential(*(TransformerBlock(size, heads, head_width, hidden, width) for _ in range(blocks)))
        self.head = nn.Sequential(
            ScaledLinear(size, size, width), nn.GELU(), nn.LayerNorm(size), nn.Linear(size, WORDS)
        )

    def forward(self, words):
        """[rows, positions] to [rows, positions, WORDS]."""
        positions = torch.arange(words.shape[1], device=words.device).expand_as(words)
        return self.head(self.blocks(self.start(self.words(words) + self.position_table(positions))))


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples of several clients, on one device.

    Attributes:
        inputs: uint8 [clients, examples, channels, height, width], or ids of rows of `present` [clients, rows, SEGMENT]
        labels: [clients, examples]; for text the ids themselves
        present: the different classes or words of each client, [clients, classes]
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    present: torch.Tensor


def random_examples(model, clients, device):
    """Random examples, because only time is measured."""
    if model == TEXT:
        present = torch.stack([torch.randperm(WORDS)[:CLIENT_WORDS] for _ in range(clients)])
        ids = torch.randint(0, CLIENT_WORDS, (clients, ROWS, SEGMENT)).to(device)
        return Examples(ids, ids, present.to(device))
    shape, count, _ = SETTINGS[model]
    pixels = torch.randint(0, 256, (clients, count, *shape), dtype=torch.uint8)
    labels = torch.randint(0, CLASSES, (clients, count))
    present = torch.arange(CLASSES).expand(clients, CLASSES)
    return Examples(pixels.to(device), labels.to(device), present.to(device))


@dataclasses.dataclass(frozen=True)
class Order:
    """The examples of every step of a round.

    Attributes:
        rows: [clients, steps, BATCH], or [clients, steps, 1] for text
        masked: positions of text that are hidden from the network, bool [clients, steps, SEGMENT]
    """

    rows: torch.Tensor
    masked: torch.Tensor


def random_order(model, examples, steps):
    """A new order of images per epoch, or consecutive rows of words."""
    clients, count = examples.labels.shape[:2]
    device = examples.labels.device
    masked = torch.rand(clients, steps, SEGMENT, device=device) < MASKED
    if model == TEXT:
        return Order((torch.arange(steps, device=device) % count).expand(clients, steps)[..., None], masked)
    epochs = -(-steps * BATCH // count)
    orders = torch.rand(clients, epochs, count, device=device).argsort(-1)
    return Order(orders.flatten(1)[:, : steps * BATCH].view(clients, steps, BATCH), masked)


def sgd(network, rate):
    """The optimizer of a client of the authors' code."""
    return torch.optim.SGD(network.parameters(), rate, momentum=0.9, weight_decay=5e-4)


def masked_step(network, optimizer, inputs, targets, absent):
    """A local step with the logits of absent labels at 0, and clipping to norm 1; returns the loss."""
    optimizer.zero_grad()
    logits = network(inputs).masked_fill(absent, 0)
    loss = nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimizer.step()
    return loss


def normalised(pixels):
    """uint8 pixels as numbers of about zero mean and unit deviation."""
    return (pixels.to(torch.get_default_dtype()) / 255 - 0.1307) / 0.3081
