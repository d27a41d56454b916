"""The trainer's command for tests that start it under mpirun: with checks and with accidents.

    mpirun -n 2 python rank_program.py '{"float64": true}' [options of the trainer]

float64: the model computes in float64. accidents: [[step, rank, what happens right after that
update]]. slow_validation: seconds that rank 0 sleeps in a validation;
every rank writes the seconds for which it kept a core busy meanwhile to computed-RANK.txt.
slow_end: seconds that rank 0 sleeps before it scores the model.
Each rank writes the rows that it computes to rows-RANK.txt, and only rank 0 may write other files.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from minitf.training import commandline, update
from minitf.training.distributed import rank_and_size
from minitf.training.evaluation import Validator
from minitf.training.log import RunLog
from minitf.training.trainer import Trainer
from minitf.transformer import Transformer


def act(trainer, what):
    """Let an accident happen to this process."""
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "terminate":
        signal.raise_signal(signal.SIGTERM)
    elif what == "use up the memory":
        raise MemoryError
    elif what == "err":
        raise RuntimeError("nobody foresaw this")
    elif what == "spoil a weight":
        trainer.optimizer.data[3] += 1


def watch_updates(accidents, out):
    """Note what each update computes, and let accidents happen after it: (step, rank, what).

    A note has the number of the micro-batch, of the row in it, the row, and the tokens of
    the update.
    """
    plain = Trainer.update

    def watched(self, *batches):
        backward = self.updater.backward

        def noted(batch, n_tokens, step):
            for i, (source, target) in enumerate(
                zip(batch.source.tolist(), batch.target_out.tolist(), strict=True)
            ):
                print(step, batch.first_row + i, source, target, n_tokens, file=out)
            return backward(batch, n_tokens, step)

        self.updater.backward = noted
        try:
            result = plain(self, *batches)
        finally:
            self.updater.backward = backward
        for step, rank, what in accidents:
            if (self.step, rank_and_size()[0]) == (step, rank):
                act(self, what)
        return result

    Trainer.update = watched


def slow_down_validation(seconds):
    """Let a validation take longer, and note how busy this rank was during it."""
    measure, validate = Validator.measure, Trainer.validate

    def slow(self, translator):
        time.sleep(seconds)
        return measure(self, translator)

    def noted(self):
        started = time.process_time()
        validate(self)
        Path(f"computed-{rank_and_size()[0]}.txt").write_text(str(time.process_time() - started))

    Validator.measure, Trainer.validate = slow, noted


def slow_down_the_end(seconds):
    """Let rank 0 say when it begins to score the model, and take longer."""
    finish = commandline.finish

    def slow(trainer, command):
        trainer.log.say("scoring")
        for _ in range(int(10 * seconds)):
            time.sleep(0.1)
        return finish(trainer, command)

    commandline.finish = slow


def refuse_to_write(*arguments):
    raise AssertionError(f"rank {rank_and_size()[0]} writes {arguments}")


def main(wish, arguments):
    update._MIN_ACTIVATIONS = 1  # else batches this small would not be cut over threads
    RunLog.draw = lambda self, seconds=0: None
    os.fsync = lambda handle: None
    if rank_and_size()[0]:
        os.replace = os.mkdir = refuse_to_write

    def in_float64(*given, **named):
        return Transformer(*given, **named).astype(np.float64)

    model = in_float64 if wish.get("float64") else Transformer
    with open(f"rows-{rank_and_size()[0]}.txt", "w") as out:
        watch_updates(wish.get("accidents", ()), out)
        if "slow_validation" in wish:
            slow_down_validation(wish["slow_validation"])
        if "slow_end" in wish:
            slow_down_the_end(wish["slow_end"])
        return commandline.main(arguments, "program", model)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
