"""A Python agent that goes on where it stopped: open files, a dict and a generator survive a pause.

The agent is ordinary Python that keeps its state in variables; Dormouse keeps the interpreter's memory and the
open files for it. `save` and `load` are for an upgrade to another version of the agent, and for nothing else.
"""

import json
import os
import random
import sys
import time

import wit_world
from componentize_py_types import Err
from wit_world.imports import lifecycle
from wit_world.imports.types import Event, Reply

JOURNAL = "/memory/episodic/journal.log"

# The largest block that `grow` and `touch-pages` hand out, so that a typing error stays harmless.
MAX_BLOCK = 1 << 30
PAGE = 4096

# Starts that are remembered.
MAX_STARTS = 100


def fibonacci():
    """0, 1, 1, 2, 3, 5, ... One number a turn; where it stands is nowhere but in this frame."""
    a, b = 0, 1
    while True:
        yield a
        a, b = b, a + b


class Agent:
    """All state of the agent. It begins empty, and is never written out by this program."""

    def __init__(self):
        self.facts = {}
        self.numbers = fibonacci()
        self.turns = 0
        self.journal = None
        self.reader = None
        self.folder = None
        self.blocks = []
        self.starts = []

    def open_files(self):
        """Opens the journal twice, once: to append to it, and to read along behind."""
        if self.journal is None:
            self.journal = open(JOURNAL, "a", encoding="utf-8")
            self.reader = open(JOURNAL, "r", encoding="utf-8")

    def resumed(self, cause, generation):
        """Two forks that share the state of a random generator would draw the same numbers."""
        random.seed(os.urandom(32))
        self.starts = [*self.starts[1 - MAX_STARTS :], f"{cause} {generation}"]

    def saved(self):
        """What another version of this agent is to know."""
        return json.dumps({"format": 1, "turns": self.turns, "facts": self.facts}).encode("utf-8")

    def loaded(self, state):
        """Takes over what another version knew."""
        known = json.loads(state)
        if known.get("format") != 1:
            raise ValueError("the state is not of format 1")
        self.turns, self.facts = int(known["turns"]), dict(known["facts"])

    def remember(self, key, value):
        """Keeps a value in the dict, and notes that in the journal through the file held open."""
        self.open_files()
        self.facts[key] = value
        self.journal.write(f"{key}={value}\n")
        self.journal.flush()
        return f"remembered {key} ({len(self.facts)} known)"

    def recall(self, key):
        """The value kept under a key."""
        if key not in self.facts:
            raise Err(f"nothing is known of {key!r}")
        return self.facts[key]

    def next(self):
        """Advances the generator by one."""
        return str(next(self.numbers))

    def line(self):
        """The next line of the journal, from where the open reader stands."""
        self.open_files()
        return self.reader.readline().rstrip("\n") or "(end)"

    def entry(self):
        """The next name in the workspace, from a directory stream held open."""
        if self.folder is None:
            self.folder = os.scandir("/workspace")
        found = next(self.folder, None)
        return "(end)" if found is None else found.name

    def who(self):
        """What the host says about this agent."""
        me = lifecycle.identity()
        parent = lifecycle.parent() or "-"
        cause = lifecycle.cause().name.lower()
        return (
            f"id={me.id} name={me.name} generation={lifecycle.generation()} "
            f"cause={cause} parent={parent} turns={self.turns}"
        )

    def starts_told(self):
        """The starts of its memory that it was told of: cause and generation."""
        return "\n".join(self.starts)

    def write(self, path, text):
        """Writes a whole file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return f"wrote {len(text)} characters"

    def read(self, path):
        """Reads a whole file."""
        with open(path, "r", encoding="utf-8") as file:
            return file.read()

    def ls(self, path):
        """The names in a folder, sorted."""
        return "\n".join(sorted(os.listdir(path)))

    def forget_try(self):
        """Tries to overwrite what happened, which an episodic zone refuses."""
        self.open_files()
        try:
            with open(JOURNAL, "r+", encoding="utf-8") as file:
                file.write("it never happened")
        except OSError as error:
            return f"refused: {error}"
        raise Err("the journal could be overwritten")

    def random(self):
        """Sixteen digits of the host's randomness, and eight of Python's own generator."""
        return f"{os.urandom(8).hex()} {random.getrandbits(32):08x}"

    def time(self):
        """Wall clock in nanoseconds since 1970, and the monotonic clock in nanoseconds."""
        return f"{time.time_ns()} {time.monotonic_ns()}"

    def grow(self, mebibytes):
        """Takes memory and keeps it; only its first byte of each page is written."""
        size = int(mebibytes) << 20
        if not 0 <= size <= MAX_BLOCK:
            raise Err("grow takes at most 1024")
        block = bytearray(size)
        block[::PAGE] = b"\1" * len(range(0, size, PAGE))
        self.blocks.append(block)
        return f"holding {sum(map(len, self.blocks)) >> 20} MiB"

    def touch_pages(self, count):
        """Writes to that many pages of the memory taken by `grow`."""
        left = touched = int(count)
        for block in self.blocks:
            for at in range(0, len(block), PAGE):
                if left == 0:
                    return f"touched {touched} pages"
                block[at] = (block[at] + 1) & 0xFF
                left -= 1
        raise Err(f"only {touched - left} pages are held; grow first")

    def stdout(self, text):
        """Prints to standard output and standard error, which become the agent's logs."""
        print(text)
        print(text, file=sys.stderr)
        return "printed"


