"""Serves exports over HTTP, with the REST API of TensorFlow Serving.

`serving.py` keeps the newest version of each level loaded, `rest.py` converts between JSON and tensors, `app.py`
handles requests, and `page.html` is the page for a browser.
"""
