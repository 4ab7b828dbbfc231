"""Run a command where no network is but loopback: `unshare -rn python tests/offline.py COMMAND …` (Linux).

`unshare -n` leaves loopback down, and a kernel talks to its notebook over it. The two requests are those of
netdevice(7), on a `struct ifreq` of 40 bytes: the name of the interface, then its flags.
"""

import fcntl
import os
import socket
import struct
import sys

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


def bring_up(interface: bytes) -> None:
    """Switch a network interface on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sH22x", interface, 0))
        flags = struct.unpack("16sH22x", request)[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", interface, flags | IFF_UP))


if __name__ == "__main__":
    bring_up(b"lo")
    os.execvp(sys.argv[1], sys.argv[1:])
