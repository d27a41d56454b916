"""A page of minitf/page, taken apart."""

import html.parser


class _Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found, self.key = {}, None
        self.attributes = []  # (tag, name, value) of the page

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        fields = dict(attrs)
        self.key = fields.get("id") or (tag if tag in ("script", "style", "title") else None)
        if self.key:
            self.found.setdefault(self.key, "")

    def handle_endtag(self, tag):
        self.key = None

    def handle_data(self, data):
        if self.key:
            self.found[self.key] += data


def parsed(text):
    """Return the content of each element that has an id, and of script, style and title."""
    return _read(text).found


def attributes(text):
    """Return (tag, name, value) for each attribute in the page."""
    return _read(text).attributes


def _read(text):
    reader = _Reader()
    reader.feed(text)
    return reader
