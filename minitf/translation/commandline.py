"""Translate text: given in quotes, in a file, through a pipe or at a prompt."""

import argparse
import collections
import contextlib
import errno
import io
import json
import os
import queue
import re
import shutil
import signal
import stat
import sys
import threading
import time
from pathlib import Path

from minitf.backend import use
from minitf.errors import UserError, in_file

__all__ = ["main", "parse"]

INSTALLED = "minitf-translate"  # the command of the installed package, which brings no model
PROGRAM = INSTALLED if Path(sys.argv[0]).stem == INSTALLED else "translate.py"
LINES, BYTES = 500, 1 << 20  # so much text is sorted by length and translated together
RECENT, SHORT = 10_000, 500  # so many translations are remembered, of lines of at most so many characters
PATIENCE = 0.05  # seconds that a line from a pipe waits for others to share a batch with
BAR_AFTER = 2  # seconds before the progress bar appears
NOT_TEXT = {  # how files begin that are no plain text
    rb"PK\x03\x04": "a Word, LibreOffice or zip file",
    rb"\xd0\xcf\x11\xe0": "an old Word file",
    rb"%PDF-": "a PDF",
    rb"\{\\rtf": "an RTF file",
    rb"\xff\xfe[^\0]\0|\xfe\xff\0[^\0]": "in UTF-16",
}
CAPTIONS = {
    "source": "Where the model looks in the input to choose each word of the output (decoder to source",
    "encoder": "Where the model looks in the input to understand each word of it (encoder self-attention",
    "decoder": "Where the model looks in the output so far to choose its next word (decoder self-attention",
}
HINTS = {  # what to do where a file cannot be written
    errno.ENOENT: "its folder does not exist: make it, or choose another one",
    errno.ENOTDIR: "its folder is a file: choose another one",
    errno.EISDIR: "it is a folder: name a file in it",
    errno.EACCES: "you may not write there: choose another folder",
    errno.EPERM: "you may not write there: choose another folder",
    errno.EROFS: "you may not write there: choose another folder",
    errno.ENOSPC: "the disk is full: make room, or choose another one",
    errno.EDQUOT: "your disk quota is used up: free some space, or choose another one",
    errno.ENAMETOOLONG: "choose a shorter name",
}
LANGUAGES = """
    ar Arabic, bg Bulgarian, cs Czech, da Danish, de German, el Greek, en English, es Spanish, et Estonian, fi Finnish,
    fr French, hi Hindi, hu Hungarian, it Italian, ja Japanese, ko Korean, lt Lithuanian, lv Latvian, nl Dutch,
    no Norwegian, pl Polish, pt Portuguese, ro Romanian, ru Russian, sk Slovak, sl Slovene, sv Swedish, tr Turkish,
    uk Ukrainian, vi Vietnamese, zh Chinese
"""

