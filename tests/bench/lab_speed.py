"""How long the attention lab takes to answer a switch, at 12 tokens.

Run it with ``python tests/bench/lab_speed.py``.

Each switch is turned again and again in a real browser. "answered" is the time from the event
until the page is laid out anew: all that stands between the reader's click and the next frame,
besides painting. "on screen" lasts until the browser has painted. One frame is 16.7 ms.
"""

import statistics
import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).parents[1]))

from browser import HOW_TO_GET_ONE, chromium, find_chromium
from lab_page import open_lab

from attnlib.widgets.attention import AttentionLab

ROUNDS = 40
SWITCHES = {
    "scale": "turn(box('Scale'))",
    "d_k": "pick('d_k', i)",
    "temperature": "slide('Temperature', -1 + (i % 40) / 20)",
    "mask": "pick('Mask', i)",
    "polarity": "pick('True means', i)",
    "softmax axis": "pick('Softmax', i)",
    "query": "pick('Explain', i)",
    "a drawn cell": "turn(document.querySelectorAll('td button')[(7 * i) % 144])",
}
MEASURE = """async ([code, rounds]) => {
  const labels = [...document.querySelectorAll('label')];
  const label = (words) => labels.find((one) => one.textContent.startsWith(words));
  const box = (words) => label(words).querySelector('input');
  const turn = (node) => node.click();
  const pick = (words, i) => {
    const select = label(words).querySelector('select');
    select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
    select.dispatchEvent(new Event('change'));
  };
  const slide = (words, value) => {
    box(words).value = value;
    box(words).dispatchEvent(new Event('input'));
  };
  const act = new Function('i', 'box', 'turn', 'pick', 'slide', code);
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    channel.port2.postMessage(0);
  }));
  const times = [];
  for (let i = 0; i < rounds; i++) {
    await painted();
    const start = performance.now();
    act(i, box, turn, pick, slide);
    document.body.offsetHeight; // lays the page out
    const answered = performance.now() - start;
    await painted();
    times.push([answered, performance.now() - start]);
  }
  return times;
}"""


def main() -> None:
    """Print a row for each switch."""
    path = find_chromium()
    if path is None:
        sys.exit(HOW_TO_GET_ONE)
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 12, 8)
    lab = AttentionLab([f"token {i}" for i in range(12)], query, key, value, mask_kind="causal")
    print(f"{'ms':14}{'answered':>20}{'on screen':>20}")
    print(f"{'':14}" + 2 * f"{'median    max':>20}")
    with chromium(path) as browser:
        for width in (390, 1280):
            page = open_lab(browser, lab, width=width)
            print(f"{width} px wide")
            for name, code in SWITCHES.items():
                pairs = page.evaluate(MEASURE, [code, ROUNDS])
                columns = zip(*pairs, strict=True)
                cells = [f"{statistics.median(c):13.1f}{max(c):7.1f}" for c in columns]
                print(f"{name:14}" + "".join(cells))
            page.close()


if __name__ == "__main__":
    main()
