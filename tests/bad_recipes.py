"""Wrong recipes and overrides, each with the exact first line of its refusal.

A row of `EDITS` and `TEXT_EDITS` replaces a piece of `BASE` or `TEXT`; a row of `OVERRIDES` is given to `BASE`.
"""

BASE = """\
name: base
seed: 0
data: {name: synthetic, kind: images}
input: {name: images, mean: [0.5], std: [0.5]}
partition: {name: iid, clients: 10}
model:
  settings: {norm: sbn, blocks: [1, 2]}
  layers:
    - [PaddedConv2D: {filters: !w 16}, Scaler, Norm: {kind: !setting norm}, ReLU, MaxPooling2D]
    - Repeat: {times: !setting blocks.1, first: {stride: 2}, layer: {PreActivationBlock: {filters: !w 32}}}
    - GlobalAveragePooling2D
    - Dense: {units: !classes}
levels:
  widths: {a: 1.0, c: 0.25, e: 0.0625}
  mix: a1-e9
round: {clients: 5, submodel: prefix}
client: {epochs: 1, batch_size: 10}
optimizer: {learning_rate: 0.1}
schedule: {name: steps, at: [1, 2]}
rounds: 2
"""

TEXT = """\
name: base
seed: 0
data: {name: synthetic, kind: text, rows: 10}
input: {name: masked_text, segment: 16}
partition: {name: iid, clients: 10}
model:
  layers:
    - MaskedTokenEmbedding: {classes: !classes, positions: 16, width: !w 16}
    - Dense: {units: !classes}
levels:
  widths: {a: 1.0, c: 0.25, e: 0.0625}
  mix: a1-e9
round: {clients: 5, submodel: prefix}
client: {epochs: 1, batch_size: 10}
optimizer: {learning_rate: 0.1}
schedule: {name: steps, at: [1, 2]}
rounds: 2
evaluate: {best: global_loss}
"""

# From the settings on to the key `client`, for edits of both.
MIDDLE = BASE[BASE.index("  settings") : BASE.index("epochs: 1")]

