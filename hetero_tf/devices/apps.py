"""What Flower runs: the server's side of a run, and a device's answer to one message."""

import contextlib
import sys
from pathlib import Path

from flwr.app import Context
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from hetero_tf.base import files
from hetero_tf.base.console import Console
from hetero_tf.base.errors import UserError
from hetero_tf.devices import job
from hetero_tf.devices.grid import FlowerFleet, from_records, to_records
from hetero_tf.devices.machine import client_of, prepared_recipe
from hetero_tf.store import plain_json

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Trains the recipe of this process' job, and writes how it ended for `launch`."""
    here = job.current()
    with open(here.console, "a", encoding="utf-8", buffering=1) as stream:
        try:
            outcome = {"summary": _train(here, grid, Console(stream))}
        except UserError as refusal:
            outcome = {"refusal": str(refusal), "code": refusal.code}
        except Exception as error:
            outcome = {"refusal": f"{type(error).__name__}: {error}; see {here.work}", "code": 1}
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            _write_outcome(here, outcome)
            raise
    _write_outcome(here, outcome)


def _write_outcome(here, outcome):
    # In one step: the launcher reads the file as soon as it exists.
    files.write_atomic(here.outcome, plain_json.dump(outcome, "the outcome"))


def _train(here, grid, console):
    from hetero_tf.base import hardware

    recipe = prepared_recipe(here)
    hardware.import_quietly()
    hardware.prepare(here.threads)
    from hetero_tf.devices.deployed import Selection, deployed
    from hetero_tf.run import experiment

    @contextlib.contextmanager
    def on_fleet(build, console, live):
        numbers = {int(node): number for node, number in here.clients.items()}
        selection = Selection(here.over_selection, here.quorum, here.max_examples)
        quorum = selection.quorum_size(recipe.round.clients)
        with experiment.simulated(build, console, live) as process:
            fleet = FlowerFleet(
                *(grid, process.recipe, process.dataset.classes, numbers),
                *(here.patience, console.say, here.deadline, quorum),
            )
            yield deployed(process, fleet, selection)

    data_dir = None if here.data_dir is None else Path(here.data_dir)
    assert here.run_dir is not None
    settings = experiment.Settings(Path(here.run_dir), data_dir, here.threads, here.allow_other_machine, here.command)
    return experiment.train(recipe, settings, console, on_fleet)


def _answer(action, message):
    answer = client_of(job.current()).answer(action, from_records(message.content))
    return FlowerMessage(to_records(answer), reply_to=message)


@client.query()
def introduce(message: FlowerMessage, context: Context) -> FlowerMessage:
    """Says who this device is."""
    return _answer("introduction", message)


@client.train()
def train(message: FlowerMessage, context: Context) -> FlowerMessage:
    """Takes the local steps of a round."""
    return _answer("training", message)


@client.query("statistics")
def measure(message: FlowerMessage, context: Context) -> FlowerMessage:
    """Measures the statistics of batch normalisation."""
    return _answer("statistics", message)
