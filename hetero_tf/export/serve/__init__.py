"""Serves exports over HTTP, with the REST API of TensorFlow Serving.

`serving.py` keeps the newest version of each level loaded, `rest.py` converts between JSON and tensors, `app.py`
handles requests, and `page.html` is the page for a browser.

Modules:

    app           The HTTP application: routes, limits, and a task that polls the export folder
    connections   Closes connections of slow clients, and the longest waiting one if too many are open
    hosts         Checks the Host and Origin headers
    loading       Verifies the files of an exported version and loads it
    openapi       Description of the HTTP API, as OpenAPI 3.1 and as a page for a browser
    prometheus    Metrics of a server in the text format of Prometheus
    request_json  Parses the JSON of a request in pieces
    rest          Bodies of TensorFlow Serving's REST API: conversion of JSON to tensors, and back
    run           Starts the server and runs it until a signal
    serving       Loads, replaces and unloads served versions as the export folder changes
    work          Limits of the work for requests: threads, seconds, and bytes in memory
"""
