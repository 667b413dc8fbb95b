"""The client of flower_rounds.py. It is a separate module because Flower's processes import it."""

import functools

import torch
import torch_networks
import torch_stack
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from framework_rounds import EXAMPLES

MODEL = "mnist"


@functools.cache
def new_trainer(width):
    """The trainer of a process at a relative width, and random examples of one client."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    examples = torch_networks.random_examples(MODEL, 1, "cpu")
    network = torch_networks.image_network(MODEL, width)
    stacked = torch_stack.stack(torch_stack.client_networks(MODEL, network, examples, [0]))
    return torch_stack.StackTrainer(MODEL, stacked, examples, 1), examples


def initial_values(width):
    """The values of the network, by index."""
    trainer, _ = new_trainer(width)
    return {str(index): value.detach().clone() for index, value in enumerate(trainer.parameters)}


def train(width, message, context):
    """Trains the received values for one epoch, and returns the new ones."""
    del context
    trainer, examples = new_trainer(width)
    received = message.content["arrays"].to_torch_state_dict()
    order = torch_networks.random_order(MODEL, examples, EXAMPLES // torch_networks.BATCH)
    losses = trainer.train([0], list(received.values()), order)
    values = {name: parameter.detach() for name, parameter in zip(received, trainer.parameters)}
    metrics = {"num-examples": EXAMPLES, "loss": float(losses.mean()) / order.rows.shape[1]}
    return Message(
        content=RecordDict({"arrays": ArrayRecord(values), "metrics": MetricRecord(metrics)}), reply_to=message
    )


def new_client(width):
    """The client of a relative width."""
    client = ClientApp()
    client.train()(functools.partial(train, width))
    return client
