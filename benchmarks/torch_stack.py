"""Local steps of several clients side by side in one PyTorch network, computed as fast as PyTorch allows.

`stack` turns networks of one shape into one with grouped convolutions and batched products. A Scaler becomes a factor
of the layer before or after it. Gradients are clipped per client, SGD is fused, no step waits for a value, and text has
rows and logits of a client's own words only. A stack of one client is the loop without stacking.
"""

import copy
import math

import torch
import torch_networks
from torch import nn
from torch.nn import functional
from torch_networks import CLIENT_WORDS, TEXT, WORDS


class StackedLinear(nn.Module):
    """Dense layers of several clients: [clients, rows, before] -> [clients, rows, after], divided by `scale`."""

    def __init__(self, layers, scale=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))
        self.factor = 1 / scale

    def forward(self, inputs):
        """The products of each client."""
        weight, bias = self.weight.transpose(1, 2), self.bias[:, None]
        return torch.baddbmm(bias, inputs, weight, beta=self.factor, alpha=self.factor)


class StackedEmbedding(nn.Module):
    """Tables of several clients: ids [clients, positions] -> [clients, positions, width]."""

    def __init__(self, tables):
        super().__init__()
        self.weight = nn.Parameter(torch.stack([table.weight.detach() for table in tables]))
        self.register_buffer("offsets", torch.arange(len(tables))[:, None] * self.weight.shape[1])

    def forward(self, ids):
        """The rows of each client's table."""
        return functional.embedding(ids + self.offsets, self.weight.flatten(0, 1))


class StackedLayerNorm(nn.Module):
    """Layer norms of several clients: [clients, positions, width], the same."""

    def __init__(self, norms):
        super().__init__()
        self.weight = nn.Parameter(torch.stack([norm.weight.detach()[None] for norm in norms]))
        self.bias = nn.Parameter(torch.stack([norm.bias.detach()[None] for norm in norms]))
        self.eps = norms[0].eps

    def forward(self, inputs):
        """Normalise the last axis."""
        return torch.addcmul(self.bias, functional.layer_norm(inputs, inputs.shape[-1:], eps=self.eps), self.weight)


class ClientFeatures(nn.Module):
    """Features of all clients [batch, clients x width, 1, 1] -> [clients, batch, width]."""

    def __init__(self, clients):
        super().__init__()
        self.clients = clients

    def forward(self, inputs):
        """Move the clients to the first axis."""
        return inputs.flatten(1).unflatten(1, (self.clients, -1)).transpose(0, 1)


def _stacked_convolution(layers):
    first, clients = layers[0], len(layers)
    channels = (clients * first.in_channels, clients * first.out_channels)
    options = {"stride": first.stride, "padding": first.padding, "bias": first.bias is not None}
    return _with_values(nn.Conv2d(*channels, first.kernel_size, groups=clients, **options), layers)


def _stacked_activation(layers):
    scaler, norm, _ = layers[0]
    # norm(x / scale) is norm(x) with a larger epsilon.
    options = {"eps": norm.eps * scaler.scale**2, "track_running_stats": False}
    stacked = nn.BatchNorm2d(len(layers) * norm.num_features, **options)
    return nn.Sequential(_with_values(stacked, [layer[1] for layer in layers]), nn.ReLU(inplace=True))


def _with_values(stacked, layers):
    """The stacked layer with the values of all layers, one after the other."""
    values = zip(*(layer.parameters() for layer in layers))
    with torch.no_grad():
        for parameter, parts in zip(stacked.parameters(), values):
            parameter.copy_(torch.cat(parts))
    return stacked


_STACKED_LAYERS = {
    nn.Conv2d: _stacked_convolution,
    torch_networks.Activation: _stacked_activation,
    nn.Flatten: lambda layers: ClientFeatures(len(layers)),
    nn.Linear: StackedLinear,
    torch_networks.ScaledLinear: lambda layers: StackedLinear([layer[0] for layer in layers], layers[0][1].scale),
    nn.Embedding: StackedEmbedding,
    nn.LayerNorm: StackedLayerNorm,
}


def stack(networks):
    """One network that computes several of the same shape, each with its own values and inputs.

    Each parameter has the clients' values one after the other along its first axis, in the order of the networks.
    """
    first = networks[0]
    if type(first) in _STACKED_LAYERS:
        return _STACKED_LAYERS[type(first)](networks)
    stacked = copy.deepcopy(first)
    for name, _ in first.named_children():
        setattr(stacked, name, stack([getattr(network, name) for network in networks]))
    return stacked


