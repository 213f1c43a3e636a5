"""A population that survives a broken leg: train, break a leg, adapt, and film before, broken and adapted side by side.

python examples/adapt_to_damage.py        # some minutes on two cores; needs pip install 'dvdrl[video]'
"""

from pathlib import Path
from typing import Any

import av
import numpy as np

import dvdrl

BROKEN = {"motor:bthigh": 0.0, "motor:bshin": 0.0}  # the hind leg hangs down without force


def main(out: Path, *, steps: int = 200, **options: Any) -> dict[str, Any]:
    """Train a population undamaged, choose a member for the broken robot, and film it."""
    run = out / "run"
    if not run.exists():
        dvdrl.train(dvdrl.NicheES(task="HalfCheetah-v5", out=run, **options))
    found = dvdrl.adapt(run, perturb=BROKEN)
    best, chosen = found["undamaged_best"], found["member"]
    films = []
    for member, perturb in ((best, {}), (best, BROKEN), (chosen, BROKEN)):
        dvdrl.render(run, steps=steps, perturb=perturb)
        films.append(pictures(run / "videos" / f"member-{member}.mp4"))
    write(out / "damage.mp4", films)
    return found


def pictures(film: Path) -> list[np.ndarray]:
    """All pictures of a film."""
    with av.open(film) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def write(path: Path, films: list[list[np.ndarray]]) -> None:
    """Write films side by side. The last picture of a shorter one stays."""
    with av.open(path, "w") as container:
        stream = container.add_stream("libx264", rate=20, options={"crf": "23"})
        stream.pix_fmt, stream.height = "yuv420p", films[0][0].shape[0]
        stream.width = sum(film[0].shape[1] for film in films)
        for i in range(max(map(len, films))):
            picture = np.concatenate([film[min(i, len(film) - 1)] for film in films], axis=1)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


if __name__ == "__main__":
    result = main(Path("runs/damage"), task_options={"horizon": 400}, iterations=60)
    before = max(result["undamaged_returns"])
    print(f"before: {before:.0f}; broken: {result['undamaged_best_return']:.0f}; adapted: {result['return']:.0f}")
    print(f"member {result['member']} after {result['trials']} trials: runs/damage/damage.mp4")
