#!/usr/bin/env python3
"""Times rounds of Flower's simulation on the CNN of the recipe mnist, to compare with the rounds of a run.

    benchmarks/flower_rounds.py --level d [--rounds 8] [--json]

A round trains 10 of 100 clients for one epoch of 60 batches, with FedAvg, in the widths, loss and SGD of the recipe.
Flower runs a client at a time on each core. A client trains with PyTorch like `torch_loop.py --way loop`, and its
process reuses the network and the optimizer. Examples are random pixels, because only time is measured. The first
round, which starts the processes, is not in the median.

hetero_tf does not require Flower or PyTorch. Install them in a separate environment.
"""

import logging
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hetero_tf.base import hardware  # noqa: E402

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

try:
    import flwr
    import ray
    import torch
except ImportError:
    print(
        "flower_rounds.py needs Flower, Ray and PyTorch; install them in a separate environment: python3 -m venv "
        "torch_env && torch_env/bin/pip install torch numpy 'flwr[simulation]', then torch_env/bin/python "
        "benchmarks/flower_rounds.py",
        file=sys.stderr,
    )
    sys.exit(2)

import flower_client  # noqa: E402
import framework_rounds  # noqa: E402
from flwr.app import ArrayRecord  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from framework_rounds import CLIENTS, WIDTHS  # noqa: E402


def run_rounds(args):
    """The seconds of each round and the clients' mean loss in it, both from the first round on."""
    times, losses, server = [], [], ServerApp()

    @server.main()
    def serve(grid, context):
        del context
        strategy = FedAvg(fraction_train=args.clients / CLIENTS, fraction_evaluate=0.0, min_available_nodes=CLIENTS)
        result = strategy.start(
            grid,
            ArrayRecord(flower_client.initial_values(WIDTHS[args.level])),
            args.rounds + 1,
            # Flower calls this before the first round and after each one.
            evaluate_fn=lambda number, arrays: times.append(time.perf_counter()),
        )
        losses.extend(metrics["loss"] for metrics in result.train_metrics_clientapp.values())

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": hardware.core_count()}}
    run_simulation(server, flower_client.new_client(WIDTHS[args.level]), CLIENTS, backend_config=resources)
    return [after - before for before, after in zip(times, times[1:])], losses


def main():
    """Measures and prints; returns the exit status."""
    args = framework_rounds.parse(framework_rounds.new_parser(__doc__), 2)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    seconds, losses = run_rounds(args)
    if len(losses) != args.rounds + 1:
        print(f"flower_rounds.py: {len(losses)} of {args.rounds + 1} rounds trained, see above", file=sys.stderr)
        return 1
    versions = {module.__name__: module.__version__ for module in (flwr, ray, torch)}
    framework_rounds.show(args, seconds, loss=losses[-1], **versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
