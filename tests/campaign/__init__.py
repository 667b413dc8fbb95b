"""Random attacks on the program; its guarantees must hold after each of them. See README.md."""
