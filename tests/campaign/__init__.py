"""Attacks on the program, drawn at random: what it promises must hold after each of them. See README.md."""
