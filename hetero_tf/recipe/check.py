"""Builds the schema dataclasses from plain values, and checks keys, types, ranges, plug-ins and layers.

Values are checked against the constraints of keys, options and layer arguments.

Units, repeats and settings of `model.layers` become named LayerSpecs.
"""

import dataclasses
import functools
import re
from collections.abc import Iterable
from typing import Any

from hetero_tf.base import registry
from hetero_tf.base.constraints import SMALLEST_FLOAT, Constraint, Option, Plugin, inline_plugin, keys
from hetero_tf.base.errors import did_you_mean, find_nearest
from hetero_tf.base.registry import snake_case
from hetero_tf.recipe import geometry
from hetero_tf.recipe.model import Classes, LayerSpec, Model, Width
from hetero_tf.recipe.nodes import MAX_PRINTED_ERRORS, ErrorList, InvalidValue, Setting, format_value
from hetero_tf.recipe.schema import LEVEL, MIX, SCENARIOS, Levels, Mebibytes, Recipe

FRACTION = re.compile("([1-9][0-9]{0,3})/([1-9][0-9]{0,3})")
MEMORY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?MiB")
# Keys that recipes of earlier versions had, by path, with the value that they may keep: it had no effect.
RETIRED = {("evaluate", "members"): "first", ("client", "stages", "buffered"): False}
_AMOUNT = Constraint("float", above=0.0, high=1e9)
_PYTHON_TYPES: dict[str, Any] = {"int": int, "pair": int, "float": (int, float), "str": str, "bool": bool}


def build_recipe(value: dict) -> Recipe:
    """Build the `Recipe` of a plain value, without the rules between keys.

    Args:
        value: Mapping of the keys of a recipe to plain values.

    Raises:
        InvalidValue, InvalidValues: Keys, values or names of plug-ins are invalid.
    """
    recipe = _section(Recipe, value, ())
    recipe = dataclasses.replace(recipe, client=dataclasses.replace(recipe.client, loss=recipe.loss))
    if recipe.levels.rounding == "up":
        return recipe
    layers = []
    for spec in recipe.model.layers:
        widths = {name: size for name, size in spec.args.items() if isinstance(size, Width)}
        rounded = {name: dataclasses.replace(size, down=True) for name, size in widths.items()}
        layers.append(dataclasses.replace(spec, args=spec.args | rounded))
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, layers=tuple(layers)))


def _section(cls, value, path):
    """Build a section; its plug-in, if it has one, shares the mapping with its keys."""
    plugin, options, values, errors = inline_plugin(cls), keys(cls), {}, ErrorList()
    if plugin is None:
        errors = check_mapping(value, path, tuple(options))
    else:
        value = {"name": value} if isinstance(value, str) else value
        with errors:
            values[plugin.name] = _plugin(plugin, value, path, options)
    for name, option in options.items() if isinstance(value, dict) else ():
        with errors:
            if option.required and lacks(value, name, options):
                inner = keys(option.constraint.section).items() if option.is_section else ()
                needs = " and ".join(key for key, other in inner if other.required)
                text = f"the key {name!r} is missing ({option.doc})"
                raise InvalidValue(path, text + f"; it needs {needs}" * bool(needs))
            # A default plug-in has options too, with their defaults.
            if name in value or isinstance(option.default, Plugin):
                values[name] = _value(option, value.get(name, option.default), (*path, name))
    errors.raise_all()
    return cls(**values)


def _value(option, value, path):
    if option.is_plugin:
        return None if value is None and option.constraint.optional else _plugin(option, value, path)
    return convert(value, option.constraint, path)


