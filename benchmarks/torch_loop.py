#!/usr/bin/env python3
"""Times the same local steps in PyTorch, to compare with round.py.

    benchmarks/torch_loop.py --model mnist --levels e --way stack --procs 2 [--steps 300] [--repeats 3] [--json]
    benchmarks/torch_loop.py --model cifar10 --levels e --way stack --device cuda
    benchmarks/torch_loop.py --model wikitext2 --levels e --check

Ways: `authors` trains one client after the other as in the authors' code, with all logits, and reads each loss; `loop`
does the same in a better way, and `stack` trains all clients of a process and level side by side (see torch_stack.py).
`--check` compares the results of all ways in place of their times.

The networks, widths, batches, loss and SGD are those of the recipes mnist, cifar10 and wikitext2: batch norm without
running averages, Scaler, absent labels as logit 0, clipping to norm 1, momentum, weight decay. Denormal numbers are
flushed to zero, as TensorFlow does; otherwise PyTorch can be several times slower. Examples are random pixels, or
words, with the number of different words per client of WikiText-2, because only time is measured. Cutting sub-models,
merging and augmentation are excluded. Times are medians of full rounds on a quiet machine.

hetero_tf does not require PyTorch. Install it in a separate environment.
"""

import argparse
import copy
import functools
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hetero_tf.base import hardware  # noqa: E402

try:
    import torch
except ImportError:
    print(
        "torch_loop.py needs PyTorch, which is not installed; install it in a separate environment: "
        "python3 -m venv torch_env && torch_env/bin/pip install torch numpy, then "
        "torch_env/bin/python benchmarks/torch_loop.py",
        file=sys.stderr,
    )
    sys.exit(2)

import torch_networks  # noqa: E402
import torch_stack  # noqa: E402
from torch import multiprocessing, nn  # noqa: E402
from torch_networks import BATCH, MODELS, SEGMENT, TEXT, WIDTHS, WORDS  # noqa: E402

WAYS = ("authors", "loop", "stack")
# Number type, steps, and largest relative difference of a check. A step of the Transformer multiplies rounding by 1e4.
CHECKS = ((torch.float64, 2, 1e-8), (torch.float32, 1, 1e-3))


def batches(model, examples, client, order):
    """Inputs and targets of each step of a client."""
    for rows, masked in zip(order.rows[client], order.masked[client]):
        if model == TEXT:
            words = examples.present[client][examples.inputs[client, rows]]
            yield words.masked_fill(masked, WORDS), words
        else:
            yield torch_networks.normalised(examples.inputs[client, rows]), examples.labels[client, rows]


def train_like_authors(model, network, examples, client, order):
    """Trains a copy of the network on one client; returns it and the sum of its losses."""
    network = copy.deepcopy(network).train()
    optimizer = torch_networks.sgd(network, torch_networks.learning_rate(model))
    absent = torch.ones(WORDS if model == TEXT else torch_networks.CLASSES, dtype=torch.bool)
    absent = absent.to(examples.labels.device).index_fill(0, examples.present[client], False)
    total = 0.0
    for inputs, targets in batches(model, examples, client, order):
        total += torch_networks.masked_step(network, optimizer, inputs, targets, absent).item()
    return network, total


def stack_values(model, network, examples, clients):
    """The stacked network of some clients, and its initial values."""
    stacked = torch_stack.stack(torch_stack.client_networks(model, network, examples, clients))
    stacked = stacked.to(examples.labels.device)
    return stacked, [parameter.detach().clone() for parameter in stacked.parameters()]


def new_round(args, examples, clients_by_level):
    """A function that trains all clients of this process; returns the sum of their losses.

    Args:
        clients_by_level: the indices of the clients, by level
    """
    networks = {
        level: torch_networks.new_network(args.model, WIDTHS[level]).to(args.device) for level in clients_by_level
    }
    if args.way == "authors":
        pairs = [(networks[level], client) for level, clients in clients_by_level.items() for client in clients]
        return lambda order: sum(train_like_authors(args.model, net, examples, one, order)[1] for net, one in pairs)
    stacks = []
    for level, clients in clients_by_level.items():
        groups = [clients] if args.way == "stack" else [[client] for client in clients]
        stacked = [(group, *stack_values(args.model, networks[level], examples, group)) for group in groups]
        options = {"channels_last": not args.contiguous, "compiled": args.compile}
        trainer = torch_stack.StackTrainer(args.model, stacked[0][1], examples, len(groups[0]), **options)
        stacks += [(trainer, group, values) for group, _, values in stacked]
    return lambda order: sum(trainer.train(group, values, order).sum() for trainer, group, values in stacks)


def timed(args, work):
    """Seconds of `work()`, until its last kernel ends."""
    synchronize = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    synchronize()
    began = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - began


def peak_flops(args, size=2048, repeats=5):
    """Float32 operations per second of a matrix product, the best of some runs."""
    value = torch.randn(size, size, device=args.device)
    return 2 * size**3 / min(timed(args, lambda: value @ value) for _ in range(repeats))


def run_and_wait(barrier, play_round, order):
    """Runs a round until the last process ends."""
    play_round(order)
    barrier.wait()


