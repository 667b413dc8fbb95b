"""`new`: writes a commented recipe for data of the user, which trains without changes."""

import os
from pathlib import Path

from absl.flags import FlagValues

from hetero_tf.base import files
from hetero_tf.base.console import Console
from hetero_tf.base.errors import InputError
from hetero_tf.base.formatting import quote_shell
from hetero_tf.cli.flags import program_name, shared_flags


def write_recipe(flags: FlagValues, console: Console) -> dict:
    """Inspect the data, write the recipe, and print it with the next commands.

    Returns:
        `{"recipe": file, "choices": {key: [value, reason, whether it is doubtful]}}`.
    """
    from hetero_tf import data, starter
    from hetero_tf.starter import recipe_name

    if len(flags.input or ()) != 1:
        raise InputError("new needs one path, such as my_table.csv, or a name of TensorFlow Datasets, such as mnist")
    (path,) = flags.input
    out = flags.out or f"{recipe_name(path)}.yaml"
    files.check_write_target(out)
    replaces = os.path.lexists(out)
    if replaces and not flags.yes:
        raise InputError(f"{out}: exists; choose another file with --out, or replace it with --yes")
    request = starter.Request(path, data.data_folder(flags.data_dir), flags.task, tuple(flags.label or ()))
    draft = starter.draft_recipe(request)
    commands = _next_commands(out, draft.name, flags)
    text = starter.render(draft, commands)
    starter.check(text, out, draft)
    files.write_atomic(out, text.encode())
    console.say_lines(f"{text.rstrip()}\n")
    console.say(f"{'replaced' if replaces else 'wrote'} {out}")
    console.say(*(f"{'      ' if index else 'next: '}{command}" for index, command in enumerate(commands)))
    choices = {**{f"data.{name}": each for name, each in draft.data.options.items()}, **draft.keys}
    return {
        "recipe": out,
        "choices": {name: [each.value, each.reason, each.is_doubtful] for name, each in choices.items()},
    }


def _next_commands(out, name, flags):
    program, recipe, shared = program_name(), quote_shell(out), shared_flags(flags)
    return (
        f"{program} describe --recipe {recipe}{shared}   (costs, and the split over clients)",
        f"{program} --recipe {recipe}{shared}   (trains)",
        f"{program} export --run_dir {quote_shell(Path('runs', name))}{shared}",
    )
