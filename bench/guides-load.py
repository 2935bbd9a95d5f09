#!/usr/bin/env python3
"""A delete-heavy load for a redis server.

    guides-load.py SOCKET KEYS ROUNDS SIZE

Sets KEYS values; then, ROUNDS times, deletes half of the keys, drawn at random, and sets as many
new ones. SIZE: bytes of a value, or A-B for sizes drawn between the two. All runs draw alike.
"""
import random
import socket
import sys

PIPELINE = 64


def command(*words):
    return b'*%d\r\n' % len(words) + b''.join(b'$%d\r\n%s\r\n' % (len(w), w) for w in words)


class Load:
    def __init__(self, path, size):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.replies = self.socket.makefile('rb')
        self.least, _, most = size.partition('-')
        self.most = int(most or self.least)
        self.least = int(self.least)
        self.random = random.Random(7)
        self.number = 0
        self.live = []

    def ask(self, commands):
        for i in range(0, len(commands), PIPELINE):
            part = commands[i:i + PIPELINE]
            self.socket.sendall(b''.join(part))
            for _ in part:
                reply = self.replies.readline()
                if reply not in (b'+OK\r\n', b':1\r\n'):
                    sys.exit(f'the server says {reply}')

    def set(self):
        self.number += 1
        key = b'key:%012d' % self.number
        size = self.random.randint(self.least, self.most)
        value = b'%08d' % self.number * (size // 8 + 1)
        self.live.append(key)
        return command(b'SET', key, value[:size])

    def fill(self, n):
        while n > 0:
            self.ask([self.set() for _ in range(min(n, PIPELINE))])
            n -= PIPELINE

    def round(self):
        self.random.shuffle(self.live)
        half = len(self.live) // 2
        dead, self.live = self.live[:half], self.live[half:]
        self.ask([command(b'DEL', key) for key in dead])
        self.fill(half)


load = Load(sys.argv[1], sys.argv[4])
load.fill(int(sys.argv[2]))
for _ in range(int(sys.argv[3])):
    load.round()
