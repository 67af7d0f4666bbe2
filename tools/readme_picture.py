"""Draw the README's picture, the three steps of attention on real cars: python tools/readme_picture.py"""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from attn_tutor.data import load_cars
from attn_tutor.numpy import attend, gaussian_score, softmax

PICTURE = Path(__file__).resolve().parents[1] / "book" / "_static" / "three_steps.svg"
ASKED = "Volvo 142E"
SHOWN = 10
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "attn_tutor",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def main() -> None:
    cars = load_cars()
    features = np.stack([cars["weight"], cars["horsepower"]], axis=1)
    features = (features - features.mean(0)) / features.std(0)
    asked = cars["name"] == ASKED
    query, keys, values = features[asked], features[~asked], cars["mpg"][~asked]

    scores = gaussian_score(query, keys, bandwidth=0.3)  # (1, 31)
    answer = attend(scores, values[:, None]).item()
    nearest = scores[0].argsort()[-SHOWN:]
    score, weight, mpg = (
        scores[0, nearest],
        softmax(scores)[0, nearest],
        values[nearest],
    )

    with mpl.rc_context(STYLE):
        figure, (left, middle, right) = plt.subplots(
            1, 3, figsize=(10, 3.6), sharey=True, layout="constrained"
        )
        rows = np.arange(SHOWN)
        left.barh(rows, score, color="#7a8794")
        left.set(
            title="1  score", xlabel="minus the squared distance / 2σ²", yticks=rows
        )
        left.set_yticklabels(cars["name"][~asked][nearest])
        middle.barh(rows, weight, color="#1f5f8f")
        middle.set(title="2  softmax", xlabel="weight, sum over all 31 cars = 1")
        right.scatter(mpg, rows, s=20 + 1500 * weight, color="#1f5f8f", alpha=0.75)
        right.axvline(answer, color="#b3400a")
        truth = cars["mpg"][asked].item()
        xlabel = f"mpg: answer {answer:.1f}, truth {truth:.1f}"
        right.set(title="3  weighted sum", xlabel=xlabel)
        figure.suptitle(f"How far does a {ASKED} go on a gallon? Ask the cars like it.")
        figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
