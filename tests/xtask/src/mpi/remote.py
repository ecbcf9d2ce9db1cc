"""What `ssh` is for between machines, between two guests that nobody else can reach.

Usage: remote.py serve            runs what it is told, until it is ended
       remote.py HOST COMMAND...  has a shell there run the command, and ends as that does
"""

import socket
import subprocess
import sys
import threading

PORT = 7222


def serve():
    listener = socket.create_server(("", PORT))
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=run, args=(peer,)).start()


def run(peer):
    with peer, peer.makefile() as lines:
        command = lines.read()
        status = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL).returncode
        peer.sendall(bytes([status & 0xFF]))


def ask(host, words):
    with socket.create_connection((host, PORT), timeout=60) as peer:
        peer.settimeout(None)
        peer.sendall(" ".join(words).encode())
        peer.shutdown(socket.SHUT_WR)
        status = peer.recv(1)
        return status[0] if status else 255


if sys.argv[1:] == ["serve"]:
    serve()
else:
    sys.exit(ask(sys.argv[1], sys.argv[2:]))
