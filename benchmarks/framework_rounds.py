"""Arguments and output of the benchmarks that time rounds of other frameworks on the CNN of the recipe mnist."""

import argparse
import json
import statistics

from hetero_tf.base import hardware

WIDTHS = {"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.125, "e": 0.0625}
CLIENTS, EXAMPLES = 100, 600


def new_parser(description):
    """A parser of the arguments that all of them have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=WIDTHS, default="d")
    parser.add_argument("--rounds", type=int, default=8, help="timed rounds after the first")
    parser.add_argument("--clients", type=int, default=10, help="clients of a round")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    return parser


def parse(parser, least_clients):
    """The arguments of the command line."""
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"`--rounds` must be at least 1. Received: rounds={args.rounds}")
    if not least_clients <= args.clients <= CLIENTS:
        parser.error(f"`--clients` must be {least_clients} to {CLIENTS}. Received: clients={args.clients}")
    return args


def show(args, seconds, **facts):
    """Prints the seconds of the first round, the median of the later ones, and other facts of a run."""
    first, *later = seconds
    result = {"level": args.level, "cores": hardware.core_count(), **facts}
    result |= {"first_round_s": first, "round_s": statistics.median(later)}
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:16} {format(value, ',.3f') if isinstance(value, float) else value}")
