"""Our frame around sphinx-book-theme: its looks without its scripts.

The theme loads 2 MB of scripts and fonts on every page, most of them for icons. The templates in
``templates/`` need none of them; ``book/_static/site.js`` holds what is left to do.
"""

from pathlib import Path

from sphinx.application import Sphinx

# What the theme, Sphinx and the extensions put on every page, and this book does without.
DROPPED_SCRIPTS = {
    "documentation_options.js",  # these five serve the search, and search.html loads them itself
    "doctools.js",
    "sphinx_highlight.js",
    "searchtools.js",
    "language_data.js",
    "scripts/sphinx-book-theme.js",  # site.js replaces it
    "design-tabs.js",  # keeps tabs of one name in step; tabs work without it
}
SECOND_VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1" />'


def setup(app: Sphinx) -> dict[str, bool]:
    """Put our templates before the theme's and take its scripts off the pages."""
    app.connect("config-inited", _add_templates, priority=900)
    app.connect("html-page-context", _drop_scripts, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_templates(app: Sphinx, config) -> None:
    config.templates_path.insert(0, str(Path(__file__).parent / "templates"))
    config.html_theme_options.setdefault("use_fullscreen_button", False)
    config.html_theme_options.setdefault("home_page_in_toc", True)


def _drop_scripts(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    context["script_files"] = [s for s in context["script_files"] if not _is_dropped(s)]
    context["metatags"] = context.get("metatags", "").replace(SECOND_VIEWPORT, "")
    context.setdefault("labs_of_page", "")


def _is_dropped(script) -> bool:
    """Tell whether a page does without this script; inline ones set options of dropped ones."""
    name = str(getattr(script, "filename", script) or "")
    inline = getattr(script, "attributes", {}).get("body") or ""
    return name.split("?")[0].removeprefix("_static/") in DROPPED_SCRIPTS or inline.startswith(
        "DOCUMENTATION_OPTIONS."
    )
