"""A worker that asks the store at MASTER_ADDR:MASTER_PORT as torch does, and prints how fast it answers."""
import json
import os
import socket
import time

from torch.distributed import TCPStore

HOST, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
COUNT, JOINS = 3000, 500


def rate(count, work):
    begun = time.perf_counter()
    for number in range(count):
        work(number)
    return count / (time.perf_counter() - begun)


def join():
    """As torch's client, which also asks the DNS for the address's name, and that would be measured instead."""
    connection = socket.create_connection((HOST, PORT))
    connection.sendall(b"\0" + (0x3C85F7CE).to_bytes(4, "little"))  # VALIDATE with the protocol's magic number
    connection.sendall(b"\x0dtest")  # PING with four bytes that come back
    assert connection.recv(4) == b"test"
    return connection


store = TCPStore(HOST, PORT, is_master=False, wait_for_workers=False)
value = "x" * 100
clients = []
result = {
    "set/s": rate(COUNT, lambda it: store.set(f"key {it}", value)),
    "get/s": rate(COUNT, lambda it: store.get(f"key {it}")),
    "add/s": rate(COUNT, lambda _: store.add("sum", 1)),
    "joins/s": rate(JOINS, lambda _: clients.append(join())),
}
print(json.dumps(result), flush=True)
