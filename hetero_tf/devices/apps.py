"""The apps that Flower runs: the training on the server, and the response of a device to one message."""

import contextlib
import dataclasses
import sys
from pathlib import Path

from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from hetero_tf.base import files
from hetero_tf.base.console import Console
from hetero_tf.base.errors import UserError
from hetero_tf.devices import job, transfers
from hetero_tf.devices.grid import FlowerNetwork, from_records, to_records
from hetero_tf.devices.machine import build_device, prepare_recipe
from hetero_tf.devices.waiting import Waiting, WaitingFleet
from hetero_tf.runs import plain_json
from hetero_tf.runs.run_folder import RunFolder

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train the recipe of this process' job and write the outcome for `processes.serve`."""
    current_job = job.current()
    with open(current_job.console, "a", encoding="utf-8", buffering=1) as stream:
        try:
            outcome = {"summary": _train(current_job, grid, Console(stream))}
        except UserError as refusal:
            outcome = {"refusal": str(refusal), "code": refusal.code}
        except Exception as error:
            outcome = {"refusal": f"{type(error).__name__}: {error}; see {current_job.work}", "code": 1}
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            _write_outcome(current_job, outcome)
            raise
    _write_outcome(current_job, outcome)


def _write_outcome(current_job, outcome):
    # Atomically: `processes` reads the file as soon as it exists.
    files.write_atomic(current_job.outcome, plain_json.dump(outcome, "the outcome"))


def _train(current_job, grid, console):
    from hetero_tf.base import hardware

    recipe = prepare_recipe(current_job)
    hardware.import_quietly()
    hardware.configure_threads(current_job.threads)
    from hetero_tf.devices.device_rounds import Selection, deployed
    from hetero_tf.run import experiment

    assert current_job.run_dir is not None
    folder = RunFolder(Path(current_job.run_dir))

    @contextlib.contextmanager
    def on_fleet(build, console, display):
        numbers = {int(node): number for node, number in current_job.clients.items()}
        selection = Selection(current_job.over_selection, current_job.quorum, current_job.max_examples)
        patience, deadline = current_job.patience, current_job.deadline
        waiting = Waiting(
            patience if deadline is None else deadline, patience, selection.quorum_size(recipe.round.clients)
        )
        with experiment.simulated(build, console, display) as process:
            network, classes = FlowerNetwork(grid, console.say), process.family.classes
            fleet = WaitingFleet(network, process.recipe, classes, numbers, waiting, console.say)
            yield deployed(process, fleet, selection, folder.fleet)

    data_dir = None if current_job.data_dir is None else Path(current_job.data_dir)
    settings = experiment.Settings(
        folder.path, data_dir, current_job.threads, current_job.allow_other_machine, current_job.command
    )
    return experiment.train(recipe, settings, console, on_fleet)


def _respond(action, message):
    current_job = job.current()
    response = build_device(current_job).respond(action, from_records(message.content))
    if action == "training":
        metadata = {**response.metadata, **transfers.read(current_job.transfers)}
        response = dataclasses.replace(response, metadata=metadata)
    return FlowerMessage(to_records(response), reply_to=message)


@client.query()
def introduce(message: FlowerMessage, context: Context) -> FlowerMessage:
    """Introduce this device."""
    return _respond("introduction", message)


@client.train()
def train(message: FlowerMessage, context: Context) -> FlowerMessage:
    """Take the local steps of a round."""
    return _respond("training", message)


@client.query("statistics")
def measure(message: FlowerMessage, context: Context) -> FlowerMessage:
    """Measure the statistics of batch normalisation."""
    return _respond("statistics", message)