def _plugin(selector: Option, value: Any, path: tuple, common: Iterable[str] = ()) -> Plugin:
    """Build a `Plugin` from its name or from `{name: ..., options}`; missing options get their defaults.

    Args:
        selector: Key that selects the plug-in; options without a name belong to its default.
        value: Value in the recipe; a `Plugin` if it is a default of the schema.
        common: Other keys that are allowed next to the options.

    Raises:
        InvalidValue, InvalidValues: The plug-in or options are unknown, or values of options are invalid.
    """
    kind, default = selector.constraint.kind, selector.default
    known = registry.names(kind)
    if isinstance(value, (str, Plugin)):
        value = {"name": value} if isinstance(value, str) else {"name": value.name, **value.options}
    if not isinstance(value, dict) or not ("name" in value or isinstance(default, Plugin)):
        raise InvalidValue(path, f"must be a name or {{name: ..., options}}; known: {', '.join(known)}", value)
    value = value if "name" in value else {"name": default.name, **value}
    name = value["name"]
    if name not in known:
        module, colon, _ = str(name).partition(":")
        advice = f"; add --plugin {module}" if colon and kind == "models" else did_you_mean(name, known)
        raise InvalidValue((*path, "name"), f"unknown name {format_value(name)}{advice}")
    options = registry.options(kind, name)
    user_plugin = name if registry.is_registered(kind, name) else ""
    errors, values = check_mapping(value, path, ("name", *common, *options), user_plugin), {}
    for key, option in options.items():
        with errors:
            if option.required and lacks(value, key, options):
                raise InvalidValue(path, f"the option {key!r} of {name} is missing ({option.doc or key})")
            values[key] = convert(value[key], option.constraint, (*path, key)) if key in value else option.default
    errors.raise_all()
    return Plugin(name, values)


def _levels(value, path):
    """Build the `Levels` from a mix such as `a1-e9`, and from budgets that are named by a scenario."""
    errors = ErrorList()
    if isinstance(value, dict) and "mix" in value:
        # Valid values replace invalid ones, so that the other keys are checked too.
        value, mix, budgets = {**value, "mix": {"a": 1}}, value["mix"], value.get("budgets")
        with errors:
            value["mix"] = _mix(mix, (*path, "mix"))
        if isinstance(budgets, str) and budgets in SCENARIOS:
            value["budgets"] = dict(zip(value["mix"], known := SCENARIOS[budgets]))
            if len(value["mix"]) != len(known):
                text = f"{budgets} defines {len(known)} budgets, so the mix must have {len(known)} levels"
                errors.append(InvalidValue((*path, "budgets"), f"{text}. Received: {len(value['mix'])}"))
    with errors:
        levels = _section(Levels, value, path)
    errors.raise_all()
    shares = {name: int(share) if share.is_integer() else share for name, share in levels.mix.items()}
    return dataclasses.replace(levels, mix=shares)


def _mix(value, path):
    """Return `a1-e9`, `a-e` or `{a: 1, e: 9}` as a mapping of level to share."""
    if isinstance(value, dict) and value:
        return value
    if not isinstance(value, str) or not re.fullmatch(MIX, value):
        raise InvalidValue(path, "not a mix of levels; write it as a1-e9, a-e or {a: 1, e: 9}", value)
    shares: dict[str, int] = {}
    for name, share in re.findall(f"({LEVEL})([0-9]*)", value):
        if name in shares:
            raise InvalidValue(path, f"the level {name!r} occurs twice; list each level once", value)
        shares[name] = int(share or 1)
    return shares


MOST_LAYERS = 1000
_REPEAT = ("times", "layer", "first", "same_initial_values")
_TIMES = Constraint("int", low=0, high=MOST_LAYERS)
_VALUES = (str, int, float, bool, Width, Classes, type(None))


def build_model(value: dict | str, path: tuple) -> Model:
    """Build the `Model` of a recipe.

    Args:
        value: Plain value of the key `model`; a text is the name of a model function.
        path: Its path, for error messages.

    Raises:
        InvalidValue, InvalidValues: Layers, arguments or settings are invalid.
    """
    value = {"function": value} if isinstance(value, str) else value
    known, others = keys(Model), {}
    has_function = isinstance(value, dict) and value.get("function") is not None
    errors = check_mapping(value, path, ("function", "initial_weights") if has_function else tuple(known))
    if has_function:
        with errors:
            function = _plugin(known["function"], value["function"], (*path, "function"))
        with errors:
            initial_weights = _key("initial_weights", value.get("initial_weights"), path)
        errors.raise_all()
        return Model(function=function, initial_weights=initial_weights)
    with errors:
        specs, settings = _layers(value, path)
    for name in known.keys() & value.keys() - {"function", "settings", "layers"}:
        with errors:
            others[name] = _key(name, value[name], path)
    errors.raise_all()
    return Model(layers=specs, settings=settings, **others)