MORE = """\
examples:
  translate.py "The children are playing in the garden."
  translate.py                                 (asks for sentences to translate)
  translate.py --input letter.txt --paragraphs --output brief.txt
  translate.py -- "-5 degrees?"                (text that starts with a dash)
  tail -f chat.txt | translate.py --format json
  translate.py --attention picture.png "The cat I saw was black."

lines and paragraphs:
  Each line is translated by itself and gives one line, in the same order; an
  empty line stays empty. A line may hold several sentences.

  In a letter, a sentence often continues on the next line. Use --paragraphs:
  it joins the lines up to the next empty line (or one of blanks only), and each
  paragraph gives one line. Empty lines stay. --scores, --nbest and --format
  then count a paragraph as a line. A paragraph of more than a million
  characters is cut, at the end of a line, into several.

  Text is read as UTF-8; bytes that are not UTF-8 become U+FFFD. A line ends at
  a line feed and nowhere else. The output holds no control characters.

what is written:
  --format text       TRANSLATION
    with --scores     SCORE <tab> TRANSLATION
    with --nbest N    NUMBER ||| TRANSLATION ||| SCORE, up to N lines for each
                      line, the best first; NUMBER is that of the input line,
                      from 0, as Moses and Marian count
  --format json       {"source", "translation", "score", "log_probability",
                      "nbest": [{"translation", "score", "log_probability"}]}
  SCORE is ln P(translation) / ((5 + length) / 6)^alpha; greater is better.

The exit code is 0, or 2 after a one-line message, or 130 after Ctrl-C. The
environment variable MINITF_BACKEND chooses a backend as --backend does.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise SystemExit(_complain(f"{message} (see --help)"))


def _number(kind, least, most):
    def parse(text):
        with contextlib.suppress(ValueError):
            if least <= kind(text) <= most:
                return kind(text)
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"must be {what} from {least} to {most}, not {text!r}")

    return parse


def _parser(model):
    parser = _Parser(prog=PROGRAM, description=__doc__, epilog=MORE, allow_abbrev=False, add_help=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = f"{PROGRAM} [OPTIONS] [TEXT ...]"
    add = parser.add_argument_group("text").add_argument
    add("text", nargs="*", metavar="TEXT", help="text to translate, in quotes; without it, text is read")
    add("--input", metavar="FILE", help="read the text from this file (default: from a pipe or the keyboard)")
    add("--paragraphs", action="store_true", help="join the lines of each paragraph first: for letters")
    add = parser.add_argument_group("output").add_argument
    add("--output", metavar="FILE", help="write to this file, when all is translated (default: show each line at once)")
    add("--format", choices=("text", "json"), default="text", help="plain text (default), or a JSON object per line")
    add("--scores", action="store_true", help="write the score before each translation")
    add("--nbest", type=_number(int, 1, 1000), default=1, metavar="N", help="give the N best translations")
    add = parser.add_argument_group("model").add_argument
    trained = "folder of a trained model" + (" (default: English to German)" if model else "")
    add("--model", metavar="DIR", default=model, help=trained)
    wide = "compare N translations in the making; more takes longer, 1 is greedy (default: 4, or as many as --nbest)"
    add("--beam", type=_number(int, 1, 1000), metavar="N", help=wide)
    penalty = "length penalty: a greater one favours longer translations (default 0.6)"
    add("--alpha", type=_number(float, 0, 10), default=0.6, metavar="A", help=penalty)
    extra = "a translation has at most N subwords (parts of words) more than its source (default 50)"
    add("--max-extra", type=_number(int, 0, 10_000), default=50, metavar="N", help=extra)
    add("--backend", choices=("numpy", "cupy"), help="compute on the CPU (numpy) or on the GPU (cupy)")
    add = parser.add_argument_group("sampling, for variety").add_argument
    add("--sample", action="store_true", help="draw each word by its probability, instead of the best translation")
    add("--temperature", type=_number(float, 0, 100), metavar="T", help="below 1 likely words are drawn more often")
    add("--top-k", type=_number(int, 1, 10**6), metavar="K", help="draw among the K likeliest words only")
    likely = "draw among the likeliest words that together have the probability P"
    add("--top-p", type=_number(float, 0.001, 1), metavar="P", help=likely)
    add("--seed", type=_number(int, 0, 2**63), metavar="N", help="another seed draws another text (default 0)")
    add = parser.add_argument_group("picture of the attention").add_argument
    add("--attention", metavar="FILE", help="draw which words the model looks at in the first sentence: .png .pdf .svg")
    looks = "attention of the output to the source (default), or within the encoder or the decoder"
    add("--attention-kind", choices=tuple(CAPTIONS), help=looks)
    add("--attention-subwords", action="store_true", help="draw the model's own subwords, not words")
    add("--layer", type=_number(int, 1, 1000), metavar="N", help="draw this layer, 1 is the lowest (default: the last)")
    add = parser.add_argument_group("help").add_argument
    add("--help", action="help", help="show this text (also -h)")
    return parser


def parse(arguments=None, model=None):
    """Read the command line; a mistake ends in one line on stderr and exit code 2.

    model: the folder of the model that is used without --model.
    """
    parser = _parser(model)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)  # after it all is text, also "-Hello."
    words = ("--help" if word == "-h" else word for word in arguments[:end])  # as an option it would claim -hello
    options, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        parser.error(f"{unknown[0]} is not an option: put -- before text that starts with a dash")
    options.text += arguments[end + 1 :]
    if options.model is None:
        parser.error("name a trained model with --model DIR: the repository has one in examples/models/en-de")
    if options.text and options.input is not None:
        parser.error("TEXT and --input: give one of them")
    _check_sampling(parser, options)
    if options.beam is None:
        options.beam = max(4, options.nbest)
    if options.nbest > options.beam:
        parser.error(f"--nbest {options.nbest} needs a beam at least as wide: set --beam {options.nbest}")
    if not options.attention and (options.attention_kind or options.layer or options.attention_subwords):
        parser.error("--attention-kind, --attention-subwords and --layer need a picture: name it with --attention FILE")
    return options


def _check_sampling(parser, options):
    """Refuse options that contradict each other, and collect those of sampling in options.draw."""
    options.draw = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "seed")}
    options.draw = {name: value for name, value in options.draw.items() if value is not None}
    if options.draw and not options.sample:
        parser.error("--temperature, --top-k, --top-p and --seed belong to sampling: add --sample")
    if options.sample and (options.beam or options.nbest > 1 or options.attention):
        parser.error("--sample draws one translation of each line: leave out --beam, --nbest and --attention")


class _Mistake(Exception):
    """A mistake in what the user asked for; its text is one line. The library's own is UserError."""


