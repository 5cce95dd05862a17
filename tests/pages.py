"""Pages that are checked: their tags are balanced, and no text in them becomes markup."""

from html.parser import HTMLParser

HARM = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&</style></svg>\x00\x1b\ud800"
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """The tags of a page, with a check that all are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