def _layers(value, path):
    if not isinstance(value.get("layers"), list) or not value["layers"]:
        raise InvalidValue(
            (*path, "layers"),
            "must be a list of at least one layer; or set model to a function of --plugin",
            value.get("layers"),
        )
    settings, errors = _settings(value.get("settings"), (*path, "settings")), ErrorList()
    used: set[str] = set()
    specs = _specs(_resolve(value["layers"], (*path, "layers"), settings, used), (*path, "layers"))
    for name in filter(lambda name: name not in used, settings):
        text = f"no layer uses it; refer to it as `!setting {name}` or leave it out"
        errors.append(InvalidValue((*path, "settings", name), text, at_key=True))
    errors.raise_all()
    return specs, settings


def _key(name, value, path):
    return convert(value, keys(Model)[name].constraint, (*path, name))


def _specs(items, layers_path):
    specs, exits, errors = [], 0, ErrorList()
    for index, item in enumerate(items):
        item_path, exit = (*layers_path, index), None
        if isinstance(item, dict) and list(item) == ["Exit"]:
            item, item_path = item["Exit"], (*item_path, "Exit")
            exit = exits = exits + 1
        with errors:
            if exit and not isinstance(item, list):
                raise InvalidValue(item_path, "must be a list of layers that ends in logits", item)
            for kind, args, unit, position, first, path in _units(item, str(index), item_path):
                name, starts_as = f"{unit}_{position}_{snake_case(kind)}", first and f"{first}_0_{snake_case(kind)}"
                specs.append(
                    LayerSpec(kind=kind, args=args, name=name, unit=unit, exit=exit, starts_as=starts_as, path=path)
                )
        if len(specs) > MOST_LAYERS:
            raise InvalidValue(
                item_path, f"too many layers; at most {MOST_LAYERS} are allowed. Received: {len(specs)} up to here"
            )
    errors.raise_all()
    return tuple(specs)


def _settings(value, path):
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidValue(path, "must be a mapping of names to values", value)
    for name, setting in value.items():
        parts = setting if isinstance(setting, list) else [setting]
        if not all(isinstance(part, _VALUES) for part in parts):
            raise InvalidValue((*path, name), "must be a single value or a list of values", setting)
    return {name: tuple(setting) if isinstance(setting, list) else setting for name, setting in value.items()}


def _units(item, unit, path):
    """Yield the layers of one item as (kind, args, unit, position, unit that shares its initial values, path)."""
    if isinstance(item, dict) and list(item) == ["Repeat"]:
        yield from _copies(item["Repeat"], unit, (*path, "Repeat"))
        return
    parts = item if isinstance(item, list) else [item]
    if not parts:
        raise InvalidValue(path, "empty unit; list at least one layer")
    errors = ErrorList()
    for position, part in enumerate(parts):
        layer_path = (*path, position) if isinstance(item, list) else path
        with errors:
            kind, args, layer_path = _layer(part, layer_path)
            yield kind, _arguments(kind, args, layer_path), unit, position, None, layer_path
    errors.raise_all()


def _copies(value, unit, path):
    check_mapping(value, path, _REPEAT).raise_all()
    for name in ("times", "layer"):
        if name not in value:
            raise InvalidValue(path, f"the key {name!r} is missing; Repeat has the keys {', '.join(_REPEAT)}")
    times = convert(value["times"], _TIMES, (*path, "times"))
    same_values = convert(value.get("same_initial_values", False), Constraint("bool"), (*path, "same_initial_values"))
    kind, args, args_path = _layer(value["layer"], (*path, "layer"))
    first = value.get("first", {})
    if not isinstance(first, dict):
        raise InvalidValue((*path, "first"), "must be a mapping of arguments", first)
    if same_values and first:
        raise InvalidValue(
            (*path, "first"),
            "cannot be combined with same_initial_values: copies with other arguments have other shapes",
        )
    later_args = _arguments(kind, args, args_path, skip=first if times < 2 else ())
    first_args = {**later_args, **_arguments(kind, first, (*path, "first"), skip=args)}
    for copy in range(times):
        earlier = f"{unit}_0" if same_values and copy else None
        yield kind, dict(later_args if copy else first_args), f"{unit}_{copy}", 0, earlier, args_path


