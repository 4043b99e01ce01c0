"""Build the site, serve it, and read its pages: for the tests beside this file and report.py."""

import contextlib
import functools
import gzip
import http.server
import io
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import yaml

ROOT = Path(__file__).absolute().parents[2]
COMPRESSED = {".html", ".css", ".js", ".svg", ".json", ".txt"}  # what hosts send compressed
BUILT_FROM = ("_config.yml", "_toc.yml", "book", "attnlib")


def pages() -> list[str]:
    """Return the addresses of all pages of the book, from its table of contents."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    return [f"{name}.html" for name in _files(toc)] + ["search.html", "genindex.html"]


def _files(entry: dict | list) -> Iterator[str]:
    if isinstance(entry, list):
        for each in entry:
            yield from _files(each)
    elif isinstance(entry, dict):
        yield from (entry[key] for key in ("root", "file") if key in entry)
        for key in ("parts", "chapters", "sections"):
            yield from _files(entry.get(key, []))


def is_stale(site: Path, root: Path = ROOT) -> bool:
    """Tell whether a source of the site is younger than the built site."""
    stamp = site / "index.html"
    if not stamp.is_file():
        return True
    sources = [root / name for name in BUILT_FROM]
    files = [f for s in sources for f in ([s] if s.is_file() else s.rglob("*")) if f.is_file()]
    return any(
        f.stat().st_mtime > stamp.stat().st_mtime for f in files if "__pycache__" not in f.parts
    )


def build(
    root: Path = ROOT, *, strict: bool = True, afresh: bool = True
) -> subprocess.CompletedProcess:
    """Build the site as the README says; return the finished process."""
    if afresh:
        shutil.rmtree(root / "_build", ignore_errors=True)
    program = Path(sys.executable).with_name("jupyter-book")
    options = ["-W", "-n", "--keep-going"] if strict else ["-n", "--keep-going"]
    return subprocess.run(
        [program, "build", ".", *options], cwd=root, capture_output=True, text=True, timeout=300
    )


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine alone; yield its address with a slash at the end."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep connections, or each picture costs a new one

    def log_message(self, *arguments) -> None:
        """Say nothing."""

    def send_head(self) -> io.BufferedIOBase | None:
        """Send text compressed, as hosts do."""
        file = Path(self.translate_path(self.path))
        accepted = "gzip" in self.headers.get("Accept-Encoding", "")
        if not (accepted and file.is_file() and file.suffix in COMPRESSED):
            return super().send_head()
        data = gzip.compress(file.read_bytes(), 6)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(file))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        return io.BytesIO(data)


class Page(HTMLParser):
    """What a page links to and what can be linked to in it."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[tuple[str, str]] = []  # (tag, address)
        self.ids: set[str] = set()
        self.images: list[dict[str, str]] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list) -> None:
        """Note the addresses and names of one tag."""
        attributes = {name: value or "" for name, value in attrs}
        self.ids.update(attributes[key] for key in ("id", "name") if attributes.get(key))
        for key in ("href", "src", "action"):
            if attributes.get(key):
                self.links.append((tag, attributes[key]))
        if tag == "img":
            self.images.append(attributes)
