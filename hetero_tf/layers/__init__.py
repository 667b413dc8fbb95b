"""Keras layers of the models that HeteroFL was published with; one public class a file, named after it."""
