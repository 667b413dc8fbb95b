"""Plug-ins that define a federated method: one folder per kind.

A module may state rules for other keys of a recipe as plain data, which are checked without importing it. Rules in the
package of a kind hold for all of its plug-ins.

- `REQUIRES = {key: value}`: the values that the recipe must have.
- `CONFLICTS = {reason: {key: value, ...}}`: values that it must not have together. The error is reported at the last
  key.
- `UNUSED = {reason: {key: value, ...}}`: the other values make a change of the last key ineffective, which is an error.

A key is one of the recipe, such as "optimizer.momentum", or an option of the plug-in. Others are computed:

- "client.correction.REMEMBERS": a constant of a chosen plug-in
- "model.layers", "model.layers.heads", "model.layers.*": class names of the layers, the values of an argument, of any
  argument
- "model.exits", "levels.widths": whether a level of the mix has several outputs, whether the levels differ in width
- "model.trunk": the units outside exits

A value is compared as follows:

- a name, a number or a text must be equal; a list of values has the text, or at least as many items as the number
- a list: one of its values
- True or False: the key differs from its default, or not; for a flag, its value; for an argument, that a layer has it
- another key, such as "round.server.alpha", in `REQUIRES`: the value of that key
"""
