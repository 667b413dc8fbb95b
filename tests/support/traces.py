"""Counts the operations of the graphs that tests trace.

Tracing is what most tests cost: 1.3 to 1.7 ms for each operation, on every machine the same number of operations. So a
limit of operations holds the time of the suite without a clock.
"""

import contextlib
import sys

# Operations traced in this process, graphs inside of graphs included.
_count = 0


def install():
    """Count from now on, if TensorFlow is imported; repeated calls change nothing."""
    module = sys.modules.get("tensorflow.python.framework.func_graph")
    trace = getattr(module, "func_graph_from_py_func", None)
    if trace is None or hasattr(trace, "counts"):
        return

    def counted(*arguments, **options):
        global _count
        graph = trace(*arguments, **options)
        _count += len(graph.get_operations())
        return graph

    counted.counts = True
    module.func_graph_from_py_func = counted


def count():
    """The operations traced so far."""
    return _count


@contextlib.contextmanager
def for_several_tests():
    """Do not count the operations of the block, which one of the tests that share its result executes."""
    global _count
    before = _count
    yield
    _count = before