# name, piece, replacement, refusal
EDITS = (
    ("unknown key", "rounds: 2", "roundz: 2", "r.yaml:20:1: roundz: unknown key 'roundz'; did you mean 'round'?"),
    (
        "unknown nested key",
        "{epochs: 1,",
        "{epoch: 1,",
        "r.yaml:17:10: client.epoch: unknown key 'epoch'; did you mean 'epochs'?",
    ),
    ("duplicate key", "rounds: 2", "rounds: 2\nseed: 1", "r.yaml:21:1: the key 'seed' is given twice, first on line 2"),
    (
        "missing key",
        "round: {clients: 5, submodel: prefix}",
        "round: {submodel: prefix}",
        "r.yaml:16:8: round: the key 'clients' is missing; it gives active clients of a round",
    ),
    (
        "missing section",
        "optimizer: {learning_rate: 0.1}\n",
        "",
        "r.yaml:1:1: the key 'optimizer' is missing; it gives the local steps",
    ),
    (
        "text for a number",
        "batch_size: 10",
        "batch_size: ten",
        "r.yaml:17:33: client.batch_size: wrong type; must be a whole number from 1 to 1000000. Received: 'ten'",
    ),
    (
        "quoted number",
        "learning_rate: 0.1",
        "learning_rate: '5e-4'",
        "r.yaml:18:28: optimizer.learning_rate: wrong type; must be a number above 0 and at most 1000000000. "
        "Received: '5e-4'",
    ),
    (
        "zero",
        "epochs: 1",
        "epochs: 0",
        "r.yaml:17:18: client.epochs: too small; must be a whole number from 1 to 1000000. Received: 0",
    ),
    (
        "fraction",
        "epochs: 1",
        "epochs: 1.5",
        "r.yaml:17:18: client.epochs: wrong type; must be a whole number from 1 to 1000000. Received: 1.5",
    ),
    (
        "true",
        "epochs: 1",
        "epochs: true",
        "r.yaml:17:18: client.epochs: wrong type; must be a whole number from 1 to 1000000. Received: true",
    ),
    (
        "yes",
        "batch_size: 10}",
        "batch_size: 10, label_cut: yes}",
        "r.yaml:17:48: client.label_cut: wrong type; must be true or false. Received: 'yes'",
    ),
    (
        "sexagesimal",
        "rounds: 2",
        "rounds: 12:30",
        "r.yaml:20:9: rounds: wrong type; must be a whole number from 1 to 2147483647. Received: '12:30'",
    ),
    (
        "underscore",
        "rounds: 2",
        "rounds: 12_000",
        "r.yaml:20:9: rounds: wrong type; must be a whole number from 1 to 2147483647. Received: '12_000'",
    ),
    (
        "octal",
        "rounds: 2",
        "rounds: 010",
        "r.yaml:20:9: rounds: wrong type; must be a whole number from 1 to 2147483647. Received: '010'",
    ),
    (
        "not a number",
        "learning_rate: 0.1",
        "learning_rate: .nan",
        "r.yaml:18:28: optimizer.learning_rate: not a finite number; numbers must be finite. Received: .nan",
    ),
    (
        "infinite",
        "learning_rate: 0.1",
        "learning_rate: .inf",
        "r.yaml:18:28: optimizer.learning_rate: not a finite number; numbers must be finite. Received: .inf",
    ),
    (
        "overflow",
        "learning_rate: 0.1",
        "learning_rate: 1e999",
        "r.yaml:18:28: optimizer.learning_rate: number too large; numbers must be finite. Received: 1e999",
    ),
    (
        "many digits",
        "rounds: 2",
        "rounds: 1" + "0" * 400,
        "r.yaml:20:9: rounds: number too large; numbers must be finite. Received: "
        "1000000000000000000000000000000000000000",
    ),
    (
        "too large",
        "rounds: 2",
        "rounds: 18446744073709551616",
        "r.yaml:20:9: rounds: too large; must be a whole number from 1 to 2147483647. Received: 18446744073709551616",
    ),
    (
        "null",
        "rounds: 2",
        "rounds:",
        "r.yaml:20:8: rounds: wrong type; must be a whole number from 1 to 2147483647. Received: null",
    ),
    (
        "list for a number",
        "rounds: 2",
        "rounds: [2]",
        "r.yaml:20:9: rounds: wrong type; must be a whole number from 1 to 2147483647. Received: [2]",
    ),
    (
        "section is a number",
        "round: {clients: 5, submodel: prefix}",
        "round: 5",
        "r.yaml:16:8: round: must be a mapping with the keys clients, submodel, mask, weighting, untrained, "
        "label_rows, personal, server, non_finite_share. Received: 5",
    ),
    (
        "folder in the name",
        "name: base",
        "name: ../base",
        "r.yaml:1:7: name: not allowed; must be text like [A-Za-z0-9][A-Za-z0-9_.-]{0,63}. Received: '../base'",
    ),
    (
        "choice",
        "mix: a1-e9",
        "mix: a1-e9\n  assignment: dynamc",
        "r.yaml:16:15: levels.assignment: unknown value; did you mean 'dynamic'? It must be one of fixed, dynamic. "
        "Received: 'dynamc'",
    ),
    (
        "unknown plug-in",
        "submodel: prefix",
        "submodel: prefx",
        "r.yaml:16:31: round.submodel.name: unknown name 'prefx'; did you mean 'prefix'?",
    ),
    (
        "plug-in by code",
        "submodel: prefix",
        "submodel: os.system",
        "r.yaml:16:31: round.submodel.name: unknown name 'os.system'; known: prefix, random, rolling",
    ),
    (
        "plug-in as a number",
        "submodel: prefix",
        "submodel: 3",
        "r.yaml:16:31: round.submodel: must be a name or {name: ..., options}; known: prefix, random, rolling. "
        "Received: 3",
    ),
    (
        "unknown option",
        "{name: iid, clients: 10}",
        "{name: iid, client: 10}",
        "r.yaml:5:24: partition.client: unknown key 'client'; did you mean 'clients'?",
    ),
    (
        "option missing",
        "{name: iid, clients: 10}",
        "iid",
        "r.yaml:5:12: partition: the option 'clients' of iid is missing; it gives number of clients",
    ),
    (
        "option of the wrong type",
        "{name: iid, clients: 10}",
        "{name: iid, clients: many}",
        "r.yaml:5:33: partition.clients: wrong type; must be a whole number from 1 to 10000000. Received: 'many'",
    ),
    (
        "too many clients",
        "{name: iid, clients: 10}",
        "{name: iid, clients: 1000000000000}",
        "r.yaml:5:33: partition.clients: too large; must be a whole number from 1 to 10000000. Received: 1000000000000",
    ),
    (
        "no such stand-in",
        "kind: images}",
        "kind: images, fallback: mnist}",
        "r.yaml:3:49: data.fallback: unknown value; must be one of digits, pydoc or null. Received: 'mnist'",
    ),
    (
        "more active clients than clients",
        "round: {clients: 5",
        "round: {clients: 11",
        "r.yaml:16:18: round.clients: more active clients than clients; must be at most 10 (partition.clients). "
        "Received: 11",
    ),
    (
        "level without width",
        "mix: a1-e9",
        "mix: a1-d9",
        "r.yaml:15:8: levels.mix: no width is given for level 'd'; known: a, c, e",
    ),
    (
        "wider than the first",
        "mix: a1-e9",
        "mix: e9-a1",
        "r.yaml:15:8: levels.mix: level 'a' (width 1) is wider than the first, 'e' (width 0.0625), which is the "
        "global model's; list the widest first",
    ),
    (
        "level twice",
        "mix: a1-e9",
        "mix: a1-a9",
        "r.yaml:15:8: levels.mix: the level 'a' is given twice; give each level once. Received: 'a1-a9'",
    ),
    (
        "no mix",
        "mix: a1-e9",
        "mix: 1a",
        "r.yaml:15:8: levels.mix: not a mix of levels; must be like a1-e9, a-e or {a: 1, e: 9}. Received: '1a'",
    ),
    (
        "share of zero",
        "mix: a1-e9",
        "mix: {a: 1, e: 0}",
        "r.yaml:15:18: levels.mix.e: too small; must be a number above 0 and at most 1000000. Received: 0",
    ),
    (
        "share zero in text",
        "mix: a1-e9",
        "mix: a1-e0",
        "r.yaml:15:8: levels.mix: too small; must be a number above 0 and at most 1000000. Received: 0",
    ),
    (
        "shares above the clients",
        "mix: a1-e9",
        "mix: a1-e99\n  assignment: fixed",
        "r.yaml:15:8: levels.mix: the shares add up to 100, but there are 10 clients to give a level to (assignment: "
        "fixed); use smaller shares",
    ),
    (
        "broken shares",
        "mix: a1-e9",
        "mix: {a: 0.5, e: 0.5}\n  assignment: fixed",
        "r.yaml:15:8: levels.mix: shares must be whole numbers where the assignment is fixed. Received: {a: 0.5, e: 0.5}",
    ),
    (
        "width above one",
        "{a: 1.0,",
        "{a: 1.5,",
        "r.yaml:14:15: levels.widths.a: too large; must be a number above 0 and at most 1. Received: 1.5",
    ),
    (
        "width of zero",
        "{a: 1.0,",
        "{a: 0,",
        "r.yaml:14:15: levels.widths.a: too small; must be a number above 0 and at most 1. Received: 0",
    ),
    (
        "level name",
        "{a: 1.0, c: 0.25",
        "{a: 1.0, c3: 0.25",
        "r.yaml:14:20: levels.widths.c3: not a level; its name must be letters alone. Received: 'c3'",
    ),
    (
        "schedule falls",
        "at: [1, 2]",
        "at: [2, 1]",
        "r.yaml:19:33: schedule.at[1]: must rise from one to the next. Received: [2, 1]",
    ),
    (
        "schedule broken",
        "at: [1, 2]",
        "at: [0.5]",
        "r.yaml:19:30: schedule.at[0]: wrong type; must be a whole number from 1 to 10000000. Received: 0.5",
    ),
    (
        "deviation of zero",
        "std: [0.5]",
        "std: [0.0]",
        "r.yaml:4:42: input.std[0]: too small; must be a number above 0 and at most 1000000000. Received: 0.0",
    ),
    (
        "mean and deviation",
        "mean: [0.5], std: [0.5]",
        "mean: [0.5, 0.5], std: [0.5, 0.5, 0.5]",
        "r.yaml:4:46: input.std: must have as many numbers as mean, 2. Received: [0.5, 0.5, 0.5]",
    ),
    (
        "perplexity of images",
        "rounds: 2",
        "rounds: 2\nevaluate: {best: global_perplexity}",
        "r.yaml:21:18: evaluate.best: is not measured with the input images; must be one of global_accuracy, "
        "global_loss, local_accuracy, local_loss, local_mean, local_worst_decile. Received: global_perplexity",
    ),
    (
        "unknown layer",
        "GlobalAveragePooling2D",
        "GlobalAveragePoling2D",
        "r.yaml:11:7: model.layers[2]: unknown layer 'GlobalAveragePoling2D'; did you mean 'GlobalAveragePooling2D'?",
    ),
    (
        "dotted layer",
        "GlobalAveragePooling2D",
        "os.system: {command: 'touch x'}",
        "r.yaml:11:7: model.layers[2].os.system: 'os.system' is not a layer; layers are named by class alone, own "
        "modules come by --plugin",
    ),
    (
        "Lambda",
        "GlobalAveragePooling2D",
        "Lambda: {function: 'x'}",
        "r.yaml:11:7: model.layers[2].Lambda: Lambda is not allowed; a recipe is data and cannot hold code; write a "
        "layer and pass it by --plugin",
    ),
    (
        "TFSMLayer",
        "GlobalAveragePooling2D",
        "TFSMLayer: {filepath: x}",
        "r.yaml:11:7: model.layers[2].TFSMLayer: TFSMLayer is not allowed; a recipe is data and cannot hold code; "
        "write a layer and pass it by --plugin",
    ),
    (
        "batch normalisation",
        "GlobalAveragePooling2D",
        "BatchNormalization",
        "r.yaml:11:7: model.layers[2]: BatchNormalization is not allowed; a round drops its moving averages, so "
        "clients would be tested with stale ones; use StaticBatchNormalization",
    ),
    (
        "unknown argument",
        "{filters: !w 16}",
        "{filter: !w 16}",
        "r.yaml:9:23: model.layers[0][0].PaddedConv2D.filter: unknown key 'filter'; did you mean 'filters'?",
    ),
    (
        "argument missing",
        "Dense: {units: !classes}",
        "Dense",
        "r.yaml:12:7: model.layers[3]: the argument 'units' is missing; Dense needs units",
    ),
    (
        "argument type",
        "{filters: !w 16}",
        "{filters: 64w}",
        "r.yaml:9:32: model.layers[0][0].PaddedConv2D.filters: wrong type; must be a whole number from 1 to 1000000, "
        "`!w n` or `!classes`. Received: '64w'",
    ),
    (
        "huge layer",
        "Dense: {units: !classes}",
        "Dense: {units: 1000000000000}",
        "r.yaml:12:22: model.layers[3].Dense.units: too large; must be a whole number from 1 to 1000000, `!w n` or "
        "`!classes`. Received: 1000000000000",
    ),
    (
        "even kernel",
        "{filters: !w 16}",
        "{filters: !w 16, kernel_size: 4}",
        "r.yaml:9:52: model.layers[0][0].PaddedConv2D.kernel_size: even; must be an odd whole number from 1 to 999. "
        "Received: 4",
    ),
    (
        "stride by width",
        "{filters: !w 16}",
        "{filters: !w 16, stride: !w 2}",
        "r.yaml:9:47: model.layers[0][0].PaddedConv2D.stride: wrong type; must be a whole number from 1 to 999. "
        "Received: !w 2",
    ),
    (
        "choice of an argument",
        "Dense: {units: !classes}",
        "Dense: {units: !classes, activation: softmax}",
        "r.yaml:12:44: model.layers[3].Dense.activation: unknown value; must be one of elu, gelu, hard_silu, "
        "leaky_relu, linear, mish, relu, relu6, selu, sigmoid, silu, softplus, tanh or null. Received: 'softmax'",
    ),
    (
        "initialiser",
        "Dense: {units: !classes}",
        "Dense: {units: !classes, kernel_initializer: he}",
        "r.yaml:12:52: model.layers[3].Dense.kernel_initializer: unknown value; must be one of fan_in_uniform, "
        "glorot_normal, glorot_uniform, he_normal, he_uniform, lecun_normal, lecun_uniform, ones, orthogonal, "
        "random_normal, random_uniform, truncated_normal, zeros. Received: 'he'",
    ),
    (
        "unknown norm",
        "norm: sbn",
        "norm: batch",
        "r.yaml:7:20: model.layers[0][2].Norm.kind: unknown value; must be one of sbn, bn, wbn, in, gn, ln, none. "
        "Received: 'batch'",
    ),
    (
        "no such setting",
        "!setting norm",
        "!setting nrom",
        "r.yaml:9:55: model.layers[0][2].Norm.kind: unknown setting 'nrom'; did you mean 'norm'?",
    ),
    (
        "setting is a list",
        "!setting blocks.1",
        "!setting blocks",
        "r.yaml:10:16: model.layers[1].Repeat.times: `!setting blocks` does not fit; model.settings.blocks is [1, 2]",
    ),
    (
        "setting too short",
        "!setting blocks.1",
        "!setting blocks.2",
        "r.yaml:10:16: model.layers[1].Repeat.times: `!setting blocks.2` does not fit; model.settings.blocks is [1, 2]",
    ),
    (
        "unused setting",
        "norm: sbn,",
        "norm: sbn, spare: 1,",
        "r.yaml:7:25: model.settings.spare: no layer refers to it; use it as `!setting spare` or leave it out",
    ),
    (
        "unknown tag",
        "!w 16",
        "!width 16",
        "r.yaml:9:32: model.layers[0][0].PaddedConv2D.filters: unknown tag '!width'; allowed tags: `!w n`, "
        "`!classes` and `!setting name`. Received: '16'",
    ),
    (
        "python tag",
        "!w 16",
        "!!python/object/apply:os.system [ls]",
        "r.yaml:9:32: model.layers[0][0].PaddedConv2D.filters: a tag before a list or mapping; allowed tags: `!w n`, "
        "`!classes` and `!setting name`. Received: !!python/object/apply:os.system",
    ),
    (
        "width of text",
        "!w 16",
        "!w wide",
        "r.yaml:9:32: model.layers[0][0].PaddedConv2D.filters: `!w` takes a whole number from 1 to 1000000. "
        "Received: 'wide'",
    ),
    (
        "width too large",
        "!w 16",
        "!w 99999999",
        "r.yaml:9:32: model.layers[0][0].PaddedConv2D.filters: `!w` takes a whole number from 1 to 1000000. "
        "Received: '99999999'",
    ),
    (
        "tag on a list",
        "mean: [0.5]",
        "mean: !w [0.5]",
        "r.yaml:4:29: input.mean: a tag before a list or mapping; allowed tags: `!w n`, `!classes` and `!setting "
        "name`. Received: !w",
    ),
    (
        "width outside of layers",
        "rounds: 2",
        "rounds: !w 2",
        "r.yaml:20:9: rounds: wrong type; must be a whole number from 1 to 2147483647. Received: !w 2",
    ),
    (
        "classes with a value",
        "!classes",
        "!classes 10",
        "r.yaml:12:22: model.layers[3].Dense.units: a value that `!classes` does not take; allowed tags: `!w n`, "
        "`!classes` and `!setting name`. Received: '10'",
    ),
    (
        "last layer without classes",
        "units: !classes",
        "units: 10",
        "r.yaml:9:5: model.layers: no layer is `!classes` wide; the last one must be, such as `Dense: {units: "
        "!classes}`",
    ),
    (
        "no layers",
        "  layers:\n    - [PaddedConv2D: {filters: !w 16}, Scaler, Norm: {kind: !setting norm}, ReLU, "
        "MaxPooling2D]\n    - Repeat: {times: !setting blocks.1, first: {stride: 2}, layer: {PreActivationBlock: "
        "{filters: !w 32}}}\n    - GlobalAveragePooling2D\n    - Dense: {units: !classes}\n",
        "  layers: []\n",
        "r.yaml:8:11: model.layers: must be a list of at least one layer. Received: []",
    ),
    (
        "two layers in one item",
        "- GlobalAveragePooling2D",
        "- {ReLU: {}, Flatten: {}}",
        "r.yaml:11:7: model.layers[2]: must be a layer: `ClassName` or `ClassName: {argument: value}`. Received: "
        "{ReLU: {}, Flatten: {}}",
    ),
    (
        "empty unit",
        "- GlobalAveragePooling2D",
        "- []",
        "r.yaml:11:7: model.layers[2]: an empty unit; it must hold at least one layer",
    ),
    (
        "repeat inside a unit",
        "- GlobalAveragePooling2D",
        "- [Repeat: {times: 2, layer: ReLU}]",
        "r.yaml:11:16: model.layers[2][0].Repeat: Repeat stands in the outermost list only, with the keys times, "
        "layer, first, same_initial_values",
    ),
    (
        "repeat without times",
        "times: !setting blocks.1, ",
        "",
        "r.yaml:10:15: model.layers[1].Repeat: the key 'times' is missing; Repeat takes times, layer, first, same_initial_values",
    ),
    (
        "repeat a thousand times",
        "times: !setting blocks.1",
        "times: 5000",
        "r.yaml:10:23: model.layers[1].Repeat.times: too large; must be a whole number from 0 to 1000. Received: 5000",
    ),
    (
        "equal values and first",
        "first: {stride: 2}",
        "first: {stride: 2}, same_initial_values: true",
        "r.yaml:10:49: model.layers[1].Repeat.first: does not go with same_initial_values: copies with other "
        "arguments have values of another shape",
    ),
    (
        "flatten of a map",
        "GlobalAveragePooling2D",
        "Flatten",
        "r.yaml:11:7: model.layers[2]: Flatten of a map whose channels carry `!w` mixes places and channels, so a "
        "narrow level's weights would not line up; use GlobalAveragePooling2D",
    ),
    (
        "ends in a map",
        "    - GlobalAveragePooling2D\n",
        "",
        "r.yaml:11:14: model.layers[2].Dense: the model ends in a map; put GlobalAveragePooling2D (or Flatten before "
        "any `!w`) before the last layer",
    ),
    (
        "map needed",
        "    - GlobalAveragePooling2D\n",
        "    - GlobalAveragePooling2D\n    - MaxPooling2D\n",
        "r.yaml:12:7: model.layers[3]: MaxPooling2D needs rows and columns, but the layers before it leave one "
        "vector; put it before the pooling or Flatten",
    ),
    (
        "map of a row of tokens",
        "    - GlobalAveragePooling2D\n",
        "    - PatchEmbedding: {patch: 2, width: 4}\n    - AttentionGate\n",
        "r.yaml:12:7: model.layers[3]: AttentionGate needs rows and columns, but the layers before it leave a row of "
        "tokens; put it before PatchEmbedding",
    ),
    (
        "tokens needed",
        "    - GlobalAveragePooling2D\n",
        "    - ClassTokenReadout\n",
        "r.yaml:11:7: model.layers[2]: ClassTokenReadout needs a row of tokens, but the layers before it leave a map; "
        "put PatchEmbedding somewhere before it",
    ),
    (
        "tokens of a vector",
        "    - GlobalAveragePooling2D\n",
        "    - GlobalAveragePooling2D\n    - SelfAttention: {heads: 2, head_width: 4}\n",
        "r.yaml:12:22: model.layers[3].SelfAttention: SelfAttention needs a row of tokens, but the layers before it leave "
        "one vector; put PatchEmbedding somewhere before it",
    ),
    (
        "ends in tokens",
        "    - GlobalAveragePooling2D\n",
        "    - PatchEmbedding: {patch: 2, width: 4}\n",
        "r.yaml:12:14: model.layers[3].Dense: the model ends in a row of tokens; put ClassTokenReadout before the last "
        "layer",
    ),
    (
        "patch of a level",
        "    - GlobalAveragePooling2D\n",
        "    - PatchEmbedding: {patch: !w 2, width: 4}\n    - ClassTokenReadout\n",
        "r.yaml:11:31: model.layers[2].PatchEmbedding.patch: wrong type; must be a whole number from 1 to 999. Received: "
        "!w 2",
    ),
    (
        "groups",
        "norm: sbn",
        "norm: gn",
        "r.yaml:9:54: model.layers[0][2].Norm: 4 groups do not divide the 1 channels of level 'e' (width 0.0625); "
        "choose channels that are a multiple of 4 at every level, or another norm. Received: !w 16",
    ),
    (
        "groups of Keras",
        "GlobalAveragePooling2D",
        "GroupNormalization: {groups: 3}",
        "r.yaml:11:27: model.layers[2].GroupNormalization: 3 groups do not divide the 32 channels of level 'a' "
        "(width 1); choose channels that are a multiple of 3 at every level, or another norm. Received: !w 32",
    ),
    (
        "tokens for images",
        "GlobalAveragePooling2D",
        "MaskedTokenEmbedding: {classes: !classes, positions: 4, width: 4}",
        "r.yaml:11:29: model.layers[2].MaskedTokenEmbedding: MaskedTokenEmbedding takes tokens, so it stands first "
        "in a model for text",
    ),
    (
        "images without a map",
        "    - [Padded",
        "    - Conv1D\n    - [Padded",
        "r.yaml:9:7: model.layers[0]: unknown layer 'Conv1D'; did you mean 'Conv2D'?",
    ),
    (
        "anchor",
        "seed: 0",
        "seed: &s 0",
        "r.yaml:2:7: seed: anchors (&) and aliases (*) are not allowed; write the value out. Received: s",
    ),
    (
        "alias",
        "seed: 0",
        "seed: *s",
        "r.yaml:2:7: seed: anchors (&) and aliases (*) are not allowed; write the value out. Received: s",
    ),
    (
        "merge key",
        "rounds: 2",
        "rounds: 2\n<<: {seed: 1}",
        "r.yaml:21:1: merge keys (<<) are not allowed; write the keys out",
    ),
    (
        "tab",
        "seed: 0",
        "seed: 0\n\tname: x",
        "r.yaml:3:1: not valid YAML: found character '\\t' that cannot start any token; indent with spaces, not with "
        "tabs",
    ),
    (
        "open bracket",
        "rounds: 2",
        "rounds: [2",
        "r.yaml:21:1: rounds[1]: not valid YAML: expected ',' or ']', but got '<stream end>'",
    ),
    (
        "two documents",
        "rounds: 2",
        "rounds: 2\n---\nrounds: 3",
        "r.yaml:21:1: a second document starts here; a recipe is one document",
    ),
    ("bell", "seed: 0", "seed: \x070", "r.yaml:2:7: unreadable character U+0007; a recipe is plain text"),
    ("mapping as a key", "seed: 0", "{a: 1}: 0", "r.yaml:2:1: a key must be plain text without a tag"),
    (
        "long line",
        "seed: 0",
        "seed: " + "x" * 300,
        "r.yaml:2:7: seed: wrong type; must be a whole number from 0 to 2147483647. Received: "
        "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...",
    ),
    (
        "depth of an unknown level",
        "mix: a1-e9",
        "mix: a1-e9\n  depths: {b: 1}",
        "r.yaml:16:12: levels.depths.b: no width is given for level 'b'; known: a, c, e",
    ),
    (
        "members of an unknown level",
        "mix: a1-e9",
        "mix: a1-e9\n  members: {b: 1}",
        "r.yaml:16:13: levels.members.b: no width is given for level 'b'; known: a, c, e",
    ),
    (
        "budget of an unknown level",
        "mix: a1-e9",
        "mix: a1-e9\n  budgets: {b: 1/2}",
        "r.yaml:16:13: levels.budgets.b: no width is given for level 'b'; known: a, c, e",
    ),
    (
        "unknown scenario of budgets",
        "mix: a1-e9",
        "mix: a1-e9\n  budgets: fairly",
        "r.yaml:16:12: levels.budgets: must be a mapping of level to budget, such as {a: 1, d: 1/6}, or one of fair, "
        "lack, surplus. Received: 'fairly'",
    ),
    (
        "scenario of budgets for other levels",
        "mix: a1-e9",
        "mix: a1-e9\n  budgets: fair",
        "r.yaml:16:12: levels.budgets: fair gives 4 budgets, so the mix must have as many levels. Received: 2",
    ),
    (
        "depth without an exit",
        "mix: a1-e9",
        "mix: a1-e9\n  depths: {e: 2}",
        "r.yaml:16:15: levels.depths.e: there is no such exit; must be a whole number from 1 to 1, the trunk's end "
        "(an `Exit` in model.layers adds one). Received: 2",
    ),
    (
        "first level not the deepest",
        "    - GlobalAveragePooling2D\n    - Dense: {units: !classes}\nlevels:",
        "    - Exit: [GlobalAveragePooling2D, Dense: {units: !classes}]\n    - GlobalAveragePooling2D\n    - Dense: "
        "{units: !classes}\nlevels:\n  depths: {a: 1}",
        "r.yaml:15:11: levels.depths: level 'e' (depth 2) is deeper than the first of the mix, 'a' (depth 1), which "
        "is the global model's; list the deepest first",
    ),
    (
        "an ensemble without a level",
        "mix: a1-e9",
        "mix: a1-e9\n  members: {a: 4}",
        "r.yaml:16:12: levels.members: level 'e' is missing; an ensemble needs a number for every level of the mix. "
        "Received: {a: 4}",
    ),
    (
        "an ensemble of which the first lacks some",
        "mix: a1-e9",
        "mix: a1-e9\n  members: {a: 4, e: 5}",
        "r.yaml:16:22: levels.members.e: more networks than the first level of the mix, 'a', which has them all; must "
        "be at most 4. Received: 5",
    ),
    (
        "an ensemble of two widths",
        "mix: a1-e9",
        "mix: a1-e9\n  members: {a: 4, e: 1}",
        "r.yaml:14:11: levels.widths: all levels of the mix must have one width where levels.members is given: that "
        "of the ensemble's networks. Received: {a: 1.0, c: 0.25, e: 0.0625}",
    ),
    (
        "idle level outside the mix",
        "mix: a1-e9",
        "mix: a1-e9\n  idle: [c]",
        "r.yaml:16:10: levels.idle[0]: no such level in the mix: 'c'; known: a, e",
    ),
    (
        "everyone idle",
        "mix: a1-e9",
        "mix: a1-e9\n  idle: [a, e]",
        "r.yaml:16:9: levels.idle: leaves no level of the mix whose clients take part. Received: ['a', 'e']",
    ),
    (
        "idle levels that are drawn anew",
        "mix: a1-e9",
        "mix: a1-e9\n  idle: [e]",
        "r.yaml:14:3: levels.assignment: must be fixed where levels.idle is given: a client that draws its level anew each "
        "round is not able or unable for good. Received: dynamic",
    ),
    (
        "fewer clients that may take part than active ones",
        "mix: a1-e9",
        "mix: a1-e9\n  assignment: fixed\n  idle: [e]",
        "r.yaml:18:18: round.clients: more active clients than may take part (levels.idle); must be at most 1. "
        "Received: 5",
    ),
    (
        "unknown personal unit",
        "submodel: prefix",
        "personal: ['7']",
        "r.yaml:16:32: round.personal[0]: no such unit '7'; known: 0, 1_0, 1_1, 2, 3, all",
    ),
    (
        "half of dynamic, server",
        "submodel: prefix",
        "server: dynamic",
        "r.yaml:16:29: round.server: dynamic is half of a method; set client.correction to dynamic too, with the same "
        "alpha",
    ),
    (
        "half of dynamic, client",
        "batch_size: 10}",
        "batch_size: 10, correction: dynamic}",
        "r.yaml:17:49: client.correction: dynamic is half of a method; set round.server to dynamic too, with the same "
        "alpha",
    ),
    (
        "dynamic with two strengths",
        "submodel: prefix}\nclient: {epochs: 1,",
        "server: dynamic}\nclient: {correction: {name: dynamic, alpha: 0.2}, epochs: 1,",
        "r.yaml:17:22: client.correction: alpha must be that of round.server, 0.1. Received: 0.2",
    ),
    (
        "dynamic that counts examples",
        "submodel: prefix}\nclient: {epochs: 1,",
        "server: dynamic, weighting: samples}\nclient: {correction: dynamic, epochs: 1,",
        "r.yaml:16:49: round.weighting: must be uniform with the server dynamic, which counts clients. Received: "
        "samples",
    ),
    (
        "self-distillation of one output",
        "batch_size: 10}",
        "batch_size: 10, coupling: self_distillation}",
        "r.yaml:17:47: client.coupling: self_distillation needs a second output to teach; set client.stages to {name: "
        "nested, distill: true} or add an `Exit` to model.layers",
    ),
    (
        "blockwise without budgets",
        "batch_size: 10}",
        "batch_size: 10, stages: blockwise}",
        "r.yaml:17:45: client.stages: blockwise divides by levels.budgets; give one to each level that cannot hold "
        "the whole model, such as {a: 1, d: 1/6}",
    ),
    (
        "running averages under nested widths",
        "    - GlobalAveragePooling2D\n    - Dense: {units: !classes}\nlevels:\n  widths: {a: 1.0, c: 0.25, e: "
        "0.0625}\n  mix: a1-e9\nround: {clients: 5, submodel: prefix}\nclient: {",
        "    - Norm: {kind: bn}\n    - GlobalAveragePooling2D\n    - Dense: {units: !classes}\nlevels:\n  widths: {a: "
        "1.0, c: 0.25, e: 0.0625}\n  mix: a1-e9\nround: {clients: 5, submodel: prefix}\nclient: {stages: nested, ",
        "r.yaml:11:20: model.layers[2].Norm.kind: bn keeps one set of running statistics for all widths, so it does "
        "not go with client.stages nested; use wbn or sbn. Received: 'bn'",
    ),
    (
        "two units to divide",
        MIDDLE,
        MIDDLE.replace(", blocks: [1, 2]", "")
        .replace("1-e9", "1-e9\n  budgets: {e: 1/4}")
        .replace(MIDDLE[MIDDLE.index("    - Repeat") : MIDDLE.index("    - Dense")], "")
        + "stages: blockwise, ",
        "r.yaml:16:18: client.stages: blockwise needs at least 3 units in model.layers: a stem, what is divided, and "
        "a head. Received: 2",
    ),
    (
        "an exit without logits",
        "    - GlobalAveragePooling2D\n",
        "    - Exit: [GlobalAveragePooling2D]\n    - GlobalAveragePooling2D\n",
        "r.yaml:11:14: model.layers[2].Exit[0]: an Exit must end in logits, so its last layer with a size must be "
        "`!classes` wide, such as `Dense: {units: !classes}`. Received: !w 32",
    ),
    (
        "an exit that is a map",
        "    - GlobalAveragePooling2D\n",
        "    - Exit: [PaddedConv2D: {filters: !classes}]\n    - GlobalAveragePooling2D\n",
        "r.yaml:11:28: model.layers[2].Exit[0].PaddedConv2D: an Exit ends in a map; put GlobalAveragePooling2D (or "
        "Flatten before any `!w`) before the last layer",
    ),
    (
        "deadline without seconds",
        "rounds: 2",
        "rounds: 2\navailability: {deadline: 3}",
        "r.yaml:21:26: availability.deadline: nobody can be late without seconds; give availability.seconds_per_step, "
        "such as {a: 0.1, e: 0.02}",
    ),
    (
        "seconds without a level",
        "rounds: 2",
        "rounds: 2\navailability: {seconds_per_step: {a: 0.1}}",
        "r.yaml:21:34: availability.seconds_per_step: level 'e' is missing; every level of the mix needs its seconds. "
        "Received: {a: 0.1}",
    ),
    (
        "seconds of an unknown level",
        "rounds: 2",
        "rounds: 2\navailability: {seconds_per_step: {a: 0.1, e: 1, f: 1}}",
        "r.yaml:21:49: availability.seconds_per_step.f: no width is given for level 'f'; known: a, c, e",
    ),
    (
        "seconds that are not",
        "rounds: 2",
        "rounds: 2\navailability: {seconds_per_step: 0.1}",
        "r.yaml:21:34: availability.seconds_per_step: must be a mapping of level to seconds, such as {a: 0.1, e: "
        "0.02}. Received: 0.1",
    ),
    (
        "nobody returns",
        "rounds: 2",
        "rounds: 2\navailability: {dropout: 1}",
        "r.yaml:21:25: availability.dropout: too large; must be a number of at least 0 and below 1. Received: 1",
    ),
    (
        "what late clients do",
        "rounds: 2",
        "rounds: 2\navailability: {late: wait}",
        "r.yaml:21:22: availability.late: unknown value; must be one of drop, partial. Received: 'wait'",
    ),
    (
        "a number for a file",
        "  layers:\n",
        "  initial_weights: 3\n  layers:\n",
        "r.yaml:8:20: model.initial_weights: wrong type; must be text or null. Received: 3",
    ),
    (
        "one layer for a list",
        "  layers:\n",
        "  reinitialize: 9_0_dense\n  layers:\n",
        "r.yaml:8:17: model.reinitialize: wrong type; must be a list of texts. Received: '9_0_dense'",
    ),
)