def _layer(part, path):
    """Return the class name, the arguments, and the path of the arguments."""
    if isinstance(part, str):
        kind, args = part, None
    elif isinstance(part, dict) and len(part) == 1:
        ((kind, args),) = part.items()
        path = (*path, kind)
    else:
        raise InvalidValue(path, "must be a layer: `ClassName` or `ClassName: {argument: value}`", part)
    if kind == "Repeat":
        raise InvalidValue(path, "Repeat is allowed only in the outermost list, with the keys " + ", ".join(_REPEAT))
    if kind == "Exit":
        raise InvalidValue(path, "Exit is allowed only in the outermost list, as `Exit: [layers]`")
    problem = geometry.rejection_reason(kind)
    if problem:
        raise InvalidValue(path, problem, at_key=True)
    return kind, {} if args is None else args, path


def _arguments(kind, args, path, skip=()):
    """Return the checked arguments; `skip` lists required ones that are set elsewhere."""
    options = geometry.layer_options(kind)
    errors = check_mapping(args, path, tuple(options), kind if registry.is_registered("layers", kind) else "")
    required, values = sorted(name for name, option in options.items() if option.required), {}
    for name in [name for name in required if name not in skip and lacks(args, name, options)][:1]:
        text = f"the argument {name!r} is missing; {kind} needs {', '.join(required)}"
        errors.append(InvalidValue(path, text, at_key=True))
    for name in filter(options.__contains__, args):
        with errors:
            values[name] = convert(args[name], options[name].constraint, (*path, name))
    errors.raise_all()
    return values


def _resolve(value, path, settings, used):
    """Return the value with every `!setting` replaced; add the names of the settings to `used`."""
    if isinstance(value, dict):
        return {name: _resolve(part, (*path, name), settings, used) for name, part in value.items()}
    if isinstance(value, list):
        return [_resolve(part, (*path, index), settings, used) for index, part in enumerate(value)]
    if not isinstance(value, Setting):
        return value
    name, _, index = value.name.partition(".")
    if name not in settings:
        raise InvalidValue(path, f"unknown setting {name!r}{did_you_mean(name, settings)}", at_key=True)
    used.add(name)
    setting = settings[name]
    if isinstance(setting, tuple) != bool(index) or (index and int(index) >= len(setting)):
        raise InvalidValue(
            path, f"`!setting {value.name}` is invalid; model.settings.{name} is {format_value(setting)}", at_key=True
        )
    return setting[int(index)] if index else setting


_BUILDERS = {Levels: _levels, Model: build_model}


def check_mapping(value: object, path: tuple, known: tuple[str, ...], user_plugin: str = "") -> ErrorList:
    """Return the errors of unknown keys; raise `InvalidValue` unless a value is a mapping.

    Args:
        user_plugin: Name of the plug-in of a user that defines them.
    """
    if not isinstance(value, dict):
        raise InvalidValue(path, f"must be a mapping with the keys {', '.join(known) or '(none)'}", value)
    errors, absent = ErrorList(), [name for name in known if name not in value]
    for key in value:
        if key not in known and ((*path, key), value[key]) not in RETIRED.items():
            hint = "; no keys are allowed here"
            if known and len(errors) < MAX_PRINTED_ERRORS:
                hint = did_you_mean(key, absent if find_nearest(key, absent) else known)
            if user_plugin:
                hint += (
                    f". Keys are the parameters that {user_plugin} defines with an annotation, such as `{key}: int` "
                    "(BUILD.md, Add a part)"
                )
            errors.append(InvalidValue((*path, key), f"unknown key {format_value(key)}{hint}", at_key=True))
    return errors


def lacks(value: dict, key: str, known: Iterable[str]) -> bool:
    """Return True if a required key is missing; an unknown key that resembles it is reported instead."""
    unknown = [other for other in value if other not in known][:MAX_PRINTED_ERRORS]
    absent = [name for name in known if name not in value]
    return key in absent and all(find_nearest(other, absent) != key for other in unknown)