def main(arguments=None, model=None, backend=""):
    """Run the command line; returns the exit code: 0, 2 after a one-line message, 130 after Ctrl-C.

    model: the folder of the model that is used without --model. backend: what MINITF_BACKEND said, if the caller has
    kept it from `import minitf`: here a wrong name is an error only where --backend names no other.
    """
    try:
        return _run(parse(arguments, model), backend)
    except KeyboardInterrupt as stop:
        if _is_terminal(sys.stderr):
            _say("")  # the terminal has written ^C
        if stop.args:
            _complain(stop)
        return 130
    except BrokenPipeError:  # whoever reads the output has read enough
        return 0
    except MemoryError:
        return _complain("out of memory: take a smaller --beam")
    finally:
        _settle_stdout()


def _run(options, backend):
    try:
        if options.backend:
            use(options.backend)
        elif backend:
            with in_file("MINITF_BACKEND"):
                use(backend)
        translate(options)
    except (UserError, _Mistake) as error:
        return _complain(error)
    return 0


def _complain(message):
    _say(_printable(f"{PROGRAM}: {message}"))
    return 2


def _printable(text):
    return "".join(c if c.isprintable() else " " for c in text)


def _say(message, end="\n"):
    if sys.stderr:  # it may be closed
        print(message, end=end, file=sys.stderr, flush=True)


def translate(options):
    """Translate what the options name, a batch of lines at a time."""
    from minitf.translation import Translator

    with _ended_by_exception(), _input(options) as file, _output(options.output, file) as write:
        translator = Translator.load(options.model)
        search = (options.beam, options.alpha, options.max_extra)
        number, undrawn = 0, options.attention
        read = _decoded(_typed(file, options) if file.isatty() and _is_terminal(sys.stderr) else _batches(file))
        recent = _Recent(lambda lines, progress: translator.translate(lines, *search, options.nbest, progress=progress))
        with _Bar(file) as bar:
            for raw, lines in _paragraphs(read) if options.paragraphs else read:
                sentence = next(filter(translator.parts, lines), None) if undrawn else None
                if sentence:
                    _draw(translator, sentence, search, options)
                    undrawn = None
                if options.sample:  # the number of a line decides what is drawn for it, however the lines come
                    shared = {"alpha": options.alpha, "max_extra": options.max_extra, "progress": bar.over(raw)}
                    found = translator.sample(lines, first=number, **shared, **options.draw)
                else:
                    found = recent.translate(lines, options.nbest, bar.over(raw))
                bar.clear()
                write("".join(_rendered(number + i, lines[i], found[i], options) for i in range(len(lines))))
                number += len(lines)
        if undrawn:
            raise _Mistake("--attention: there is no text to draw a picture of: give a sentence")


