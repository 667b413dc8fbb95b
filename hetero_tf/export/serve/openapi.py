"""Description of the HTTP API, as OpenAPI 3.1 and as a page for a browser."""

import inspect
from collections.abc import Iterable
from urllib.parse import quote

from starlette.routing import Route

from hetero_tf.base.escaping import escape_html, join_shell
from hetero_tf.base.version import __version__

ERROR = {"type": "object", "properties": {"error": {"type": "string"}}}
RESPONSES = {
    "200": "success",
    "400": "the request does not match the signature",
    "404": "unknown path, level or version",
    "503": "no level is served, or the server is busy",
}


def describe_api(routes: Iterable[Route], levels: list[str], signatures: list[str]) -> dict:
    """Return the OpenAPI document.

    Args:
        routes: Routes of the application; the docstring of an endpoint is its summary.
        levels: Names of the served levels.
        signatures: Names of their signatures.
    """
    parameters: dict[str, dict] = {
        "level": {"schema": {"type": "string", "enum": levels}},
        "number": {"schema": {"type": "integer", "minimum": 0}, "description": "a version; 0 is the newest one"},
    }
    request = {
        "type": "object",
        "description": "exactly one of instances and inputs",
        "properties": {
            "signature_name": {"type": "string", "enum": signatures, "default": "serving_default"},
            "instances": {"type": "array", "items": {}, "description": "one value for each example (row format)"},
            "inputs": {"description": "one array, or an object of arrays by name (column format)"},
        },
    }
    paths: dict[str, dict] = {}
    for route in routes:
        if not route.include_in_schema:
            continue
        is_predict = "POST" in (route.methods or ())
        schema: dict | None = {} if is_predict or route.path.startswith("/v1") else None
        operation = {
            "summary": (inspect.getdoc(route.endpoint) or "").partition("\n")[0],
            "parameters": [
                {"name": name, "in": "path", "required": True, **parameters[name]} for name in route.param_convertors
            ],
            "responses": {
                status: _response(description, schema if status == "200" else ERROR)
                for status, description in RESPONSES.items()
            },
        }
        if is_predict:
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": request}}}
        paths[route.path_format] = {"post" if is_predict else "get": operation}
    info = {"title": "hetero_tf serve", "version": __version__, "description": "The REST API of TensorFlow Serving."}
    return {"openapi": "3.1.0", "info": info, "paths": paths}


def _response(description, schema):
    content = {} if schema is None else {"content": {"application/json": {"schema": schema}}}
    return {"description": description, **content}


def render_page(api: dict, address: str, level: str) -> str:
    """Return the page `/docs`.

    Args:
        api: Result of `describe_api`.
        address: URL of the server, for the commands.
        level: A served level.
    """
    paths = "".join(
        f"<dt><code>{method.upper()} {escape_html(path)}</code></dt><dd>{escape_html(operation['summary'])}</dd>\n"
        for path, operations in api["paths"].items()
        for method, operation in operations.items()
    )
    model = f"{address}/v1/models/{quote(level)}"
    example, request, metadata = f"{model}/example", f"{model}:predict", f"{model}/metadata"
    commands = [f"{join_shell(['curl', example])} | {join_shell(['curl', '-d', '@-', request])}"]
    commands.append(join_shell(["curl", metadata]))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>API of hetero_tf serve</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
</head>
<body>
<main>
<h1>API of hetero_tf serve</h1>
<p>The server has the REST API of TensorFlow Serving. <a href="openapi.json">openapi.json</a> describes it for programs.
<a href="./">The page of the model</a> prints the commands for an input that you enter.</p>
<h2>Try it</h2>
<p>Predict an example, then list the signatures with the types and shapes of their inputs:</p>
<pre tabindex="0">{chr(10).join(map(escape_html, commands))}</pre>
<h2>Paths</h2>
<dl>
{paths}</dl>
<h2>Requests and responses</h2>
<p>A request names a signature and has one value for each example. Predictions have the same order.</p>
<pre tabindex="0">{{"signature_name": "serving_default", "instances": [...]}}
{{"predictions": [...]}}</pre>
<p>An error has the status 4xx or 5xx:</p>
<pre tabindex="0">{{"error": "..."}}</pre>
</main>
</body>
</html>
"""
