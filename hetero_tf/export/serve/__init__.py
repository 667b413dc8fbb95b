"""Serves exports over HTTP, in the shape of TensorFlow Serving's REST interface.

`serving.py` keeps the newest version of each level loaded, `rest.py` turns JSON into tensors and back, `app.py` answers
requests, and `page.html` is what a person sees.
"""