class _Recent:
    """Translates equal lines once: those of one batch, and those that came not long before.

    search: what translates a list of different lines.
    """

    def __init__(self, search):
        self.search, self.known = search, collections.OrderedDict()

    def translate(self, lines, n_best, progress):
        """Give what `search` would give for each line."""
        new = [line for line in dict.fromkeys(lines) if line not in self.known]
        self.known.update(zip(new, self.search(new, progress), strict=True))
        found = [self.known[line] for line in lines]
        for line in dict.fromkeys(lines):
            if len(line) <= SHORT:
                self.known.move_to_end(line)
            else:
                del self.known[line]
        while len(self.known) * n_best > RECENT:
            self.known.popitem(last=False)
        return found


@contextlib.contextmanager
def _input(options):
    """Give an unbuffered binary file: a read returns what has come, and does not wait for more."""
    if options.text:
        lines = (line if line.endswith("\n") else line + "\n" for line in options.text)
        yield io.BytesIO("".join(lines).encode(errors="surrogatepass"))
    elif options.input not in (None, "-"):
        try:
            file = open(options.input, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise _Mistake(f"{options.input}: cannot be read ({error.strerror}): name a text file") from None
        with file:
            _check_is_text(file, options.input)
            yield file
    elif sys.stdin is None:
        raise _Mistake("standard input is closed: give TEXT or --input FILE")
    else:
        yield getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)


def _check_is_text(file, name):
    """Refuse what a word processor wrote, whose bytes would all be translated."""
    start = b""
    if _size(file) is not None:
        with contextlib.suppress(OSError):  # whoever reads the text will hear of it
            start = file.read(8)
            file.seek(0)
    for pattern, kind in NOT_TEXT.items():
        if re.match(pattern, start, re.DOTALL):
            raise _Mistake(f"{name}: is {kind}: save it as plain text, in UTF-8")


def _size(file):
    """How many bytes the file has, or None where nobody knows: of a pipe or a terminal."""
    if isinstance(file, io.BytesIO):
        return len(file.getbuffer())
    info = os.fstat(file.fileno())
    return info.st_size if stat.S_ISREG(info.st_mode) else None


def _batches(file):
    """Give lists of lines, without their line feeds, to be translated together.

    A thread reads ahead. From a file the lists are full; what comes from a pipe is not kept waiting for more.
    """
    chunks = queue.Queue(4)
    threading.Thread(target=_read, args=(file, chunks), daemon=True).start()
    patience = PATIENCE if _size(file) is None else None
    lines, size, chunk = [], 0, ()
    while chunk is not None:
        try:
            chunk = chunks.get(timeout=patience if lines else None)
        except queue.Empty:
            yield lines
            lines, size = [], 0
            continue
        if isinstance(chunk, Exception):
            if lines:
                yield lines
            raise chunk
        for line in chunk or ():
            lines.append(line)
            size += len(line)
            if len(lines) == LINES or size >= BYTES:
                yield lines
                lines, size = [], 0
    if lines:
        yield lines


def _read(file, chunks):
    """Put lists of whole lines into the queue, and None at the end of the file."""
    begun = []  # of a line whose end has not come yet
    try:
        while (data := file.read(1 << 16)) != b"":
            if data is None:  # a pipe that does not wait, and has nothing at the moment
                time.sleep(PATIENCE)
                continue
            lines, feed, rest = data.rpartition(b"\n")
            if feed:
                chunks.put(b"".join([*begun, lines]).split(b"\n"))
                begun = []
            begun.append(rest)
        if last := b"".join(begun):
            chunks.put([last])
        chunks.put(None)
    except OSError as error:
        chunks.put(_Mistake(f"the input cannot be read ({error.strerror}): name a text file"))
    except Exception as error:  # no memory for a line, say: whoever waits at the other end must hear of it
        chunks.put(error)