# name, piece, replacement, refusal
TEXT_EDITS = (
    (
        "text without an embedding",
        "    - MaskedTokenEmbedding: {classes: !classes, positions: 16, width: !w 16}\n",
        "",
        "r.yaml:8:14: model.layers[0].Dense: text needs an embedding first, such as MaskedTokenEmbedding. Received: "
        "Dense",
    ),
    (
        "embedding of a fixed size",
        "{classes: !classes, positions",
        "{classes: 10, positions",
        "r.yaml:8:39: model.layers[0].MaskedTokenEmbedding.classes: must be `!classes`: a row for each word of the "
        "vocabulary. Received: 10",
    ),
    (
        "too few positions",
        "positions: 16",
        "positions: 8",
        "r.yaml:8:60: model.layers[0].MaskedTokenEmbedding.positions: fewer positions than a segment has; must be at "
        "least 16 (input.segment). Received: 8",
    ),
    (
        "more clients than rows",
        "clients: 10}",
        "clients: 11}",
        "r.yaml:5:33: partition.clients: more clients than rows of text; must be at most 10 (data.rows). Received: 11",
    ),
    (
        "accuracy of text",
        "best: global_loss",
        "best: global_accuracy",
        "r.yaml:18:18: evaluate.best: is not measured with the input masked_text; must be one of global_loss, "
        "global_perplexity. Received: global_accuracy",
    ),
    (
        "second embedding",
        "    - Dense",
        "    - MaskedTokenEmbedding: {classes: !classes, positions: 16, width: !w 16}\n    - Dense",
        "r.yaml:9:29: model.layers[1].MaskedTokenEmbedding: MaskedTokenEmbedding takes tokens, so it stands first in "
        "a model for text",
    ),
)