def convert(value: object, constraint: Constraint, path: tuple) -> Any:
    """Convert a value for the schema (ints to floats, lists to tuples); raises `InvalidValue`."""
    if value is None and constraint.optional:
        return None
    if constraint.section is not None:
        return _BUILDERS.get(constraint.section, functools.partial(_section, constraint.section))(value, path)
    if constraint.sizes and isinstance(value, (Width, Classes)):
        return value
    if constraint.type == "dict" or (constraint.by_level and isinstance(value, dict)):
        return _mapping(value, constraint, path)
    if constraint.type == "tuple" and isinstance(value, (list, tuple)):
        return _items(value, constraint, path)
    if constraint.type == "tuple" and constraint.single and isinstance(value, str):
        return _items([value], constraint, path)
    if constraint.type == "pair" and isinstance(value, list) and len(value) == 2:
        one = dataclasses.replace(constraint, type="int", optional=False)
        return tuple(convert(part, one, (*path, index)) for index, part in enumerate(value))
    if constraint.memory and isinstance(value, str) and (match := MEMORY.fullmatch(value)):
        return Mebibytes(convert(float(match[1]), _AMOUNT, path))
    if constraint.fractions and isinstance(value, str) and (match := FRACTION.fullmatch(value)):
        value = int(match[1]) / int(match[2])
    is_bool = isinstance(value, bool) and constraint.type != "bool"
    if is_bool or not isinstance(value, _PYTHON_TYPES.get(constraint.type, ())):
        raise _wrong(path, "wrong type", constraint, value)
    if constraint.choices and value not in constraint.choices:
        raise _wrong(path, "unknown value", constraint, value)
    if constraint.type == "str":
        return _text(value, constraint, path)
    return value if constraint.type == "bool" else _number(value, constraint, path)


def _wrong(path, what, constraint, value):
    near = find_nearest(value, constraint.choices) if constraint.choices and isinstance(value, str) else None
    advice = f"did you mean {near!r}? It {constraint.allowed()}" if near else constraint.allowed()
    return InvalidValue(path, f"{what}; {advice}", value)


def _number(value, constraint, path):
    low, high = constraint.bounds()
    if (low is not None and value < low) or (constraint.above is not None and value <= constraint.above):
        raise _wrong(path, "too small", constraint, value)
    if value > high or (constraint.below is not None and value >= constraint.below):
        raise _wrong(path, "too large", constraint, value)
    if constraint.odd and value % 2 == 0:
        raise _wrong(path, "even", constraint, value)
    if constraint.type == "float" and 0 < abs(value) < SMALLEST_FLOAT:
        what = f"too close to 0 for float32; its absolute value must be at least {SMALLEST_FLOAT:g}"
        raise InvalidValue(path, what, value)
    return float(value) if constraint.type == "float" else value


def _text(value, constraint, path):
    if constraint.pattern and not re.fullmatch(constraint.pattern, value):
        raise _wrong(path, "not allowed", constraint, value)
    if any(ord(letter) < 32 for letter in value):
        raise InvalidValue(path, "not allowed; must be one line", value)
    return value


def _items(value, constraint, path):
    if constraint.numbered:
        value = [str(part) if type(part) is int else part for part in value]
    errors, items = ErrorList(), []
    for index, part in enumerate(value):
        with errors:
            of_number = Constraint("int" if type(part) is int else "float")
            items.append(convert(part, constraint.item or of_number, (*path, index)))
    errors.raise_all()
    return tuple(items)


def _mapping(value, constraint, path):
    item = constraint.item or dataclasses.replace(constraint, by_level=False)
    if constraint.named and not isinstance(value, dict):
        raise _wrong(path, "wrong type", constraint, value)
    if not isinstance(value, dict) or (constraint.item and constraint.low and not value):
        names = f", or one of {', '.join(constraint.choices)}" if constraint.choices else ""
        raise InvalidValue(path, f"must be a mapping of level to {item.noun()}, such as {{a: 1}}{names}", value)
    errors, entries = ErrorList(), {}
    for name, entry in value.items():
        with errors:
            if constraint.named:
                convert(name, Constraint("str"), path)
            elif not re.fullmatch(LEVEL, name):
                text = f"not a level; its name may contain only letters. Received: {format_value(name)}"
                raise InvalidValue((*path, name), text, at_key=True)
            entries[name] = convert(entry, item, (*path, name))
    errors.raise_all()
    return entries
