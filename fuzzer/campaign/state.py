"""The state of a campaign, with the changes that are allowed, and since when it has been in which state."""

from __future__ import annotations

import enum
import threading
import time


class State(enum.Enum):
    """What a campaign is at. The value is the word that the panel, its lines and the heartbeat show."""

    STARTING = "starting"  # its folder is made, and its workers start
    CHECKING = "canaries"  # each oracle must flag a planted fault before it is trusted
    EXPLORING = "exploring"  # programs are generated, and suspects are worked on beside
    PAUSED = "paused"  # the machine lacks room on the disk or a compiler: nothing new begins
    SETTLING = "ending: triage"  # no program is generated any more; suspects have some time left
    STOPPING = "stopping"  # somebody stopped it: what runs ends within seconds, suspects stay on the shelf
    ENDED = "ended"  # nothing of it runs any more


# By state, those that may follow; STOPPING and ENDED may follow any.
CHANGES = {
    State.STARTING: (State.CHECKING,),
    State.CHECKING: (State.EXPLORING,),
    State.EXPLORING: (State.PAUSED, State.SETTLING),
    State.PAUSED: (State.EXPLORING, State.SETTLING),
    State.SETTLING: (State.PAUSED,),
    State.STOPPING: (),
    State.ENDED: (),
}


class Course:
    """The states that one campaign goes through.

    since   when it first was in each state, by `time.monotonic`.
    lacks   what the machine lacks for a new program to begin; "" where it lacks nothing.

    The main thread makes the changes. A stop may come at any moment, from a signal handler too, and is for good: a
    change that the main thread makes afterwards does nothing.
    """

    def __init__(self) -> None:
        self.since = {State.STARTING: time.monotonic()}
        self.lacks = ""
        self._at = State.STARTING
        self._over = threading.Event()

    @property
    def state(self) -> State:
        return next((last for last in (State.ENDED, State.STOPPING) if last in self.since), self._at)

    @property
    def stopped(self) -> bool:
        """Whether somebody stopped it, also once it has ended."""
        return State.STOPPING in self.since

    def change(self, to: State) -> None:
        """Go on to a state of `CHANGES`; nothing where it was stopped or has ended."""
        before = self.state
        if before in (State.STOPPING, State.ENDED):
            return
        assert to in CHANGES[before], f"from {before.value} to {to.value}"
        self._at = to
        self.since.setdefault(to, time.monotonic())

    def stop(self) -> None:
        """Change to STOPPING."""
        self.since.setdefault(State.STOPPING, time.monotonic())

    def end(self) -> None:
        """Change to ENDED."""
        self.since.setdefault(State.ENDED, time.monotonic())
        self._over.set()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, once that is so or this time is over."""
        return self._over.wait(seconds)

    def pause(self, lacks: str) -> None:
        """Pause while the machine lacks something, and go on once it lacks nothing: with what it was at before."""
        self.lacks = lacks
        if lacks and self.state in (State.EXPLORING, State.SETTLING):
            self.change(State.PAUSED)
        elif not lacks and self.state is State.PAUSED:
            self.change(State.SETTLING if State.SETTLING in self.since else State.EXPLORING)

    def seconds(self, state: State) -> float:
        """Since it first was in this state; 0 before."""
        return time.monotonic() - self.since[state] if state in self.since else 0.0
