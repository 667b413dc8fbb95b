"""Keras layers of the models that HeteroFL was published with; one public class a file, named after it.

A class that computes convolutions or matrix products says so by `HAS_PRODUCTS = True`. Only such a class gets a mixed
policy, `dtype="mixed_bfloat16"`; the layers inside it that have no products take its `variable_dtype`.
"""
