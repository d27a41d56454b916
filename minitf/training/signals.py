"""How a signal ends a run: at the next place where its state is whole."""

import contextlib
import signal

__all__ = ["Interrupted", "stop_on_signals"]


class Interrupted(Exception):
    """A signal asked to stop in the middle of a translation."""


@contextlib.contextmanager
def stop_on_signals(trainer):
    """Let Ctrl-C, SIGTERM and a closed terminal end the run after the current update,
    with a checkpoint.
    """

    def stop(number, frame):
        if trainer.interrupted:  # asked twice: at once
            raise KeyboardInterrupt
        trainer.interrupted = True
        trainer.stopping = f"{signal.Signals(number).name} received"

    before = {}
    # Windows has neither SIGHUP nor SIGUSR1, the others no SIGBREAK. mpirun passes SIGUSR1 on and
    # lets us finish; on SIGTERM it kills its ranks a moment later.
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGBREAK"):
        number = getattr(signal, name, None)
        if number is None or signal.getsignal(number) is signal.SIG_IGN:  # as nohup wants it
            continue
        with contextlib.suppress(ValueError):  # only the main thread may set handlers
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