# name: (method, number of arguments); the last argument takes the rest of the line.
COMMANDS = {
    "remember": (Agent.remember, 2),
    "recall": (Agent.recall, 1),
    "next": (Agent.next, 0),
    "line": (Agent.line, 0),
    "entry": (Agent.entry, 0),
    "who": (Agent.who, 0),
    "starts": (Agent.starts_told, 0),
    "write": (Agent.write, 2),
    "read": (Agent.read, 1),
    "ls": (Agent.ls, 1),
    "forget-try": (Agent.forget_try, 0),
    "random": (Agent.random, 0),
    "time": (Agent.time, 0),
    "grow": (Agent.grow, 1),
    "touch-pages": (Agent.touch_pages, 1),
    "print": (Agent.stdout, 1),
}

agent = Agent()


class WitWorld(wit_world.WitWorld):
    """The exports of the world `dormouse:agent/upgradable-agent`."""

    def resumed(self, cause: lifecycle.StartCause, generation: int) -> None:
        """The memory has come to life."""
        agent.resumed(cause.name.lower(), generation)

    def save(self) -> bytes:
        """For the component that takes this one's place."""
        return agent.saved()

    def load(self, state: bytes) -> None:
        """From the component before."""
        try:
            agent.loaded(state)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Err(f"the state is not understood: {error}") from error

    def handle(self, event: Event) -> Reply:
        """One turn: a command as text, such as `remember colour blue`."""
        if event.kind != "message":
            raise Err(f"events of kind {event.kind!r} are not understood")
        try:
            name, _, rest = event.payload.decode("utf-8").strip().partition(" ")
        except UnicodeDecodeError as error:
            raise Err(f"the payload is not UTF-8: {error}") from error
        if name not in COMMANDS:
            raise Err(f"{name!r} is not a command; there are: {' '.join(COMMANDS)}")
        method, count = COMMANDS[name]
        arguments = rest.split(" ", count - 1) if rest and count else []
        if len(arguments) != count:
            raise Err(f"{name} takes {count} arguments")
        agent.turns += 1
        try:
            text = method(agent, *arguments)
        except (OSError, ValueError, MemoryError) as error:
            raise Err(f"{type(error).__name__}: {error}") from error
        return Reply(payload=text.encode("utf-8"))
