"""Leave the comments and the indentation of the book's own scripts out of what a reader loads.

They are written to be read in ``book/_static``; over the wire they are a fifth of the bytes.
"""

from pathlib import Path

from sphinx.application import Sphinx

SOURCES = Path(__file__).resolve().parent.parent / "_static"


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite the copies in the site once they are there."""
    app.connect("build-finished", _write, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    for script in SOURCES.glob("*.js"):
        copy = Path(app.outdir, "_static", script.name)
        if copy.exists():
            copy.write_text(lean(script.read_text("utf-8")), "utf-8")


def lean(script: str) -> str:
    r"""Drop the lines that are comments, and what stands before the first word of a line.

    A script with a text in backticks over several lines stays as it is: there, a blank counts.

    >>> lean("// says hello\nfunction hi() {\n  // now\n  say(`hello`);\n}\n")
    'function hi() {\nsay(`hello`);\n}\n'
    >>> lean("say(`\n  // hello\n`);\n")
    'say(`\n  // hello\n`);\n'
    """
    lines = script.splitlines()
    if any(line.count("`") % 2 for line in lines):
        return script
    kept = [line.strip() for line in lines]
    return "".join(f"{line}\n" for line in kept if line and not line.startswith("//"))
