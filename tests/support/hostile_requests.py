"""Sends requests to a SavedModel past the shapes of its signatures, as a server may: `hostile_requests.py MODEL CASES`.

CASES is a .npz file with an array for each request, under "NUMBER SIGNATURE". Prints a line for each as JSON: the answer
as lists, or the error. A kernel that ends the process ends the lines.
"""

import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2


def loosen(folder):
    """Takes the shapes off the inputs of a SavedModel, so that only its graph looks at them."""
    path = Path(folder) / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for node in saved.meta_graphs[0].graph_def.node:
        if node.op == "Placeholder":
            node.attr["shape"].shape.Clear()
            node.attr["shape"].shape.unknown_rank = True
            node.attr.pop("_output_shapes", None)
    path.write_bytes(saved.SerializeToString())


def main(folder, cases):
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], folder).signature_def
        with np.load(cases, allow_pickle=True) as requests:
            for name in requests.files:
                signature = signatures[name.split()[1]]
                (input_tensor,) = (graph.get_tensor_by_name(info.name) for info in signature.inputs.values())
                outputs = {key: graph.get_tensor_by_name(info.name) for key, info in signature.outputs.items()}
                try:
                    results = session.run(outputs, {input_tensor: requests[name]})
                    print(json.dumps({key: str(value.tolist()) for key, value in results.items()}))
                except tf.errors.InvalidArgumentError as error:
                    print(json.dumps(error.message))


if __name__ == "__main__":
    main(*sys.argv[1:])
