"""`explain`: prints the meaning of a word of the output or of a recipe."""

from absl.flags import FlagValues

from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.cli.open_run import register_plugins
from hetero_tf.recipe.explanations import explain

USAGE, SUMMARY = "explain WORD", "a word of the output, a key of recipes or a plug-in"
FLAGS, WORDS, SOURCE = ("word", "plugin"), "word", None


def run(recipe: None, flags: FlagValues, console: Console) -> dict:
    """Print the explanations of each word, also of plug-ins of --plugin."""
    if not flags.word:
        raise InputError("explain needs a word, such as coverage, levels.mix or slimmable")
    register_plugins(flags)
    explanations = {word: explain(word) for word in flags.word}
    for texts in explanations.values():
        for text in texts:
            console.say_lines(text)
    return explanations
