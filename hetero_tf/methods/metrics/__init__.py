"""Metrics of a model on a split: `metric(scores, targets) -> scalar`, in the graph.

`scores` are float [n, ...], the outputs of the model after `Task.prediction_scores`, or with the constant
`PROBABILITIES = True` after `Task.decode`; `targets` are those of the data, see `data.targets`. The result is float64,
so that it agrees with other libraries to their last digits.

A module has the constants `TARGETS`, the forms of targets that it supports; `BETTER`, "higher" or "lower"; and `UNIT`,
the unit of its values on a figure axis. The first sentence of its docstring is its meaning.
"""
