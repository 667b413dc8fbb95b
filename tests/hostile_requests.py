"""Sends requests to a SavedModel past the shapes of its signatures, as a server may: `hostile_requests.py MODEL CASES`.

CASES is a .npz file with an array for each request, under "NUMBER SIGNATURE". Prints a line for each as JSON: the answer
as lists, or the error. A kernel that ends the process ends the lines.
"""

import json
import sys

import numpy as np
import tensorflow as tf


def main(folder, cases):
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], folder).signature_def
        with np.load(cases, allow_pickle=True) as given:
            for name in given.files:
                signature = signatures[name.split()[1]]
                (place,) = (graph.get_tensor_by_name(info.name) for info in signature.inputs.values())
                outputs = {key: graph.get_tensor_by_name(info.name) for key, info in signature.outputs.items()}
                try:
                    found = session.run(outputs, {place: given[name]})
                    print(json.dumps({key: str(value.tolist()) for key, value in found.items()}))
                except tf.errors.InvalidArgumentError as error:
                    print(json.dumps(error.message))


if __name__ == "__main__":
    main(*sys.argv[1:])
