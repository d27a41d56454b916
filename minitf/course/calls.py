"""Calls between two processes: values go by copy, functions by reference.

The process that judges has the checks, the process of the answers has the answers. A function of
one can be called in the other; a Tensor that the call returns keeps its history in the process that
made it, and a gradient that arrives here is sent back through it. Nothing else crosses the pipe: an
answer cannot reach an object of the process that judges it, and what it returns arrives as plain
numbers, texts, lists, arrays and Tensors, whatever methods its own classes have.

A message is a line of JSON. Arrays are base64, so no digit is lost.
"""

import base64
import io
import json
import pickle
import traceback

import numpy as np

from minitf.optim import Adam
from minitf.tensor import Tensor, record

LONGEST = 2**24  # bytes of a message: no exercise needs a tenth of them
LONGEST_CALL = 2**17  # bytes of a call that an answer makes: what is called computes over there
KINDS = "biuf"  # the dtypes that are numbers


class AnswerError(Exception):
    """What a function of the other process raised: its kind, its text and its line, in words."""


class Ended(Exception):
    """The other process cannot be reached: why, in words."""


class Channel:
    """One end of the pipe between two processes.

    send, receive: write one message, and wait for one (bytes). sources: the names of the files
    whose lines an error may name. trusted: whether the other end may send objects of the library
    by pickle, which could run anything here: only the process that judges may.
    failures: the errors of the calls so far, also of those of a gradient.
    """

    def __init__(self, send, receive, sources=(), trusted=False):
        self.send, self.receive = send, receive
        self.sources, self.trusted = sources, trusted
        self.failures = []
        self.kept = []  # functions, and (Tensor, inputs of its call): the other end has their index

    def keep(self, thing):
        """Return the number by which the other end can call a function, or ask for a gradient."""
        self.kept.append(thing)
        return len(self.kept) - 1

    def ask(self, key, arguments=(), options=None):
        """Call a function of the other end, and serve its own calls until it returns.

        Raises AnswerError if it raises an error, Ended if there is nobody any more.
        """
        try:
            return self._asked(key, arguments, options or {})
        except (AnswerError, Ended) as error:
            self.failures.append(error)
            raise

    def _asked(self, key, arguments, options):
        given = [*arguments, *options.values()]
        try:
            sent = {"values": [self._packed(value) for value in given]}
        except TypeError:
            # A model and its optimizer share parameters, so they are sent together.
            stream = io.BytesIO()
            _Pickler(stream).dump(given)
            sent = {"pickle": base64.b64encode(stream.getvalue()).decode()}
        self._write({"call": key, "options": list(options), **sent})
        while True:
            message = self._read()
            if "call" in message:
                self.serve(message)
            elif "failed" in message:
                raise AnswerError(str(message["failed"]))
            else:
                return self._returned(message, given)

    def _returned(self, message, given):
        """Return the result of a call with these arguments, which may have changed their state."""
        inputs = [value for value in given if isinstance(value, Tensor)]
        try:
            for index, state in message["states"]:
                given[index].load_state(self._unpacked(state))
            return self._unpacked(message["result"], inputs)
        except Exception as error:  # the other end may send anything
            raise Ended("it answered with something that is no value") from error

    def serve(self, message=None):
        """Answer one call of the other end."""
        message = message or self._read()
        try:
            reply = self._reply(message)
        except (Ended, KeyboardInterrupt):
            raise
        except BaseException as error:  # also SystemExit
            reply = {"failed": described(error, self.sources)}
        try:
            self._write(reply)
        except ValueError as error:  # too large for a message, or for a number in JSON
            self._write({"failed": described(error, ())})

    def _reply(self, message):
        kept, names = self.kept[message["call"]], message["options"]
        if "pickle" in message and self.trusted:
            given = pickle.loads(base64.b64decode(message["pickle"]))
        else:
            given = [self._unpacked(value) for value in message["values"]]
        if isinstance(kept, tuple):
            return {"result": self._packed(_gradients(*kept, *given)), "states": []}
        tensors = [value for value in given if isinstance(value, Tensor)]
        before = [tensor.numpy().copy() for tensor in tensors]
        count = len(given) - len(names)
        options = dict(zip(names, given[count:], strict=True))
        result = kept(*given[:count], **options)
        if hasattr(result, "load_state"):  # `return model`, of a function that returns nothing
            result = None
        result = self._packed(result, given)
        for tensor, numbers in zip(tensors, before, strict=True):
            if not np.array_equal(tensor.numpy(), numbers, equal_nan=True):
                raise ValueError("it changed the Tensor that it was given")
        states = [
            [index, self._packed(value.state())]
            for index, value in enumerate(given)
            if hasattr(value, "load_state")
        ]
        return {"result": result, "states": states}

    def _write(self, message):
        self.send(json.dumps(message).encode() + b"\n")

    def _read(self):
        line = self.receive()
        try:
            message = json.loads(line)
            if "call" in message and not self.trusted and len(line) > LONGEST_CALL:
                raise Ended("it calls a function with too many numbers")
            if isinstance(message, dict) and message.keys() & {"call", "failed", "result"}:
                return message
        except (ValueError, TypeError, RecursionError):
            pass
        raise Ended("it answered with something that is no message")

    # Values -----------------------------------------------------------------------------------

    def _packed(self, value, inputs=()):
        """Return a value as JSON can hold it. inputs: of the call that returns the value."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Tensor):
            key = self.keep((value, [x for x in inputs if isinstance(x, Tensor)]))
            return ["tensor", _array(value.numpy()), key]
        if isinstance(value, np.ndarray | np.generic):
            if value.dtype.kind in KINDS:
                kind = "number" if isinstance(value, np.generic) else "array"
                return [kind, _array(np.asarray(value))]
            return self._packed(value.tolist(), inputs)
        if hasattr(value, "log_probability"):  # a Hypothesis of lesson 08
            fields = [value.ids, value.log_probability, value.score]
            return ["hypothesis", [self._packed(field, inputs) for field in fields]]
        for kind in int, float, str:  # without what a subclass adds
            if isinstance(value, kind):
                return kind.__new__(kind, value) if kind is not str else str.__str__(value)
        if isinstance(value, dict):
            items = dict.items(value)
            return ["dict", [[self._packed(part, inputs) for part in item] for item in items]]
        if hasattr(value, "load_state"):  # a model or an optimizer: `ask` sends it in another way
            raise TypeError(f"{type(value).__name__} has no copy")
        if hasattr(value, "__array__"):
            return self._packed(np.asarray(value), inputs)
        if hasattr(value, "__iter__"):
            kind = "tuple" if isinstance(value, tuple) else "list"
            kind = "set" if isinstance(value, set | frozenset) else kind
            return [kind, [self._packed(part, inputs) for part in value]]
        if callable(value):
            return ["function", self.keep(value)]
        if hasattr(value, "__float__"):  # a Fraction or a Decimal
            return float(value)
        raise TypeError(f"{type(value).__name__} is no number, text, list, array or function")

    def _unpacked(self, packed, inputs=()):
        """Return the value of `_packed`: nothing but the types that this function makes.

        inputs: the Tensors from which a Tensor of the other end was computed.
        """
        if not isinstance(packed, list):
            if isinstance(packed, dict):
                raise Ended("it answered with something that is no value")
            return packed
        kind, *parts = packed
        if kind in ("array", "number"):
            array = _from_array(parts[0])
            return array if kind == "array" else array[()]
        if kind == "tensor":
            data, key = _from_array(parts[0]), parts[1]
            if not inputs:
                return Tensor(data)
            return record(data, inputs, lambda gy: tuple(self.ask(key, [gy])), converts=True)
        if kind == "function":
            return lambda *arguments, **options: self.ask(parts[0], arguments, options)
        if kind == "dict":
            return {self._unpacked(key): self._unpacked(value, inputs) for key, value in parts[0]}
        values = [self._unpacked(part, inputs) for part in parts[0]]
        if kind == "hypothesis":
            from minitf.decode import Hypothesis  # here: one lesson needs it

            return Hypothesis(*values)
        return {"list": list, "tuple": tuple, "set": set}[kind](values)


class _Pickler(pickle.Pickler):
    """Pickle an Adam as what makes a new one: its arrays are those of the parameters."""

    def reducer_override(self, thing):
        if isinstance(thing, Adam):
            return _adam, (thing.named_parameters, thing.state())
        return NotImplemented


def _adam(named_parameters, state):
    """Return a new Adam of parameters that may have gradients, with this state."""
    gradients = [parameter.grad for _, parameter in named_parameters]
    optimizer = Adam(named_parameters)
    optimizer.load_state(state)
    for (_, parameter), gradient in zip(named_parameters, gradients, strict=True):
        if gradient is not None:
            parameter.backward(gradient)
    return optimizer


def _gradients(tensor, inputs, gy):
    """Return the gradients of a call's inputs, given that of its result."""
    before = [x.grad for x in inputs]
    try:
        for x in inputs:
            x.grad = None
        tensor.backward(gy)
        return [x.grad for x in inputs]
    finally:
        for x, grad in zip(inputs, before, strict=True):
            x.grad = grad


def _array(array):
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return [array.dtype.str, list(array.shape), data]


def _from_array(packed):
    name, shape, data = packed
    dtype = np.dtype(name)
    if dtype.kind not in KINDS:
        raise Ended("it answered with an array of something else than numbers")
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()


def described(error, sources):
    """Return an error in a line, with the last line of these files that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename in sources]
    cell = f"{own[-1].filename}, " if own and own[-1].filename.startswith("cell ") else ""
    where = f"({cell}line {own[-1].lineno}): " if own else ""
    if isinstance(error, SyntaxError) and error.lineno:
        return f"(line {error.lineno}): {type(error).__name__}: {error.msg}"
    try:
        text = " ".join(str(error).split())
    except Exception:  # the class of an answer may do anything
        text = ""
    return f"{where}{type(error).__name__}: {text}".removesuffix(": ")
