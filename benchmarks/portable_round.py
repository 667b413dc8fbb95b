"""Exports a compiled round as StableHLO, which runs without TensorFlow."""

from collections.abc import Sequence

import tensorflow as tf

from hetero_tf.models.state import State
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.plan import Plan
from hetero_tf.rounds.batches import read_training_rows
from hetero_tf.rounds.round import run_rounds
from hetero_tf.run.learning_process import LearningProcess


def portable_round(process: LearningProcess, state: State, planned: Sequence[Plan]) -> tuple[bytes, list[tf.Tensor]]:
    """Return the planned rounds as one program without captured data.

    Args:
        process: `process.LearningProcess`, built with `device="gpu"`, whose engine has the static shapes of XLA.
        state: `process.State` before the rounds.
        planned: List of `plans.Plan`; the program is valid for plans that pack to the same shapes.

    Returns:
        (module, arguments): serialised StableHLO bytes, and the flat list of its arguments, in order. Its
        results are the new weights in model order, then the metrics "finite", "gradient_norm", "loss" and
        "merge_finite".

    Raises:
        ValueError: The process was built for the CPU.
    """
    setup = process.setup
    if not setup.engine.compiled:
        raise ValueError('`process` must be built with device="gpu". Received: device="cpu"')
    packed, _ = pack_rounds(planned, setup.block_sizes, process.family.submodel_of)
    disk_data: dict[str, tf.Tensor] = {}
    if setup.examples.on_disk:
        packed, disk_data = read_training_rows(setup.examples, packed, range(1))
    rates = [process.learning_rate(state.round + index) for index in range(len(planned))]
    # Captured tensors become constants of the program, so the data are arguments.
    data = {
        name: getattr(setup.examples, name)
        for name in ("x", "y", "labels", "present", "counts")
        if getattr(setup.examples, name) is not None
    } | disk_data

    def program(data, before, packed, rates, first_round, seed):
        after, metrics = run_rounds(setup, process.state_layout, before, packed, rates, first_round, seed, (), data)
        return list(after["weights"].values()), after["server"], after["clients"], metrics

    arguments = (
        data,
        process.state_layout.values_of(state),
        tf.nest.map_structure(tf.constant, packed),
        tf.constant(rates, process.recipe.float_type),
        tf.constant(state.round),
        process.seed,
    )
    compiled = tf.function(program, jit_compile=True, autograph=False)
    module = compiled.experimental_get_compiler_ir(*arguments)(stage="stablehlo_serialized")
    return module, tf.nest.flatten(arguments)
