"""Turns a recipe into objects: its data, the parts of a round, and the learning process, `State -> State`."""