def cut_to_words(network, words):
    """A copy of a network of text with the rows of some words: of its table (and the mask's) and of its logits."""
    cut = copy.deepcopy(network)
    table, dense = cut.words, cut.head[-1]
    rows = torch.cat([words, words.new_tensor([WORDS])])
    for layer, name, ids in ((table, "weight", rows), (dense, "weight", words), (dense, "bias", words)):
        setattr(layer, name, nn.Parameter(getattr(layer, name).detach()[ids]))
    return cut


def client_networks(model, network, examples, clients):
    """The networks of some clients, before training."""
    if model != TEXT:
        return [network] * len(clients)
    return [cut_to_words(network, examples.present[client]) for client in clients]


class StackTrainer:
    """Trains stacks of equally many clients, one stack after the other.

    On a GPU all steps after the first replay a CUDA graph, so every array of a step stays where it is.
    """

    def __init__(self, model, network, examples, size, channels_last=True, compiled=False):
        self.model, self.examples, self.size = model, examples, size
        network = network.to(memory_format=torch.channels_last) if channels_last else network
        self.layout = torch.channels_last if channels_last else torch.contiguous_format
        self.parameters = list(network.parameters())
        self.network = torch.compile(network.train()) if compiled else network.train()
        rate = torch_networks.learning_rate(model)
        self.optimizer = torch.optim.SGD(self.parameters, rate, momentum=0.9, weight_decay=5e-4, fused=True)
        device = examples.labels.device
        self.clients = torch.zeros(size, dtype=torch.long, device=device)
        self.step_index = torch.zeros(1, dtype=torch.long, device=device)
        self.losses = torch.zeros(size, device=device)
        self.order = self.replay = None

    def train(self, clients, values, order):
        """Train the clients of a stack.

        Args:
            clients: their indices
            values: initial values of the parameters, with the clients along the first axis
            order: the examples of all clients

        Returns:
            The sum of each client's losses, [clients].
        """
        clients = torch.tensor(clients, device=self.clients.device)
        order = torch_networks.Order(order.rows[clients], order.masked[clients])
        steps = order.rows.shape[1]
        self._start(clients, values, order)
        step = self._step
        if self.clients.is_cuda:
            self.replay = step = self.replay or self._captured_step()
            self._start(clients, values, order)
        for _ in range(steps):
            step()
        return self.losses.clone()

    @torch.no_grad()
    def _start(self, clients, values, order):
        """Copy the inputs of a stack into the arrays of the steps."""
        self.order = self.order or order
        self.clients.copy_(clients)
        self.order.rows.copy_(order.rows)
        self.order.masked.copy_(order.masked)
        for parameter, value in zip(self.parameters, values):
            parameter.copy_(value)
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()
        self.step_index.zero_()
        self.losses.zero_()

    def _captured_step(self):
        """A function that replays one step as a CUDA graph."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._step()
                self.step_index.zero_()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad()
        with torch.cuda.graph(graph):
            self._step()
        return graph.replay

    def _step(self):
        self.optimizer.zero_grad()
        losses = self._text_losses() if self.model == TEXT else self._image_losses()
        losses.sum().backward()
        clip_clients([parameter.grad for parameter in self.parameters], self.size)
        self.optimizer.step()
        self.losses += losses.detach()
        self.step_index += 1

    def _image_losses(self):
        """The mean loss of each client over its batch, [clients]."""
        rows = self.order.rows.index_select(1, self.step_index)[:, 0]
        pixels = self.examples.inputs[self.clients, rows.T].flatten(1, 2)
        labels = self.examples.labels[self.clients[:, None], rows]
        logits = self.network(torch_networks.normalised(pixels).contiguous(memory_format=self.layout))
        return self._mean_losses(logits, labels)

    def _text_losses(self):
        """The mean loss of each client over its words, [clients]."""
        row = self.order.rows.index_select(1, self.step_index)[:, 0, 0]
        masked = self.order.masked.index_select(1, self.step_index)[:, 0]
        words = self.examples.inputs[self.clients, row]
        logits = self.network(words.masked_fill(masked, CLIENT_WORDS))
        # All absent words have the logit 0: together they are one more word with this logit.
        logits = functional.pad(logits, (0, 1), value=math.log(WORDS - CLIENT_WORDS))
        return self._mean_losses(logits, words)

    def _mean_losses(self, logits, targets):
        losses = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        return losses.view(self.size, -1).mean(1)


def clip_clients(gradients, clients):
    """Clip the gradients of each client to norm 1, in place."""
    parts = [gradient.unflatten(0, (clients, -1)) for gradient in gradients]
    norms = [torch.linalg.vector_norm(part, dim=tuple(range(1, part.ndim))) for part in parts]
    factors = (1 / (torch.linalg.vector_norm(torch.stack(norms), dim=0) + 1e-6)).clamp(max=1)
    for part in parts:
        part.mul_(factors.view(-1, *[1] * (part.ndim - 1)))
