#!/usr/bin/env python3
"""Times rounds of Flower's simulation on the CNN of the recipe mnist, to compare with the rounds of a run.

    benchmarks/flower_rounds.py --level d [--rounds 8] [--json]

A round trains 10 of 100 clients for one epoch of 60 batches, with FedAvg, in the widths, loss and SGD of the recipe.
Flower runs a client at a time on each core. A client trains with PyTorch like `torch_loop.py --way loop`, and its
process reuses the network and the optimizer. Examples are random pixels, because only time is measured. The first
round, which starts the processes, is not in the median.

hetero_tf does not require Flower or PyTorch. Install them in a separate environment.
"""

import argparse
import json
import logging
import os
import statistics
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
from flwr.app import ArrayRecord  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from torch_networks import WIDTHS  # noqa: E402

CLIENTS = 100


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=WIDTHS, default="d")
    parser.add_argument("--rounds", type=int, default=8, help="timed rounds after the first")
    parser.add_argument("--clients", type=int, default=10, help="clients of a round")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"`--rounds` must be at least 1. Received: rounds={args.rounds}")
    if not 2 <= args.clients <= CLIENTS:
        parser.error(f"`--clients` must be 2 to {CLIENTS}. Received: clients={args.clients}")
    return args


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
    args = parse()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    seconds, losses = run_rounds(args)
    if len(losses) != args.rounds + 1:
        print(f"flower_rounds.py: {len(losses)} of {args.rounds + 1} rounds trained, see above", file=sys.stderr)
        return 1
    result = {
        "level": args.level,
        "flwr": flwr.__version__,
        "ray": ray.__version__,
        "torch": torch.__version__,
        "cores": hardware.core_count(),
        "first_round_s": seconds[0],
        "round_s": statistics.median(seconds[1:]),
        "loss": losses[-1],
    }
    if args.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:16} {format(value, ',.3f') if isinstance(value, float) else value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