# override, refusal
OVERRIDES = (
    (
        "client.epochs=zero",
        "--set client.epochs=zero: client.epochs: wrong type; must be a whole number from 1 to 1000000. Received: "
        "'zero'",
    ),
    ("client.epoch=1", "--set client.epoch=1: client.epoch: unknown key 'epoch'; did you mean 'epochs'?"),
    ("chekpoint.every=1", "--set chekpoint.every=1: chekpoint: unknown key 'chekpoint'; did you mean 'checkpoint'?"),
    ("client.epochs", "--set client.epochs: must be path=value, such as --set client.epochs=1"),
    ("=1", "--set =1: must be path=value, such as --set client.epochs=1"),
    ("client.epochs=", "--set client.epochs=: must be path=value, such as --set client.epochs=1"),
    ("client..epochs=1", "--set client..epochs=1: must be path=value, such as --set client.epochs=1"),
    (
        "model.layers.9=ReLU",
        "--set model.layers.9=ReLU: model.layers: is a list of 4 items; the next step must be a number from 0 to 3. "
        "Received: 9",
    ),
    (
        "model.layers.first=ReLU",
        "--set model.layers.first=ReLU: model.layers: is a list of 4 items; the next step must be a number from 0 to "
        "3. Received: first",
    ),
    ("client.epochs.x=1", "--set client.epochs.x=1: client.epochs: has no keys, so 'x' cannot be set; it is 1"),
    (
        "model.layers[0][0].PaddedConv2D.filters=!w 0",
        "--set model.layers[0][0].PaddedConv2D.filters=!w 0: `!w` takes a whole number from 1 to 1000000. Received: "
        "'0'",
    ),
    ("round.submodel.size=3", "--set round.submodel.size=3: round.submodel.size: unknown key 'size'; known: name"),
    (
        "partition.name=labls",
        "--set partition.name=labls: partition.name: unknown name 'labls'; did you mean 'labels'?",
    ),
    ("levels.mix=a1-x9", "--set levels.mix=a1-x9: levels.mix: no width is given for level 'x'; known: a, c, e"),
    ("rounds=[1", "--set rounds=[1: [1]: not valid YAML: expected ',' or ']', but got '<stream end>'"),
    ("rounds=*x", "--set rounds=*x: anchors (&) and aliases (*) are not allowed; write the value out. Received: x"),
    ("seed=.nan", "--set seed=.nan: not a finite number; numbers must be finite. Received: .nan"),
    (
        "model.layers[0][1].Skaler.enabled=true",
        "--set model.layers[0][1].Skaler.enabled=true: model.layers[0][1]: has no keys, so 'Skaler' cannot be set; "
        "it is 'Scaler'",
    ),
    ("data=synthetic2", "--set data=synthetic2: data.name: unknown name 'synthetic2'; did you mean 'synthetic'?"),
    (
        "model.settings.norm=batch",
        "--set model.settings.norm=batch: model.layers[0][2].Norm.kind: unknown value; must be one of sbn, bn, wbn, in, "
        "gn, ln, none. Received: 'batch'",
    ),
    (
        "model.settings.blocks.1=-1",
        "--set model.settings.blocks.1=-1: model.layers[1].Repeat.times: too small; must be a whole number from 0 to "
        "1000. Received: -1",
    ),
    (
        "levels.widths.e=2",
        "--set levels.widths.e=2: levels.widths.e: too large; must be a number above 0 and at most 1. Received: 2",
    ),
)
