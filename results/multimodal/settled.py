"""How many members run each way, how far the best do, and how different their actions are, as training goes on.

python results/multimodal/settled.py runs/multimodal/*/*/*/seed-* > results/multimodal/settled.csv
"""

import csv
import json
import sys
from pathlib import Path

ITERATIONS = (1, 3, 5, 10, 20, 50, 60, 85, 100, 188, 200, 255, 564, 600)
"""With 60, 255, 564 and 600 NSR-ES has made as many rollouts as the others with 20, 85, 188 and 200."""

rows = csv.writer(sys.stdout, lineterminator="\n")
rows.writerow(
    ["setting", "variant", "seed", "iteration", "forward", "backward", "best_forward", "best_backward", "log_det"]
)
for run in map(Path, sys.argv[1:]):
    *_, setting, variant, seed = run.parts
    for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()):
        if line["iteration"] in ITERATIONS:
            members = list(zip(line["mode_forward"], line["mode_backward"], strict=True))
            forward = sum(ahead > max(back, 0) for ahead, back in members)
            backward = sum(back > max(ahead, 0) for ahead, back in members)
            best = [round(max(line[mode])) for mode in ("mode_forward", "mode_backward")]
            which = [setting, variant, seed.removeprefix("seed-"), line["iteration"]]
            rows.writerow([*which, forward, backward, *best, round(line["log_det"], 3)])
