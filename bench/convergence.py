#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every recipe costs in loss: trains small GPTs of two sizes on a mixture of tasks, and a classifier of images, over several
seeds, and tells each recipe's gap to fp32 with its uncertainty.

    bench/convergence.py --build build/release [--out build/convergence] [--page docs/convergence.md]

1. Writes the text: verses of the King James Bible, and lines of four tasks that want exact symbols: sums, words written
   backwards, digits put in order, and values looked up by their keys. Half of the bytes are verses. Images are Fashion-MNIST
   (Debian: dataset-fashion-mnist, python3-numpy), by bench/images_mlp.py.
2. Finds for each model a stable learning rate: half of the rate of the lowest loss in fp32, over two seeds and rates a
   factor of two apart. At the best rate itself training is so near to instability that runs part by the least rounding.
3. Trains every recipe with it for each seed. Initial weights and batches depend on the seed alone, so gaps are paired.
4. `mixedprec compare` tells gaps and intervals; --page puts them into the page as a table, from which bench/plots.py draws.

What is done already in --out is not done again: a run that was stopped goes on. --nice leaves a busy machine to others:
nothing here is about time."""

import argparse
import concurrent.futures
import csv
import json
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = {  # name: options of the trainer
    "small": ["--layers", "2", "--dim", "64", "--heads", "4", "--context", "64", "--batch", "16"],
    "large": ["--layers", "4", "--dim", "128", "--heads", "4", "--context", "64", "--batch", "16"],
    "images": [],
}
RATES = [2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2]
SWEEP_SEEDS = 2


def mixture(verses, count):
    """The lines of the text: `count` lines of the tasks for each eight verses, in an order that depends on nothing else."""
    draw = random.Random(20)

    def below(n):  # as in every version of Python
        return int(draw.random() * n)

    def word(length, letters="abcdefghijklmnopqrstuvwxyz"):
        return "".join(letters[below(len(letters))] for _ in range(length))

    def total():
        a, b = below(1000), below(1000)
        return f"{a}+{b}={a + b}"

    def backwards():
        text = word(3 + below(6))
        return f"{text}>{text[::-1]}"

    def ordered():
        digits = word(4 + below(5), "0123456789")
        return f"{digits}<{''.join(sorted(digits))}"

    def recalled():
        keys = sorted(sorted({word(1) for _ in range(6)}), key=lambda _: draw.random())
        values = {key: str(below(10)) for key in keys}
        asked = keys[below(len(keys))]
        return " ".join(key + values[key] for key in keys) + f" ?{asked}{values[asked]}"

    tasks = [total, backwards, ordered, recalled]
    for number, verse in enumerate(verses):
        yield verse
        for _ in range(count if number % 8 else 0):
            yield tasks[below(len(tasks))]()


def write_text(path, corpus):
    if path.exists():
        return
    verses = corpus.read_text(encoding="latin-1").splitlines()
    path.write_text("\n".join(mixture(verses, 10)) + "\n", encoding="latin-1")


def final_loss(folder):
    """The mean of the last tenth, as `mixedprec compare` takes it."""
    with open(folder / "losses.csv", encoding="utf-8") as file:
        losses = [float(row["train_loss"]) for row in csv.DictReader(file)]
    last = max(len(losses) // 10, 1)
    return sum(losses[-last:]) / last


class Trainer:
    def __init__(self, arguments):
        self.arguments = arguments
        self.program = arguments.build / "tools/train/mixedprec_train"
        self.text = arguments.out / "mixture.txt"

    def train(self, size, recipe, seed, rate, folder):
        """One run, unless it is there."""
        if (folder / "losses.csv").exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        common = ["--recipe", recipe, "--seed", seed, "--lr", rate, "--out", folder, "--steps", self.arguments.steps]
        if size == "images":
            words = [self.arguments.python, ROOT / "bench/images_mlp.py", "--data", self.arguments.images, *common]
        else:
            words = [self.program, "--data", self.text, "--threads", 1, "--sample", 0, *common, *MODELS[size]]
        done = subprocess.run((["nice", "-n", "19"] if self.arguments.nice else []) + [str(word) for word in words],
                              env=dict(os.environ, MIXEDPREC_DIR=str(self.arguments.build.resolve())),
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:  # a loss that is not finite is a result, and in the file; anything else is not
            (folder / "failure.txt").write_text(done.stdout, encoding="utf-8")
            if not (folder / "losses.csv").exists() and "not finite" not in done.stdout:
                sys.exit(f"{recipe}, seed {seed}: {done.stdout[-2000:]}")

    def all(self, jobs):
        with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
            for job in concurrent.futures.as_completed([pool.submit(self.train, *job) for job in jobs]):
                job.result()

    def rate_of(self, size):
        """The stable learning rate, and the losses of all."""
        def folder(rate, seed):
            return self.arguments.out / size / "rates" / f"{rate:g}-seed{seed}"

        seeds = range(1, SWEEP_SEEDS + 1)
        self.all([(size, "fp32", seed, rate, folder(rate, seed)) for rate in RATES for seed in seeds])
        losses = [sum(final_loss(folder(rate, seed)) for seed in seeds) / SWEEP_SEEDS for rate in RATES]
        best = min(range(len(RATES)), key=lambda i: losses[i] if losses[i] == losses[i] else float("inf"))
        if best in (0, len(RATES) - 1):
            sys.exit(f"{size}: the best learning rate is the {'last' if best else 'first'} one tried; widen RATES")
        return RATES[best - 1], losses


def presets(program):
    done = subprocess.run([program, "recipe", "list", "--json"], text=True, stdout=subprocess.PIPE, check=True)
    return [preset["name"] for preset in json.loads(done.stdout)["recipes"]]


def compare(program, files, *options):
    """Table and figures; the verdict is in them."""
    words = [str(word) for word in [program, "compare", *files, *options]]
    figures = subprocess.run([*words, "--json"], text=True, stdout=subprocess.PIPE)
    if figures.returncode not in (0, 1):
        sys.exit(f"mixedprec compare ended with {figures.returncode}")
    return json.loads(figures.stdout)


def table(figures):
    rows = ["| recipe | final loss | gap to fp32 (%) | 95 % interval | verdict |", "|---|---:|---:|---:|---|"]
    base = next(r["final_loss"] for r in figures["recipes"] if r["recipe"] == figures["reference"])
    for r in sorted(figures["recipes"], key=lambda r: r["final_loss"]):
        if r["recipe"] == figures["reference"]:
            rows.append(f"| **{r['recipe']}** | {r['final_loss']:.4f} | | | reference |")
            continue
        gap, half = 100 * r["gap"] / base, 100 * r["interval_half"] / base
        interval = f"{gap - half:+.3f} to {gap + half:+.3f}"
        rows.append(f"| `{r['recipe']}` | {r['final_loss']:.4f} | {gap:+.3f} | {interval} | {r['verdict']} |")
    return "\n".join(rows)


def into_page(page, name, content):
    """Puts content between the page's marks of that name."""
    text = page.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}: made by bench/convergence.py -->\n", f"<!-- end of {name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        sys.exit(f"{page} has no marks for {name}")
    head, rest = text.split(begin)
    page.write_text(head + begin + content.rstrip("\n") + "\n" + end + rest.split(end)[1], encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="a build folder with the tools")
    parser.add_argument("--corpus", type=Path, default=ROOT / "build/corpus.txt", help="of scripts/corpus.sh")
    parser.add_argument("--out", type=Path, default=ROOT / "build/convergence")
    parser.add_argument("--images", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--python", default=sys.executable, help="a Python that has numpy")
    parser.add_argument("--page", type=Path, help="page that takes tables and plots")
    parser.add_argument("--recipes", default="", help="names with commas; all presets where it is left out")
    parser.add_argument("--sizes", default=",".join(MODELS), help="models with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time, of one thread each")
    parser.add_argument("--nice", action="store_true")
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    command = arguments.build / "tools/train/mixedprec"
    trainer = Trainer(arguments)
    write_text(trainer.text, arguments.corpus)
    names = arguments.recipes.split(",") if arguments.recipes else presets(command)
    for size in arguments.sizes.split(","):
        rate, losses = trainer.rate_of(size)
        sweep = ", ".join(f"{r:g}: {loss:.4f}" for r, loss in zip(RATES, losses))
        print(f"{size}: learning rate {rate:g} (losses of fp32 by rate: {sweep})", flush=True)
        folders = {(name, seed): arguments.out / size / name / f"seed{seed}"
                   for seed in range(1, arguments.seeds + 1) for name in names}
        trainer.all([(size, name, seed, rate, folder) for (name, seed), folder in folders.items()])
        figures = compare(command, [folder / "losses.csv" for folder in folders.values()])
        print(table(figures), flush=True)
        if arguments.page:
            into_page(arguments.page, size, f"Learning rate {rate:g}. Losses of fp32 by learning rate, mean of "
                      f"{SWEEP_SEEDS} seeds:\n{sweep}.\n\n{table(figures)}\n\n"
                      f"![Final losses over that of fp32, {size}](images/convergence-{size}.svg)")
    if arguments.page:
        subprocess.run([sys.executable, ROOT / "bench/plots.py"], check=True)


if __name__ == "__main__":
    main()
