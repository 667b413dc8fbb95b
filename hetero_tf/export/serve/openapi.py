"""Description of the HTTP API, as OpenAPI 3.1 and as a page for a browser."""

import inspect
from collections.abc import Iterable
from pathlib import Path
from string import Template
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
    model = f"{address}/v1/models/{quote(level)}"
    example = join_shell(["curl", f"{model}/example"]) + " | " + join_shell(["curl", "-d", "@-", f"{model}:predict"])
    commands = "\n".join(map(escape_html, (example, join_shell(["curl", f"{model}/metadata"]))))
    paths = "\n".join(
        f"<dt><code>{method.upper()} {escape_html(path)}</code></dt><dd>{escape_html(operation['summary'])}</dd>"
        for path, operations in api["paths"].items()
        for method, operation in operations.items()
    )
    page = Template(Path(__file__).with_name("page.docs.html").read_text("utf-8"))
    return page.substitute(commands=commands, paths=paths)