def _is_terminal(stream):
    return bool(stream) and stream.isatty()  # it may be closed


def _typed(file, options):
    """Greet whoever types the lines, prompt, and give lists of lines."""
    source, target = _languages(options.model)
    languages = f"{source} to {target}, " if source and target else ""
    unit = "an empty line ends a paragraph" if options.paragraphs else "one sentence per line"
    end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
    _say(_printable(f"{languages}model {Path(options.model).resolve().name}; {unit}, {end} ends"))
    yield from _edited() if file.fileno() == 0 and _is_terminal(sys.stdout) else _prompted(file)
    _say("")  # the shell's own prompt comes next


def _edited():
    """Read lines with the arrow keys and a history, where the platform has them."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() uses it; imported here, because it writes to the terminal
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # any bytes can be typed
    with contextlib.suppress(EOFError):
        while True:  # what was pasted may be several lines
            yield input("> ").encode(errors="surrogateescape").split(b"\n")


def _prompted(file):
    """Read lines as they come, where the terminal shows the prompt but not the translations."""
    _say("> ", end="")
    for lines in _batches(file):
        yield lines
        _say("> ", end="")


def _languages(model):
    """Give the English names of the two languages that the model's notes have, None for an unknown one."""
    from minitf.files.models import read_notes

    notes = read_notes(model)
    names = dict(re.findall(r"(\w+) (\w+)", LANGUAGES))
    return [names.get(str(notes.get(f"{side}_language"))) for side in ("source", "target")]


def _decoded(batches):
    """Give pairs: lists of lines as bytes, and as text.

    A carriage return before the line feed and a byte order mark are not part of a line.
    """
    for raw in batches:
        lines = [line.removesuffix(b"\r").decode(errors="replace").removeprefix("\ufeff") for line in raw]
        yield raw, lines


def _paragraphs(pairs):
    """Join the lines of each paragraph, at most BYTES characters or little more; an empty line stays a line.

    Gives pairs like those it takes: the lines as they were read, and the paragraphs that end in them.
    """
    begun, size = [], 0
    for raw, lines in pairs:
        texts = []
        for line in map(str.strip, lines):
            if line:
                begun.append(line)
                size += len(line)
            if begun and (not line or size >= BYTES):
                texts.append(" ".join(begun))
                begun, size = [], 0
            if not line:
                texts.append("")
        yield raw, texts
    if begun:
        yield [], [" ".join(begun)]


@contextlib.contextmanager
def _output(path, source):
    """Give the function that writes text: to standard output at once, into a file that appears when it is whole."""
    if path in (None, "-"):
        if sys.stdout is None:
            raise _Mistake("standard output is closed: use --output FILE")
        yield lambda text: _write(sys.stdout.buffer, "standard output", text)
        return
    path = os.path.realpath(path)  # a link stays a link
    from_file = not isinstance(source, io.BytesIO) and os.path.isfile(path)
    if from_file and os.path.samestat(os.stat(path), os.fstat(source.fileno())):
        raise _Mistake(f"{path}: the text would be replaced by its translation: give --output another name")
    is_device = os.path.exists(path) and not os.path.isfile(path)  # or a pipe: not to be replaced by a file
    aside = path if is_device else f"{path}.{os.getpid()}.tmp"
    with _blame(path):
        file = open(aside, "wb")  # noqa: SIM115
    try:
        yield lambda text: _write(file, path, text)
        with _blame(path):
            file.close()
            if os.path.isfile(path):
                shutil.copymode(path, aside)
            if not is_device:
                os.replace(aside, path)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(*([] if is_device else [f"stopped: nothing was written to {path}"])) from None
    finally:
        with contextlib.suppress(OSError):
            file.close()
        if not is_device:
            with contextlib.suppress(OSError):
                os.unlink(aside)


