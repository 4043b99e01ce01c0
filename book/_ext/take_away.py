"""Make what a reader can take away: the whole book as a PDF, and an offline bundle.

    python book/_ext/take_away.py

It brings the site up to date and writes two files to ``_build``. The bundle is a zip that holds the
site, which opens from a file, the notebooks, the package as a wheel, the PDF, and the SHA-256 of
each of them. It asks no other computer for anything. Made again from the same site, both files have
the same bytes.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import yaml
from playwright.sync_api import sync_playwright

from find_browser import ARGUMENTS, HOW_TO_GET_ONE, find_chromium
from whole_book import ROOT, write_pdf

FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # of a zip file: the same for each file in each run
README = """\
{title}, to read without a network

Open site/index.html in a browser. Pages, search and labs all work from here.

{name}.pdf is the whole book for paper.

notebooks/ holds the chapters to run. They need Python 3.11 to 3.13 and the package in this folder.
What the package needs itself, PyTorch above all, pip fetches from the network unless it is there:

    pip install "./{wheel}[book]"

To see whether every file has arrived as it was made: sha256sum -c SHA256SUMS
"""


def build_wheel(folder: Path, root: Path = ROOT) -> Path:
    """Build the package into a folder, with what is installed here; return the file.

    Raises:
        RuntimeError: If pip can't, with what it said.
    """
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    process = subprocess.run([*pip, "-w", folder, root], capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"attnlib could not be built:\n{process.stdout}{process.stderr}")
    [wheel] = folder.glob("attnlib-*.whl")
    return wheel


def bundle(site: Path, pdf: Path, goal: Path, *, root: Path = ROOT) -> list[str]:
    """Write the offline bundle.

    Args:
        site: the folder of the built site.
        pdf: the book for paper.
        goal: the zip to write.
        root: the folder of the repository.

    Returns:
        The names of the files in it.
    """
    files = {f"site/{f.relative_to(site).as_posix()}": f for f in site.rglob("*") if f.is_file()}
    files.pop("site/_static/sbt-webpack-macros.html", None)  # a template of the theme, no page
    files |= {f"notebooks/{f.name}": f for f in root.glob("book/*.ipynb")}
    files[pdf.name] = pdf
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder), root)
        files[wheel.name] = wheel
        data = {name: file.read_bytes() for name, file in files.items()}
    title = yaml.safe_load((root / "_config.yml").read_text("utf-8"))["title"]
    text = README.format(title=title, name=pdf.stem, wheel=wheel.name)
    data["README.txt"] = text.encode()
    sums = [f"{hashlib.sha256(data[name]).hexdigest()}  {name}\n" for name in sorted(data)]
    data["SHA256SUMS"] = "".join(sums).encode()
    with zipfile.ZipFile(goal, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name in sorted(data):
            entry = zipfile.ZipInfo(f"{goal.stem}/{name}", FIRST_DATE)
            entry.external_attr = 0o644 << 16
            out.writestr(entry, data[name], zipfile.ZIP_DEFLATED)
    return sorted(data)


def main() -> int:
    """Build the site, print it, pack it; say what was written."""
    path = find_chromium()
    if path is None:
        print(HOW_TO_GET_ONE, file=sys.stderr)
        return 1
    program = Path(sys.executable).with_name("jupyter-book")
    command = [program, "build", ".", "--all", "-W", "-n", "--keep-going"]
    if code := subprocess.run(command, cwd=ROOT).returncode:
        return code
    title = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["title"]
    name = re.sub(r"\W+", "-", title.lower()).strip("-")
    site, pdf, goal = (ROOT / "_build" / n for n in ("html", f"{name}.pdf", f"{name}.zip"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        pages = write_pdf(browser, site, pdf)
    files = bundle(site, pdf, goal)
    for made, holds in [(pdf, f"{pages} pages"), (goal, f"{len(files)} files")]:
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        print(f"{made.relative_to(ROOT)}: {holds}, {made.stat().st_size} bytes, SHA-256 {digest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
