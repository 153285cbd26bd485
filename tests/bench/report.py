#!/usr/bin/env python3
"""The page of `parley bench --html` as Chromium shows it, light and dark: no labels of a chart overlap or leave it, nothing is wider
than the window, and text stands out from what is behind it. Writes build/report/light.png and dark.png, to be looked at.

usage: report.py BUILD_DIR
"""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import children  # noqa: E402

FOLDER = os.path.join("build", "report")
N_CHARTS = 2 + 2 * 4  # over concurrency, and of each load
THEMES = ("light", 1), ("dark", 0)  # Chromium's preferredColorScheme
MIN_CONTRAST = 4.5  # WCAG 2.1, AA

# Runs in the page; what it finds stands in an attribute of the document's root.
LOOK = """<script>
const number = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                      return .2126 * r + .7152 * g + .0722 * b; };
const contrast = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
const faults = [], svgs = [...document.querySelectorAll('svg')];
const page = number(getComputedStyle(document.body).backgroundColor);
for (const svg of svgs) {
  const frame = svg.getBoundingClientRect(), labels = [...svg.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
  const back = number(getComputedStyle(svg.querySelector('rect')).fill);
  labels.forEach(([t, a], i) => {
    if (a.left < frame.left || a.right > frame.right || a.top < frame.top || a.bottom > frame.bottom) faults.push('leaves the chart: ' + t.textContent);
    if (contrast(number(getComputedStyle(t).fill), back) < MIN) faults.push('hard to read: ' + t.textContent);
    for (const [u, b] of labels.slice(i + 1))
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) faults.push('overlap: ' + t.textContent + ' and ' + u.textContent);
  });
}
for (const e of document.querySelectorAll('h1,h2,p,th,td'))
  if (contrast(number(getComputedStyle(e).color), page) < MIN) faults.push('hard to read: ' + e.textContent);
if (document.documentElement.scrollWidth > innerWidth) faults.push('wider than the window');
for (const e of document.querySelectorAll('.wide'))
  if (e.scrollWidth > e.clientWidth) faults.push('a table is cut: ' + e.scrollWidth + ' of ' + e.clientWidth);
document.documentElement.dataset.found = JSON.stringify({n_charts: svgs.length, page, faults}).replace(/[^ -~]/g, '?');
</script>""".replace("MIN)", f"{MIN_CONTRAST})")


def chromium(path, scheme, *options):
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,2600", f"--blink-settings=preferredColorScheme={scheme}"]
    done = subprocess.run([*command, *options, "file://" + os.path.abspath(path)], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.stdout


def look(page, theme, scheme):
    with open(page) as file:
        text = file.read()
    probe = os.path.join(FOLDER, "probe.html")
    with open(probe, "w") as file:
        file.write(text.replace("</body>", LOOK + "</body>"))
    said = re.search(r"data-found=\"([^\"]*)\"", chromium(probe, scheme, "--dump-dom"))
    found = json.loads(said.group(1).replace("&quot;", '"').replace("&amp;", "&"))
    picture = os.path.join(FOLDER, theme + ".png")
    chromium(page, scheme, f"--screenshot={os.path.abspath(picture)}")
    is_dark = found["page"] < 0.2
    if is_dark != (theme == "dark"):
        found["faults"].append("the background is of the other theme")
    if found["n_charts"] != N_CHARTS:
        found["faults"].append(f"{found['n_charts']} charts, not {N_CHARTS}")
    print(f"{theme}: {found['n_charts']} charts, {len(found['faults'])} faults; {picture}", *found["faults"], sep="\n  ")
    return not found["faults"]


def main():
    build = sys.argv[1]
    if shutil.which("chromium") is None:
        sys.exit("there is no chromium: ./run setup browser installs it")
    os.makedirs(FOLDER, exist_ok=True)
    page = os.path.join(FOLDER, "page.html")
    with children.Daemon(f"{build}/parleyd") as daemon:
        load = ["--model", "echo", "--input-tokens", "32", "--output-tokens", "32", "--duration", "1", "--concurrency", "1,10,12,200"]
        subprocess.run([f"{build}/parley", "bench", f"parley://{daemon.address}", *load, "--html", page], check=True, stdout=subprocess.DEVNULL)
    sys.exit(0 if all([look(page, *theme) for theme in THEMES]) else 3)


main()
