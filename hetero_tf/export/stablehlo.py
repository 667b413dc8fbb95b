"""A compiled round as StableHLO, to be run where there is no TensorFlow."""

from collections.abc import Sequence

import tensorflow as tf

from hetero_tf.models.state import State, in_order
from hetero_tf.planning.packing import pack_rounds
from hetero_tf.planning.plan import Plan
from hetero_tf.process.learning_process import LearningProcess
from hetero_tf.rounds.disk_rows import read_training_rows, reads_from_disk
from hetero_tf.rounds.round import play


def portable_round(process: LearningProcess, state: State, planned: Sequence[Plan]) -> tuple[bytes, list[tf.Tensor]]:
    """The planned rounds as one program without captured data.

    Args:
        process: `process.LearningProcess`, built with `device="gpu"`: only that engine has the static shapes that XLA
            needs.
        state: `process.State` before the rounds.
        planned: List of `plans.Plan`; the program holds for plans that pack to the same shapes.

    Returns:
        (module, arguments): serialised StableHLO bytes, and the flat list of tensors that it takes, in its order. Its
        results are the new weights in model order, then the metrics "finite", "gradient_norm", "loss" and
        "merge_finite".

    Raises:
        ValueError: The process was built for the CPU.
    """
    parts = process.parts
    if not parts.engine.compiled:
        raise ValueError('`process` must be built with device="gpu". Received: device="cpu"')
    packed = pack_rounds(planned, [stack.clients for stack in parts.engine.stacks], process.family.submodel_of)
    given: dict[str, tf.Tensor] = {}
    if reads_from_disk(parts.examples):
        packed, given = read_training_rows(parts.examples, packed, range(1))
    rates = [process.learning_rate(state.round + index) for index in range(len(planned))]
    # What a program captures is written into it as a constant; so the data are arguments.
    data = {
        name: getattr(parts.examples, name)
        for name in ("x", "y", "labels", "present", "counts")
        if getattr(parts.examples, name) is not None
    } | given

    def played(data, before, packed, rates, first_round, seed):
        return play(parts, before, packed, rates, first_round, seed, data)

    arguments = (
        data,
        in_order(state),
        [tf.constant(array) for array in packed.arrays()],
        tf.constant(rates, process.recipe.float_type),
        tf.constant(state.round),
        process._seed,
    )
    compiled = tf.function(played, jit_compile=True, autograph=False)
    module = compiled.experimental_get_compiler_ir(*arguments)(stage="stablehlo_serialized")
    return module, tf.nest.flatten(arguments)
