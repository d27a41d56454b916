"""Graceful shutdown: on a signal, finish the update, save a checkpoint, exit."""

import contextlib
import signal


class StopRequest:
    """Whether the run was asked to stop before its end, and why.

    reason: None until somebody asks this process, at any moment.
    agreed: whether one of the ranks was asked. The training loop sets it after an update, on all
    ranks alike, and stops.
    """

    def __init__(self):
        self.reason = None
        self.agreed = False

    def ask(self, reason):
        """Ask the run to stop. The first reason counts."""
        self.reason = self.reason or reason


class Interrupted(Exception):
    """Raised in the middle of a validation when the run was asked to stop."""


@contextlib.contextmanager
def stop_on_signals(stop):
    """Let Ctrl-C, SIGTERM, SIGUSR1 and a closed terminal ask the run in this block to stop.

    stop: a StopRequest.
    A second signal raises KeyboardInterrupt: the run stops immediately. A second SIGHUP does not:
    a shell and the system may both send one when a terminal is closed.
    """
    received = False

    def handle(number, frame):
        nonlocal received
        if received and number != getattr(signal, "SIGHUP", None):
            raise KeyboardInterrupt("stopped at once: --resume continues from the last checkpoint")
        received = True
        stop.ask(f"{signal.Signals(number).name} received")

    before = {}
    # Windows has neither SIGHUP nor SIGUSR1, other systems no SIGBREAK. mpirun forwards SIGUSR1 and
    # lets the ranks finish; after SIGTERM it kills them a moment later.
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is None or signal.getsignal(number) is signal.SIG_IGN:  # nohup ignores SIGHUP
            continue
        with contextlib.suppress(ValueError):  # only the main thread may set handlers
            before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
