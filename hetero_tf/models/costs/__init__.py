"""Costs of the clients of each level in a round: values received and sent, operations, memory.

Modules:

    cost_report  Costs of a model at every level: parameters, operations, traffic and memory
    counting     Counts the operations of one call of a Keras model
    device_fit   Work of a client at each level, and levels of clients by the memory and the speed of their devices
    level_costs  Costs of the networks of each level, with their exits and stages
    memory       Memory of the clients of a level compared with their budgets
    traffic      Costs of a round for its clients: bytes in both directions and operations of training
    unit_costs   Costs of the units of a model, and their shares of the full model
"""
