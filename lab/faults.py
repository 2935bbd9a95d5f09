"""Faults of a memory node that can be made while COMMAND runs."""

import dataclasses
import math

# verb: what it does to (machine, switch)
VERBS = {
    # The machine vanishes; no other machine is told.
    "kill": lambda machine, switch: machine.kill(),
    # All of the machine stands still, and continues.
    "stop": lambda machine, switch: machine.freeze(True),
    "cont": lambda machine, switch: machine.freeze(False),
    # The machine's cable is pulled: it sees its port go down, the others see silence.
    "unplug": lambda machine, switch: machine.set_link(False),
    "plug": lambda machine, switch: machine.set_link(True),
    # A cable far away: frames vanish in both directions, and every port stays up.
    "mute": lambda machine, switch: switch.mute(machine.name, True),
    "unmute": lambda machine, switch: switch.mute(machine.name, False),
    # Signals for memnode itself.
    "term": lambda machine, switch: machine.signal("TERM"),
    "hup": lambda machine, switch: machine.signal("HUP"),
    "usr1": lambda machine, switch: machine.signal("USR1"),
}

# Those after which a node may end without our wondering.
ENDING = ("kill", "term")


@dataclasses.dataclass(order=True)
class Fault:
    seconds: float  # after COMMAND's start
    verb: str
    node: str


def parse(text, nodes):
    """The fault in `text`, SECONDS:VERB:NODE, of one of `nodes`.

    ValueError says what is wrong with it.
    """
    words = text.split(":")
    if len(words) != 3:
        raise ValueError(f"{text}: must be SECONDS:VERB:NODE, as in 5:kill:m1")
    seconds, verb, node = words
    try:
        after = float(seconds)
    except ValueError:
        after = -1
    if not 0 <= after < math.inf:
        raise ValueError(f"{text}: {seconds} is no number of seconds")
    if verb not in VERBS:
        raise ValueError(f"{text}: {verb} is none of {', '.join(VERBS)}")
    if node not in nodes:
        raise ValueError(
            f"{text}: there is no memory node {node}, only {', '.join(nodes) or 'with --memnodes'}"
        )
    return Fault(after, verb, node)
