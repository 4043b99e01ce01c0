"""All that depends on where the book's repository is: one entry of ``_config.yml`` says it.

With an address each page gets buttons that lead there, and each notebook gets one for Binder and,
if it is on GitHub, one for Colab. Without one there are none. A notebook that is opened on its own
installs the package from that address; ``run_notebooks.py`` writes the lines that do it.
"""

from pathlib import Path

import nbformat
import yaml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]
CHECK = [
    "from importlib.util import find_spec",
    "",
    'if not find_spec("attnlib"):  # this notebook was opened on its own',
]
WITHOUT_ADDRESS = """\
    raise ModuleNotFoundError(
        "This notebook uses the package attnlib, which is not installed here. "
        "Install it from the folder of the book, pip install '.[book]', or from "
        "the wheel in the offline bundle."
    )
"""
WITH_ADDRESS = """\
    import subprocess
    import sys

    source = "git+{url}@{branch}"
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    subprocess.run([*pip, f"attnlib[book] @ {{source}}"], check=True)
"""


def configured(root: Path = ROOT) -> tuple[str, str]:
    """Return the address of the repository, empty if there is none, and its branch."""
    entry = yaml.safe_load((root / "_config.yml").read_text("utf-8"))["repository"]
    return entry["url"].strip("/"), entry["branch"]


def guard(url: str, branch: str) -> str:
    """Return the lines that each notebook starts with: they see to it that attnlib is there."""
    end = WITH_ADDRESS.format(url=url, branch=branch) if url else WITHOUT_ADDRESS
    return "\n".join(CHECK) + "\n" + end


def put_guard(nb: nbformat.NotebookNode, url: str, branch: str) -> None:
    """Write these lines to the top of the first code cell, in place of those that are there."""
    first = next((cell for cell in nb.cells if cell.cell_type == "code"), None)
    if first is None:
        return
    lines = first.source.splitlines()
    if lines[: len(CHECK)] == CHECK:
        del lines[: len(CHECK)]
        while lines and lines[0][:1] in ("", " "):  # empty, or inside the if
            del lines[0]
    first.source = guard(url, branch) + "\n" + "\n".join(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Choose the buttons; compare the notebooks with the address."""
    app.connect("config-inited", _choose_buttons)
    app.connect("env-updated", _compare)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _choose_buttons(app: Sphinx, config) -> None:
    theme = config.html_theme_options
    url = theme.get("repository_url", "")
    buttons = ("use_repository_button", "use_edit_page_button", "use_issues_button")
    theme.update(dict.fromkeys(buttons, bool(url)))
    theme["launch_buttons"] = {}
    if url:
        theme["launch_buttons"] = {
            "notebook_interface": "jupyterlab",
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com" if "github.com/" in url else "",
        }


def _compare(app: Sphinx, env) -> None:
    """Warn of a notebook that would install from elsewhere."""
    url, branch = configured(Path(app.srcdir))
    for page in sorted(env.found_docs):
        path = Path(env.doc2path(page))
        if path.suffix == ".ipynb" and url:
            nb = nbformat.read(path, as_version=4)
            code = [cell.source for cell in nb.cells if cell.cell_type == "code"]
            if code and not code[0].startswith(guard(url, branch)):
                logger.warning(
                    "opened on its own, this notebook would not install attnlib from %s. "
                    "Let book/_ext/run_notebooks.py write it anew",
                    url,
                    location=page,
                )
