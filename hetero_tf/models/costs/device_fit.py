"""Work of a client at each level, and levels of clients by the memory and the speed of their devices."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from hetero_tf.base.units import MIB
from hetero_tf.models.costs.cost_report import level_costs
from hetero_tf.models.costs.level_costs import LevelCosts, client_costs
from hetero_tf.models.costs.memory import estimate
from hetero_tf.planning.fleets.devices import ClientTimes, Devices, client_times, devices_of, local_steps
from hetero_tf.recipe.nodes import InvalidValue
from hetero_tf.recipe.schema import Fleet, Recipe


@dataclass(frozen=True)
class LevelWork:
    """Work of a client of one level in a round.

    Attributes:
        memory: Bytes of training: weights, gradients, optimizer and activations of a batch; of the largest stage.
        flops: Operations of training on one example in all epochs and stages.
        passes: Number of passes over the examples in all epochs and stages.
        starts: Local steps for each batch; more than 1 for segments of text.
        bytes_down, bytes_up: Values received and sent.
    """

    memory: float
    flops: float
    passes: int
    batch_size: int
    starts: int
    bytes_down: float
    bytes_up: float

    def times(self, devices: Devices, examples: np.ndarray) -> ClientTimes:
        """Return the times of n clients of this level.

        Args:
            examples: int [n], number of examples of each client.
        """
        steps = local_steps(examples, self.batch_size, self.passes, self.starts)
        sizes = (np.full(len(examples), float(size)) for size in (self.bytes_down, self.bytes_up))
        return client_times(devices, steps, self.flops * self.starts * examples, *sizes)


def level_work(costs: LevelCosts, labels: np.ndarray, batch: int, starts: int) -> dict[str, LevelWork]:
    """Return the work of a client of each level of the mix.

    Args:
        labels: int [clients], number of labels of each client.
        batch: Maximum examples of a local step.
        starts: Local steps for each batch of examples.
    """
    family, recipe, work = costs.family, costs.family.recipe, {}
    memory_by_level = level_costs(family, recipe.levels.names, costs.example, labels, batch)
    for (name, cost), client in zip(memory_by_level.items(), client_costs(costs, labels), strict=True):
        flops, networks = client.train_flops, recipe.levels.networks_of(name)
        stages = 1 if family.drawn else len(flops)
        memory = float(networks * cost.memory.total)
        if stages > 1:
            units = costs.units(name, recipe.levels.widths[name]).values()
            memory = cost.memory.total * estimate(costs, name) / sum(unit.by(recipe.levels.measure) for unit in units)
        epochs = recipe.client.epochs_of(name)
        work[name] = LevelWork(
            memory=memory,
            flops=epochs * networks * sum(flops) * stages / len(flops),
            passes=epochs * networks * stages,
            batch_size=recipe.client.batch_size,
            starts=starts,
            bytes_down=networks * client.bytes_down,
            bytes_up=networks * client.bytes_up,
        )
    return work


def fit_to_devices(recipe: Recipe, work: dict[str, LevelWork], examples: np.ndarray) -> Recipe:
    """Return a recipe whose clients have the largest level of the mix that fits their device.

    Args:
        recipe: The recipe, with `levels.fit: device`.
        work: Work of a client at each level of the mix.
        examples: int [clients], number of examples of each client.

    Returns:
        The recipe with `levels.level_of_client`, and with the numbers of clients as shares of the mix.

    Raises:
        InvalidValue: No client or fewer clients than a round needs fit any level; with the path of the key.
    """
    levels, ids = recipe.levels, np.arange(len(examples))
    devices = devices_of(recipe.fleet or Fleet(), recipe.seed, ids, clients=len(ids))
    level_of_client = np.full(len(ids), -1, np.int8)
    for name in sorted(levels.names, key=lambda name: work[name].memory, reverse=True):
        fits = devices.memory >= work[name].memory
        if levels.fit_seconds is not None:
            fits &= work[name].times(devices, examples).total <= levels.fit_seconds
        level_of_client[(level_of_client < 0) & fits] = levels.names.index(name)
    counts: dict[str, float] = {name: int((level_of_client == index).sum()) for index, name in enumerate(levels.names)}
    able = sum(count for name, count in counts.items() if name not in levels.idle)
    if not able:
        raise InvalidValue(("levels", "fit"), _no_fit(levels, work, devices, examples))
    if recipe.round.clients > able:
        text = f"more active clients than clients whose device fits a level (levels.fit); must be at most {able}"
        raise InvalidValue(("round", "clients"), f"{text}. Received: {recipe.round.clients}")
    fitted = dataclasses.replace(levels, mix=counts, level_of_client=level_of_client)
    return dataclasses.replace(recipe, levels=fitted)


def _no_fit(levels, work, devices, examples):
    """Return the message that no client fits a level that trains."""
    names = [name for name in levels.names if name not in levels.idle]
    smallest = min(names, key=lambda name: work[name].memory)
    needs, memory = work[smallest].memory / MIB, devices.memory.max() / MIB
    text = f"no device fits a level: the smallest level, {smallest}, needs {needs:.1f} MiB of training memory"
    if memory < needs:
        return f"{text}, and the largest device has {memory:.1f} MiB; add a smaller level. Received: 'device'"
    seconds = work[smallest].times(devices, examples).total.min()
    text += f" and {seconds:.3g} s on the fastest device; add a smaller level or raise levels.fit_seconds"
    return f"{text}. Received: 'device'"
