"""Each source of the book can be looked up: papers by DOI or arXiv, the rest by an address."""

import re
from html import unescape

import pytest
from built_site import ROOT

BIB = (ROOT / "book" / "references.bib").read_text("utf-8")
DOI = re.compile(r"10\.\d{4,9}/\S+")
ARXIV = re.compile(r"https://arxiv\.org/abs/(\d\d)(?:0[1-9]|1[0-2])\.(\d{4,5})")
# Papers that have neither, and the lasting address that they have instead.
ELSEWHERE = {
    "watson1964": "https://www.jstor.org/stable/",
    "jozefowicz2015": "https://proceedings.mlr.press/",
    "radford2019": "https://cdn.openai.com/",
    "elhage2021": "https://transformer-circuits.pub/",
}


def read(bib: str) -> dict[str, dict[str, str]]:
    """The fields of each entry; ``kind`` is what stands behind the @."""
    entries = {}
    for kind, key, body in re.findall(r"@(\w+)\{([^,\s]+),(.*?)\n\}", bib, re.DOTALL):
        fields = re.findall(r"^\s*(\w+)\s*=\s*\{(.*?)\},?\s*$", body, re.MULTILINE)
        entries[key] = {"kind": kind, **dict(fields)}
    return entries


def faults(entries: dict[str, dict[str, str]]) -> list[str]:
    """What keeps a reader from looking an entry up."""
    found = []
    for key, entry in entries.items():
        doi, url = entry.get("doi", ""), entry.get("url", "")
        if doi and not DOI.fullmatch(doi):
            found.append(f"{key}: no DOI: {doi}")
        if "arxiv" in url.lower():
            match = ARXIV.fullmatch(url)
            if not match or len(match[2]) != (5 if int(match[1]) >= 15 else 4):
                found.append(f"{key}: no address of arXiv: {url}")
            elif not 0 <= int(entry["year"]) - (2000 + int(match[1])) <= 3:
                found.append(f"{key}: of {entry['year']}, and on arXiv in 20{match[1]}")
        elif not doi and entry["kind"] != "misc" and not url.startswith(ELSEWHERE.get(key, "!")):
            found.append(f"{key}: neither DOI nor arXiv")
        elif not doi and not url.startswith("https://"):
            found.append(f"{key}: no address")
    return found


def test_every_source_can_be_looked_up():
    entries = read(BIB)
    assert len(entries) == len(re.findall(r"^@", BIB, re.MULTILINE)) > 60
    assert faults(entries) == []
    assert set(ELSEWHERE) <= set(entries)


def test_every_source_is_printed_with_its_link(site):
    page = unescape((site / "book" / "sources.html").read_text("utf-8"))
    for key, entry in read(BIB).items():
        wanted = f"https://doi.org/{entry['doi']}" if "doi" in entry else entry["url"]
        assert f'href="{wanted.replace(chr(92), "")}"' in page, key


@pytest.mark.parametrize(
    ("field", "fault"),
    [
        ("doi = {10.1000}", "no DOI"),
        ("url = {https://arxiv.org/abs/1706.3762}", "no address of arXiv"),
        ("url = {https://arxiv.org/abs/2106.03762}", "of 2017, and on arXiv in 2021"),
        ("url = {https://example.org}", "neither DOI nor arXiv"),
        ("note = {in my drawer}", "neither DOI nor arXiv"),
    ],
)
def test_a_source_that_cannot_be_looked_up_is_found(field, fault):
    entries = read(f"@article{{key2017,\n  year = {{2017}},\n  {field}\n}}\n")
    assert len(found := faults(entries)) == 1
    assert fault in found[0]
