"""Show stored widgets without a kernel: a still picture that becomes the lab where scripts run.

A lab is an anywidget whose output holds a widget view, a PNG (the still) and a text (what the
still shows, in words). The page gets the still with the text as its alternative; the stored state
follows at the end of the page; ``hydrate.js`` makes the lab from it.
"""

import hashlib
import json
from pathlib import Path

from docutils import nodes
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
logger = logging.getLogger(__name__)


class Lab(nodes.General, nodes.Element):
    """The place of one lab on a page; its children are the still."""


class ShowStillAndPlace(SphinxPostTransform):
    """Replace the output of a widget by a Lab.

    It runs before myst-nb picks one of the output's forms (priority 4), as a lab needs three.
    """

    default_priority = 3
    formats = ("html",)

    def run(self, **kwargs):
        """Walk the document once; Sphinx calls this."""
        shown = []
        for bundle in list(self.document.findall(_is_widget)):
            forms = {form["mime_type"]: form for form in bundle.children}
            model = _model_id(forms[VIEW])
            bundle.replace_self(_lab(forms, model, bundle))
            shown.append(model)
        self.document["labs"] = shown


def _is_widget(node: nodes.Node) -> bool:
    return (
        isinstance(node, nodes.container)
        and node.get("nb_element") == "mime_bundle"
        and any(form["mime_type"] == VIEW for form in node.children)
    )


def _model_id(view: nodes.Element) -> str:
    script = view.astext()
    return json.loads(script[script.index(">") + 1 : script.rindex("</script>")])["model_id"]


def _lab(forms: dict[str, nodes.Element], model: str, bundle: nodes.Element) -> Lab:
    lab = Lab(model=model, classes=["lab"])
    stills = list(forms["image/png"].findall(nodes.image)) if "image/png" in forms else []
    if not stills or "text/plain" not in forms:
        logger.warning(
            "a widget is shown without a still: its output needs image/png and text/plain, "
            "which a reader without scripts sees instead",
            location=bundle,
        )
    for still in stills:
        still["alt"] = forms["text/plain"].astext()
        still["classes"] = [*still["classes"], "lab-still"]
        lab += still
    return lab


def _write_state(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Put the state of the labs on this page, and the scripts that they share, into the page."""
    context["script_files"] = [
        s for s in context["script_files"] if getattr(s, "attributes", {}).get("type") != STATE
    ]
    shown = doctree.get("labs", []) if doctree is not None else []
    if not shown:
        return
    stored = NbMetadataCollector.get_js_files(app.env, page).get("ipywidgets_state")
    state = json.loads(stored[1]["body"])["state"] if stored else {}
    models = {}
    for model in shown:
        if state.get(model, {}).get("model_module") != "anywidget":
            logger.warning(
                "widget %s has no stored state or is no anywidget: it would stay blank. "
                "Write the notebook with book/_ext/run_notebooks.py",
                model,
                location=page,
            )
            continue
        models[model] = _share_code(app, state[model])
    modules = sorted({entry["module"] for entry in models.values()})
    scripts = [f"_static/labs/{module}.js" for module in modules] + ["_static/hydrate.js"]
    body = json.dumps(models, separators=(",", ":")).replace("<", "\\u003c")
    context["labs_of_page"] = (
        f'<script type="application/json" id="labs">{body}</script>'
        + "".join(
            f'<script defer src="{context["pathto"](script, 1)}"></script>' for script in scripts
        )
    )


def _share_code(app: Sphinx, entry: dict) -> dict:
    """Move the module of a lab, stored once per instance, to one file for the whole site."""
    state = {k: v for k, v in entry["state"].items() if _is_own(k, v)}
    code = entry["state"]["_esm"]
    module = hashlib.sha256(code.encode()).hexdigest()[:16]
    path = Path(app.outdir, "_static", "labs", f"{module}.js")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'(window.labModules ??= {{}})["{module}"] = {json.dumps(code)};\n', "utf-8")
    return {"module": module, "state": state, "buffers": entry.get("buffers", [])}


def _is_own(name: str, value) -> bool:
    """Tell what the lab itself stores from what ipywidgets adds to every widget."""
    added = name.startswith("_") or name in ("tabbable", "tooltip")
    return name == "_css" or not (added or str(value).startswith("IPY_MODEL_"))


def _open_lab(writer, node: Lab) -> None:
    writer.body.append(writer.starttag(node, "div", **{"data-model": node["model"]}))


def _close_lab(writer, node: Lab) -> None:
    writer.body.append("</div>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the node, the step that makes it and the one that writes the state."""
    app.add_node(Lab, html=(_open_lab, _close_lab))
    app.add_post_transform(ShowStillAndPlace)
    app.connect("html-page-context", _write_state, priority=800)  # after myst-nb added its scripts
    return {"parallel_read_safe": True, "parallel_write_safe": True}
