"""When the best return of each run first passed some values, and where it ended.

python results/first_above.py -730 -600 -- runs/point/*/half-width-4/dvd-es-plateau/seed-*
"""

import csv
import json
import statistics
import sys
from pathlib import Path

divider = sys.argv.index("--")
levels, runs = [float(level) for level in sys.argv[1:divider]], map(Path, sys.argv[divider + 1 :])

rows = csv.writer(sys.stdout, lineterminator="\n")
above = [f"above_{level:g}_after" for level in levels]
names = ["algorithm", "controller", "arms", "half_width", "executor", "seed", "iterations"]
rows.writerow([*names, *above, "best", "final", "deviation_of_last_ten"])
for run in runs:
    config = json.loads((run / "config.json").read_text())
    arms = " ".join(f"{arm:g}" for arm in config.get("arms") or [])
    half_width = config["task_options"].get("wall_half_width", "")
    best = [json.loads(line)["best_return"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    passed = [next((i for i, value in enumerate(best, 1) if value > level), "") for level in levels]
    found = [config["algorithm"], config.get("controller", ""), arms, half_width, config["executor"], config["seed"]]
    ends = [round(value, 1) for value in (max(best), best[-1], statistics.pstdev(best[-10:]))]
    rows.writerow([*found, len(best), *passed, *ends])