def set_up(args):
    """Settings of a process."""
    torch.set_num_threads(max(1, args.threads // args.procs))
    torch.set_flush_denormal(True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
    torch.backends.cudnn.benchmark = True


def measure_process(rank, args, barrier, results):
    """Runs the rounds of one process; puts its rank, their seconds, processor seconds of one, and the peak there."""
    set_up(args)
    torch.manual_seed(rank)
    levels = args.levels.split("-")
    clients = sorted(range(args.clients), key=lambda client: levels[client % len(levels)])[rank :: args.procs]
    clients_by_level = {}
    for index, client in enumerate(clients):
        clients_by_level.setdefault(levels[client % len(levels)], []).append(index)
    examples = torch_networks.random_examples(args.model, len(clients), args.device)
    play_round = new_round(args, examples, clients_by_level)
    seconds, core_seconds = [], []
    for _ in range(args.repeats + 1):
        order = torch_networks.random_order(args.model, examples, args.steps)
        barrier.wait()
        began = time.process_time()
        seconds.append(timed(args, functools.partial(run_and_wait, barrier, play_round, order)))
        core_seconds.append(time.process_time() - began)
    results.put((rank, seconds, statistics.median(core_seconds[1:]), peak_flops(args)))


def measure(args):
    """All printed values, as a dict."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(args.procs), context.SimpleQueue()
    multiprocessing.spawn(measure_process, (args, barrier, results), args.procs)
    _, seconds, core_seconds, peaks = zip(*sorted(results.get() for _ in range(args.procs)))
    first, *later = seconds[0]
    seconds, steps = statistics.median(later), args.clients * args.steps
    return {
        "model": args.model,
        "levels": args.levels,
        "way": args.way,
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "procs": args.procs,
        "threads": args.threads,
        "clients": args.clients,
        "steps": steps,
        "first_round_s": first,
        "round_s": seconds,
        "ms_per_step": 1000 * seconds / steps,
        "core_ms_per_step": 1000 * sum(core_seconds) / steps,
        "examples_per_s": steps * (SEGMENT if args.model == TEXT else BATCH) / seconds,
        "peak_gflops": sum(peaks) / 1e9,
    }


def check(args):
    """The largest relative differences of losses and weights between each way and the authors', by number type."""
    set_up(args)
    differences, allowed = {}, True
    for dtype, steps, tolerance in CHECKS:
        torch.set_default_dtype(dtype)
        torch.manual_seed(0)
        examples = torch_networks.random_examples(args.model, args.clients, args.device)
        order = torch_networks.random_order(args.model, examples, steps)
        network = torch_networks.new_network(args.model, WIDTHS[args.levels]).to(args.device)
        for layer in network.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
        clients = list(range(args.clients))
        pairs = [train_like_authors(args.model, network, examples, client, order) for client in clients]
        expected, losses = zip(*pairs)
        if args.model == TEXT:
            expected = [torch_stack.cut_to_words(one, words) for one, words in zip(expected, examples.present)]
        for groups in (clients,), [[client] for client in clients]:
            name = f"{'stack' if len(groups) == 1 else 'loop'}, {str(dtype).removeprefix('torch.')}"
            differences[name] = max(
                _difference(args, network, examples, group, order, expected, losses) for group in groups
            )
            allowed &= differences[name] < tolerance
    return differences, allowed


def _difference(args, network, examples, group, order, expected, losses):
    """The largest relative difference of a stack from the trained networks and the losses of its clients."""
    stacked, values = stack_values(args.model, network, examples, group)
    trainer = torch_stack.StackTrainer(args.model, stacked, examples, len(group), not args.contiguous, args.compile)
    pairs = list(zip(trainer.train(group, values, order), (torch.tensor(losses[client]) for client in group)))
    for position, client in enumerate(group):
        for stacked_value, value in zip(trainer.parameters, expected[client].parameters()):
            pairs.append((stacked_value.detach().chunk(len(group))[position].reshape(value.shape), value.detach()))
    return max(float((one.cpu() - other.cpu()).norm() / other.cpu().norm()) for one, other in pairs)


def parse():
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="mnist")
    parser.add_argument("--levels", default="a", help="a, e, a-e, a-b-c-d-e...: levels in turn")
    parser.add_argument("--way", choices=WAYS, default="authors")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--clients", type=int, default=10, help="clients of a round")
    parser.add_argument("--steps", type=int, default=300, help="steps of each client")
    parser.add_argument("--repeats", type=int, default=3, help="timed rounds after the first")
    parser.add_argument("--procs", type=int, default=1, help="processes that share the clients")
    parser.add_argument("--threads", type=int, default=hardware.core_count(), help="threads of all processes")
    parser.add_argument("--contiguous", action="store_true", help="channels first instead of channels_last")
    parser.add_argument("--compile", action="store_true", help="torch.compile the networks of loop and stack")
    parser.add_argument("--tf32", action="store_true", help="TF32 on a GPU (default: float32)")
    parser.add_argument("--check", action="store_true", help="compare losses and weights of all ways at one level")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    args = parser.parse_args()
    for name in ("clients", "steps", "repeats", "procs", "threads"):
        if getattr(args, name) < 1:
            parser.error(f"`--{name}` must be at least 1. Received: {name}={getattr(args, name)}")
    if args.procs > args.clients:
        parser.error(f"`--procs` must be at most `--clients`. Received: procs={args.procs}, clients={args.clients}")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("`--device cuda` needs a GPU, and a PyTorch that supports it. Received: device=cuda")
    if args.device == "cuda" and args.procs > 1:
        parser.error(f"`--procs` must be 1 on a GPU. Received: procs={args.procs}")
    if not set(args.levels.split("-")) <= set(WIDTHS):
        parser.error(f"`--levels` must name levels of {', '.join(WIDTHS)}. Received: levels={args.levels}")
    if args.check and "-" in args.levels:
        parser.error(f"`--check` compares one level. Received: levels={args.levels}")
    return args


def main():
    """Measures and prints; returns the exit status."""
    args = parse()
    result, passed = check(args) if args.check else (measure(args), True)
    if args.json:
        print(json.dumps(result))
    else:
        digits = ",.3g" if args.check else ",.3f"
        for name, value in result.items():
            print(f"{name:18} {value if not isinstance(value, float) else format(value, digits)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
