"""`schema`: prints the JSON Schema of recipes, with which editors complete and check them."""

import json

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.cli.open_run import register_plugins
from hetero_tf.recipe.json_schema import recipe_schema

USAGE, SUMMARY = "schema", "the JSON Schema of recipes, for completion and checks in an editor"
FLAGS, WORDS, SOURCE = ("plugin",), None, None


def run(recipe: None, flags: FlagValues, console: Console) -> dict:
    """Print the schema, with the plug-ins of --plugin."""
    register_plugins(flags)
    schema = recipe_schema()
    console.say_lines(json.dumps(schema, indent=1))
    return schema