@contextlib.contextmanager
def _ended_by_exception():
    """Let a kill and a closed terminal raise SystemExit, or they would leave half a file."""

    def end(number, frame):
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]  # nohup ignores SIGHUP
    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _write(file, name, text):
    rest = memoryview(text.encode())
    with _blame(name):
        while rest:  # without a buffer, as under python -u, a pipe may take a part only
            rest = rest[file.write(rest) or 0 :]
        file.flush()


@contextlib.contextmanager
def _blame(name):
    try:
        yield
    except OSError as error:
        # Windows says EINVAL of a pipe that nobody reads any more.
        if error.errno == errno.EPIPE or (os.name == "nt" and error.errno == errno.EINVAL):
            raise BrokenPipeError from None
        hint = HINTS.get(error.errno, "choose another file")
        raise _Mistake(f"{name}: not written ({error.strerror}): {hint}") from None


def _settle_stdout():
    """Give up what standard output refuses to take, so that Python does not try it again when it ends."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _rendered(number, line, translations, options):
    """Give the line, or lines, that the output has for one line of the input."""
    best = translations[0]
    if options.format == "json":
        found = [
            {"translation": t.text, "score": round(t.score, 6), "log_probability": round(t.log_probability, 6)}
            for t in translations
        ]
        text = json.dumps({"source": line, **found[0], "nbest": found}, ensure_ascii=False)
        # JSON escapes only the control characters up to U+001F itself.
        return re.sub("[\x7f-\x9f\u2028\u2029]", lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"
    if options.nbest > 1:
        return "".join(f"{number} ||| {t.text} ||| {t.score:.4f}\n" for t in translations)
    return (f"{best.score:.4f}\t" if options.scores else "") + best.text + "\n"


def _draw(translator, sentence, search, options):
    """Draw who attends to whom when the sentence is translated."""
    from minitf import plot

    kind, last = options.attention_kind or "source", len(translator.model.encoder.layers)
    weights, rows, columns = translator.attention(sentence, kind, options.layer, *search)
    parts = translator.parts(sentence)
    (title,) = translator.subwords.decode(parts[:1])
    source, target = _languages(options.model)
    read, written = f"{source or ''} input".strip(), f"{target or ''} output".strip()
    names = {"source": (written, read), "encoder": (read, read), "decoder": (written, written)}[kind]
    caption = f"{CAPTIONS[kind]}, layer {options.layer or last} of {last}). Dark is much; each row sums to 1."
    words = not options.attention_subwords
    try:
        plot.attention_maps(weights, rows, columns, options.attention, title.strip(), caption, names, words)
    except ValueError as error:
        raise _Mistake(error) from None
    if len(parts) > 1:
        _say(f"{PROGRAM}: the line is translated in parts; {options.attention} shows the first of them")


class _Bar:
    """One line on the terminal that says how much of a long text is done; nothing where there is no terminal."""

    def __init__(self, file):
        self.total, self.bytes, self.lines, self.started = _size(file), 0, 0, time.monotonic()
        self.possible = _is_terminal(sys.stderr) and not file.isatty()
        self.visible = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.clear()

    def over(self, batch):
        """Give the function that the translator calls with the parts done and all parts of this batch."""
        start, size = self.bytes, sum(map(len, batch)) + len(batch)
        self.bytes, self.lines = start + size, self.lines + len(batch)

        def show(done, parts):
            seconds = time.monotonic() - self.started
            if not self.possible or seconds < BAR_AFTER:
                return
            text = f"{self.lines:,} lines read"
            if self.total:
                share = min(1, (start + size * done / parts) / self.total)
                left = time.strftime("%H:%M:%S", time.gmtime(seconds / share - seconds))
                text = f"[{'#' * round(30 * share):<30}] {share:4.0%}  {left} left"
            _say("\r" + text, end="")
            self.visible = True

        return show

    def clear(self):
        """Make room for the translations."""
        if self.visible:
            _say("\r" + " " * 60 + "\r", end="")
            self.visible = False
