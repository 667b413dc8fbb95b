"""Keras models of a recipe: building them at any width, their variables, their costs and their initial values."""
