"""How long the attention lab takes to answer a switch: ``python tests/bench/lab_speed.py``.

At 12 tokens, the most there are, in a real browser. One frame is 16 ms.
"""

import statistics
import sys
from pathlib import Path

import torch
from measure import Table

from attnlib.widgets.attention import AttentionLab

sys.path.append(str(Path(__file__).parents[1]))
from browser import HOW_TO_GET_ONE, chromium, find_chromium
from lab_page import open_lab

FRAME = 16  # ms
TURNS = 100
SWITCHES = {
    "scale": "find('Scale').click()",
    "polarity": "next(find('True means'))",
    "d_k": "next(find('d_k'))",
    "temperature": "slide(find('Temperature'), -1 + (i % 40) / 20)",
    "mask": "next(find('Mask'))",
    "softmax axis": "next(find('Softmax'))",
    "query": "next(find('Explain'))",
    "a drawn cell": "document.querySelectorAll('td button')[(7 * i) % 144].click()",
}
TURN = """async ([code, count, paint]) => {
  const labels = [...document.querySelectorAll('label')];
  const find = (words) => labels.find((label) => label.textContent.startsWith(words))
    .querySelector('select, input');
  const next = (select) => {
    select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
    select.dispatchEvent(new Event('change'));
  };
  const slide = (range, value) => { range.value = value; range.dispatchEvent(new Event('input')); };
  const turn = new Function('i', 'find', 'next', 'slide', code);
  const times = [];
  for (let i = 0; i < count; i++) {
    const start = performance.now();
    turn(i, find, next, slide);
    document.body.offsetHeight; // lays the page out
    times.push(performance.now() - start);
    if (paint) await new Promise(requestAnimationFrame);
  }
  return times;
}"""


def main() -> None:
    path = find_chromium()
    if path is None:
        sys.exit(HOW_TO_GET_ONE)
    query, key, value = torch.randn(3, 12, 8, generator=torch.Generator().manual_seed(0))
    lab = AttentionLab([f"token {i}" for i in range(12)], query, key, value, mask_kind="causal")
    with chromium(path) as browser:
        for width in (390, 1280):
            print(_table(browser, lab, width), flush=True)


def _table(browser, lab: AttentionLab, width: int) -> Table:
    """Answered: from the event until the page is laid out. Painted: until the frame is drawn.

    The main thread's own time does not grow when other programs are busy; the clock's does.
    """
    header = ["switch", "answered, clock", "answered, CPU", "painted, CPU"]
    table = Table(f"ms for each turn of a switch, 12 tokens, {width} px wide", header)
    page = open_lab(browser, lab, width=width)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    answers = []
    for name, code in SWITCHES.items():
        page.evaluate(TURN, [code, 4, True])  # the first turns compile
        before = _main_thread(session)
        clock = statistics.median(page.evaluate(TURN, [code, TURNS, False]))
        answered = (_main_thread(session) - before) / TURNS
        page.evaluate(TURN, [code, TURNS, True])
        painted = (_main_thread(session) - before) / TURNS - answered
        table.add(name, f"{clock:.1f}", f"{answered:.1f}", f"{painted:.1f}")
        answers.append(answered)
    table.promise("the slowest switch, answered, ms of CPU", max(answers), FRAME)
    page.close()
    return table


def _main_thread(session) -> float:
    """Milliseconds that the page's main thread has worked so far."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return 1e3 * next(entry["value"] for entry in metrics if entry["name"] == "TaskDuration")


if __name__ == "__main__":
    main()
