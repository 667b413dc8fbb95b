"""Builds the objects of a recipe: its data, the setup of a round, and the learning process, `State -> State`."""
