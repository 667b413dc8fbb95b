"""Free ports of this machine."""

import socket


def free_ports(count: int) -> list[int]:
    """Return `count` different TCP ports that no program of this machine uses."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
