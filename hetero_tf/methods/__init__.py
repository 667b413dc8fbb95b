"""What sets one federated method apart from another: one folder for each kind of plug-in."""
