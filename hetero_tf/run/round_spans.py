"""The clients of a round on the clock of the fleet, as `timeline.jsonl` stores them."""

from hetero_tf.planning.timing import RoundTiming
from hetero_tf.recipe.schema import Recipe
from hetero_tf.runs.metrics_file import MOST_CLIENTS, ClientSpan, RoundSpan


def round_span(recipe: Recipe, round: int, began: float, timing: RoundTiming) -> RoundSpan:
    """Return the span of a round.

    Args:
        round: Its number from 1.
        began: Seconds of device time at its start.
    """
    assert recipe.fleet is not None
    devices, levels, times = list(recipe.fleet.devices), recipe.levels.names, timing.times
    starts = began + timing.start_seconds
    columns = (timing.clients, timing.kinds, timing.levels, starts, times.download, times.compute, times.upload)
    clients = [
        ClientSpan(
            client=int(client),
            # In a trace each client has a row of its own.
            device=devices[kind] if devices else f"row {kind + 1}",
            level=levels[level],
            start=float(start),
            download=float(download),
            compute=float(compute),
            upload=float(upload),
            status=status,
        )
        for client, kind, level, start, download, compute, upload, status in zip(*columns, timing.statuses)
    ]
    return RoundSpan(round, began, began + timing.seconds, clients[:MOST_CLIENTS])
