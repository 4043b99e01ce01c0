"""Say on each page with which versions the whole book was run last.

``run_notebooks.py`` without arguments runs every notebook. When all of them have passed, it writes
the versions and the day to ``book/verified.json``; nobody types them. The site reads that file.
"""

import json
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path

from sphinx.application import Sphinx

FILE = "verified.json"
SHOWN = {"torch": "PyTorch", "transformers": "Transformers", "jupyter-book": "Jupyter Book"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Put the sentence, and a link to the licences, at the foot of each page."""
    app.connect("html-page-context", _say)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _say(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    file = Path(app.srcdir, "book", FILE)
    context["verified"] = sentence(json.loads(file.read_text("utf-8"))) if file.exists() else ""
    context["licences"] = "book/licences" in app.env.found_docs


def sentence(found: dict[str, str]) -> str:
    """Return what stands at the foot of a page.

    >>> sentence({"day": "2026-01-31", "Python": "3.11.7", "PyTorch": "2.13.0"})
    'All notebooks were last run together on 2026-01-31, with Python 3.11.7, PyTorch 2.13.0.'
    """
    named = ", ".join(f"{name} {found[name]}" for name in found if name != "day")
    return f"All notebooks were last run together on {found['day']}, with {named}."


def write(book: Path) -> None:
    """Write down the versions that are installed here, and the day."""
    found = {"day": date.today().isoformat(), "Python": platform.python_version()}
    found |= {name: version(package).split("+")[0] for package, name in SHOWN.items()}
    (book / FILE).write_text(json.dumps(found, indent=1) + "\n", "utf-8")
