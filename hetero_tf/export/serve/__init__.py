"""Serves exports over HTTP, with the REST API of TensorFlow Serving, and `page.html` for a browser.

`run.py` starts the server, `app.py` handles requests, `loading.py` keeps the newest versions of each level loaded,
and `rest.py` converts between JSON and tensors.
"""
