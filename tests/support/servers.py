"""A server of exports in a thread, and requests to it."""

import json
import queue
import threading
import urllib.error
import urllib.request

from hetero_tf.export.serve import run


def start_server(folder):
    """Start a server of a folder; return its address and the queue of its messages."""
    messages = queue.Queue()
    arguments = (folder, run.ServerOptions("127.0.0.1", 0, 2), messages.put, "export")
    threading.Thread(target=run.run, args=arguments, daemon=True).start()
    while True:
        sentence = messages.get(timeout=120)
        if sentence.startswith("Serving at "):
            return sentence.split()[2].rstrip("/"), messages


def fetch(address, data=None, **headers):
    """Return `(status, body)` of a request; `data` is bytes, or a value to send as JSON."""
    data = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data, headers), timeout=120) as answer:
            body = answer.read()
            return answer.status, json.loads(body) if "json" in answer.headers["content-type"] else body.decode()
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
