#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mixedprec_train on ranks. Order tree: the same losses for every number of ranks. Stages 0 to 3: the same losses. What is sent
is what the formula says, what is held is what the recipe plans. Checkpoints go from any number of ranks to any. Under
mpirun: the losses of threads.
usage: ranks.py MIXEDPREC_TRAIN FIXTURES [--mpi MPIRUN]"""
import os
import pathlib
import shutil
import sys
import tempfile

from common import Checks, results, run

MODEL = "--layers 2 --dim 64 --heads 2 --context 16 --batch 2 --steps 4 --val-batches 3 --threads 1 --lr 3e-3"
# For Open MPI, as in tests/comm/mpi/run.py.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}
BAD = [
    ("--ranks 0", r"--ranks must be from 1"),
    ("--ranks 4 --accum 3", "--accum 3 is too few passes for 4 ranks: each takes at least one of a step's; say --accum 4"),
    ("--ranks 2 --accum 3 --zero 3", "--accum 3 must be a multiple of 2 ranks"),
    ("--zero 4", "--zero must be from 0 to 3"),
    ("--ranks 4 --accum 4 --shard-ranks 3", "--shard-ranks 3 must divide the 4 ranks"),
    ("--ranks 4 --accum 4 --node-ranks 3", "--node-ranks 3 must divide the 4 ranks"),
    ("--ranks 4 --accum 4 --node-ranks 2 --order tree", "it goes with --order rank"),
    ("--order best", "--order is rank, tree or exact, not 'best'"),
    ("--wire-dtype fp12", "--wire-dtype is fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2, not 'fp12'"),
    ("--ranks 2 --accum 2 --save w", "use --checkpoint"),
    ("--mpi --ranks 2", "--mpi has as many ranks as mpirun starts"),
    ("--mpi --compare fp32,bf16_pure", "--mpi wants a single recipe"),
]


class Trainer:
    def __init__(self, program, text, folder):
        self.program, self.text, self.folder, self.count = program, text, pathlib.Path(folder), 0

    def __call__(self, options, launcher=()):
        """The recipes' entries of results.json, with "csv": losses.csv as it was written."""
        self.count += 1
        out = self.folder / str(self.count)
        words = ["--data", self.text, "--out", out] + MODEL.split() + options.split()
        command = [*launcher, self.program] if launcher else [self.program]
        text = run(command[0], command[1:] + words).stdout
        runs = results(out)
        for entry in runs.values():
            entry.update(csv=(out / "losses.csv").read_text(), text=text)
        return runs


def is_planned(entry):
    return entry["rank_bytes_held"] == entry["rank_bytes_planned"] and entry["bytes_measured"] == entry["bytes_expected"]


def is_expected(entry, tolerance=0.02):
    sent, expected = entry["step_bytes_sent"], entry["step_bytes_sent_expected"]
    return expected > 0 and abs(sent / expected - 1.0) <= tolerance


def check_counts_of_ranks(check, train):
    for recipe in ("fp32", "bf16_pure_kahan", "bf16_pure_sr"):
        runs = {ranks: train(f"--sample 0 --accum 4 --order tree --recipe {recipe} --ranks {ranks} --zero {ranks % 3}")
                [recipe] for ranks in (1, 2, 3, 4)}
        check(len({entry["csv"] for entry in runs.values()}) == 1, f"{recipe}: order tree, 1 to 4 ranks: the same losses")
        check(runs[1]["losses"][-1] < runs[1]["losses"][0] - 0.05, f"{recipe}: it learns")
        check(all(is_expected(runs[n]) for n in (2, 4)), f"{recipe}: order tree: bytes sent "
              + ", ".join(f"{runs[n]['step_bytes_sent']:.0f} of {runs[n]['step_bytes_sent_expected']:.0f}" for n in (2, 4)))
    runs = [train(f"--sample 0 --accum 4 --order exact --ranks {ranks} --val-every 2")["fp32"] for ranks in (1, 3)]
    check(runs[0]["csv"] == runs[1]["csv"], "fp32: order exact, 1 and 3 ranks: the same losses")


def check_stages(check, train):
    runs = [train(f"--sample 8 --accum 4 --ranks 2 --zero {stage}")["fp32"] for stage in range(4)]
    check(len({entry["csv"] for entry in runs}) == 1, "fp32: stages 0 to 3: the same losses")
    check(len({entry["text"].split("--- text by")[1].split("\nCurves")[0] for entry in runs}) == 1,
          "fp32: stages 0 to 3: the same text")
    for stage, entry in enumerate(runs):
        check(is_expected(entry), f"stage {stage}: {entry['step_bytes_sent']:.0f} bytes sent, "
              f"{entry['step_bytes_sent_expected']:.0f} expected")
        check(is_planned(entry), f"stage {stage}: {entry['rank_bytes_held']:.0f} bytes held as planned")
        check(" MB sent" in entry["text"] and " MiB a rank" in entry["text"], f"stage {stage}: the table has them")
    held = [entry["rank_bytes_held"] for entry in runs]
    check(held == sorted(held, reverse=True) and len(set(held)) == 4, "a rank holds less with every stage")


def check_groups(check, train):
    """Two groups of two ranks: the losses do not depend on the stage, nor in order tree or exact on the groups."""
    for order in ("rank", "tree", "exact"):
        options = f"--sample 0 --accum 4 --ranks 4 --order {order}"
        flat = train(options)["fp32"]
        runs = [train(f"{options} --shard-ranks 2 --zero {stage}")["fp32"] for stage in (1, 2, 3)]
        check(len({entry["csv"] for entry in runs}) == 1, f"groups of 2, order {order}: stages 1 to 3: the same losses")
        check(order == "rank" or runs[0]["csv"] == flat["csv"], f"groups of 2, order {order}: the losses of one group of 4")
        for stage, entry in enumerate(runs, 1):
            check(is_expected(entry) and is_planned(entry), f"groups of 2, order {order}, stage {stage}: "
                  f"{entry['step_bytes_sent']:.0f} bytes sent, {entry['step_bytes_sent_expected']:.0f} expected; "
                  f"{entry['rank_bytes_held']:.0f} held, {entry['rank_bytes_planned']:.0f} planned")


def check_nodes(check, train):
    runs = [train(f"--sample 0 --accum 4 --ranks 4 --node-ranks 2 --wire-dtype bf16 --zero {stage}")["fp32"]
            for stage in (1, 2, 3)]
    check(len({entry["csv"] for entry in runs}) == 1, "nodes of 2: stages 1 to 3: the same losses")
    flat = train("--sample 0 --accum 4 --ranks 4 --wire-dtype bf16")["fp32"]
    gap = abs(runs[0]["train_loss"] / flat["train_loss"] - 1.0)
    check(gap < 0.01, f"nodes of 2: loss {gap:.2%} off one level")
    for stage, entry in enumerate(runs, 1):
        check(is_expected(entry) and is_planned(entry), f"nodes of 2, stage {stage}: {entry['step_bytes_sent']:.0f} bytes sent, "
              f"{entry['step_bytes_sent_expected']:.0f} expected")


def check_recipes(check, train):
    runs = train("--sample 0 --accum 2 --ranks 2 --compare fp32,msamp_o2,fp8_delayed,bf16_mixed,fp16_mixed")
    for recipe, entry in runs.items():
        check(entry["outcome"] == "done" and entry["ranks"] == 2, f"{recipe}: 2 ranks: {entry['train_loss']:.4f}")
        check(is_expected(entry), f"{recipe}: {entry['step_bytes_sent']:.0f} bytes sent, "
              f"{entry['step_bytes_sent_expected']:.0f} expected")
    wires = {wire: train(f"--sample 0 --accum 2 --ranks 2 --wire-dtype {wire}")["fp32"] for wire in ("bf16", "fp8_e4m3")}
    for wire, entry in wires.items():
        gap = abs(entry["train_loss"] / runs["fp32"]["train_loss"] - 1.0)
        check(is_expected(entry) and gap < 0.01 and len(set(entry["losses"]) & set(runs["fp32"]["losses"])) == 1,
              f"{wire} on the wire, the first loss the same: {entry['step_bytes_sent']:.0f} bytes sent, loss {gap:.2%} off")
    for recipe in ("bf16_mixed", "fp8_delayed", "bf16_pure_kahan", "msamp_o2"):
        stages = [train(f"--sample 0 --accum 4 --ranks 2 --recipe {recipe} --zero {stage}")[recipe] for stage in (1, 2, 3)]
        check(len({entry["csv"] for entry in stages}) == 1, f"{recipe}: stages 1 to 3: the same losses")
        check(is_expected(stages[2]), f"{recipe}: stage 3: {stages[2]['step_bytes_sent']:.0f} bytes sent, "
              f"{stages[2]['step_bytes_sent_expected']:.0f} expected")


def check_checkpoints(check, train):
    saved = train.folder / "checkpoints"
    saved.mkdir()
    for recipe in ("fp32", "bf16_pure_kahan"):
        options = f"--sample 0 --accum 4 --order tree --recipe {recipe} "
        straight = train(options + f"--ranks 2 --zero 2 --checkpoint {saved / recipe} --checkpoint-every 2")[recipe]["csv"]
        middle = next((saved / recipe).glob("step-2-*"))
        for where in ("--ranks 1 --zero 1", "--ranks 4 --zero 3", "--ranks 3 --zero 0", "--ranks 4 --zero 2 --shard-ranks 2"):
            resumed = train(options + f"{where} --resume {middle}")[recipe]
            check(resumed["csv"] == straight, f"{recipe}: saved by 2 ranks, stage 2; gone on with {where}")
        train(options + f"--ranks 4 --shard-ranks 2 --zero 3 --checkpoint {saved / recipe}g --checkpoint-every 2")
        middle = next((saved / f"{recipe}g").glob("step-2-*"))
        check(train(options + f"--ranks 2 --resume {middle}")[recipe]["csv"] == straight,
              f"{recipe}: saved by 2 groups of 2; gone on with 2 ranks")


def check_usage(check, program, text):
    for options, wanted in BAD:
        done = run(program, ["--data", text] + options.split(), check=False)
        check(done.returncode == 2 and wanted in done.stderr, f"{options}: {done.stderr.strip()}")


def check_mpi(check, train, mpirun):
    launcher = [mpirun, "-n", "2"]
    for options in ("--recipe fp32 --zero 1", "--recipe fp32 --zero 3", "--recipe fp8_delayed --order tree"):
        recipe = options.split()[1]
        threads = train(f"--sample 4 --accum 2 {options} --ranks 2")[recipe]
        processes = train(f"--sample 4 --accum 2 {options} --mpi", launcher)[recipe]
        check(processes["ranks"] == 2 and processes["csv"] == threads["csv"], f"mpirun -n 2, {options}: the losses of threads")
        check(processes["text"].count("--- text by") == 1, "one rank prints")
    options = "--sample 0 --accum 4 --order tree --shard-ranks 2 --zero 2"
    threads = train(f"{options} --ranks 4")["fp32"]
    processes = train(f"{options} --mpi", [mpirun, "-n", "4"])["fp32"]
    check(processes["csv"] == threads["csv"] and is_expected(processes), "mpirun -n 4, groups of 2: the losses of threads")
    saved = train.folder / "mpi-checkpoints"
    options = "--sample 0 --accum 4 --order tree --recipe bf16_pure_kahan "
    straight = train(options + f"--mpi --zero 2 --checkpoint {saved} --checkpoint-every 1", launcher)["bf16_pure_kahan"]["csv"]
    middle = next(saved.glob("step-2-*"))
    resumed = train(options + f"--ranks 3 --zero 1 --resume {middle}")["bf16_pure_kahan"]["csv"]
    check(resumed == straight, "saved by 2 processes; gone on with 3 threads")
    resumed = train(options + f"--mpi --zero 3 --resume {middle}", launcher)["bf16_pure_kahan"]["csv"]
    check(resumed == straight, "saved by 2 processes; gone on with 2 processes")
    done = run(mpirun, ["-n", "2", train.program, "--data", train.text, "--mpi"], check=False)
    check(done.returncode != 0 and "--accum 1 is too few passes for 2 ranks" in done.stderr, "mpirun -n 2 --accum 1 is refused")
    # A rank that cannot begin, and one that was told something else: all end at once, and say why.
    common = ["--mpi", "--accum", "2", "--layers", "1", "--dim", "16", "--heads", "2", "--context", "16", "--steps", "2"]
    for what, other, words in (("without the text", ["--data", "/no/such/text"], "another rank could not begin"),
                               ("of another batch", ["--data", train.text, "--batch", "3"], "other values of --batch")):
        done = run(mpirun, ["-n", "1", train.program, "--data", train.text, *common, ":",
                            "-n", "1", train.program, *common, *other], check=False)
        check(done.returncode != 0 and words in done.stderr, f"a rank {what}: the others learn it")
    # Whatever decides which calls ranks make together is named, not the calls in which they then differ.
    for option, value in (("--guard-norm", "3"), ("--guard-loss", "3"), ("--val-every", "1"), ("--val-batches", "3"),
                          ("--sample", "3"),
                          ("--checkpoint", train.folder / "one"), ("--zero", "2"), ("--wire-dtype", "bf16"),
                          ("--recipe", "bf16_pure"),
                          ("--set", "grad.dtype=bf16"), ("--clip", "3"), ("--order", "tree")):
        done = run(mpirun, ["-n", "1", train.program, "--data", train.text, *common, ":",
                            "-n", "1", train.program, "--data", train.text, *common, option, value], check=False)
        named = "--guard-" if option.startswith("--guard") else option  # a guard changes its window's meaning, too
        check(done.returncode != 0 and f"other values of {named}" in done.stderr, f"ranks with other {option}: it is named")


def main():
    program, text = sys.argv[1], pathlib.Path(sys.argv[2]) / "train_gpt" / "genesis.txt"
    mpirun = sys.argv[4] if sys.argv[3:4] == ["--mpi"] else None
    check = Checks()
    with tempfile.TemporaryDirectory() as folder:
        train = Trainer(program, text, folder)
        if mpirun is None:
            check_usage(check, program, text)
            check_counts_of_ranks(check, train)
            check_stages(check, train)
            check_groups(check, train)
            check_nodes(check, train)
            check_recipes(check, train)
            check_checkpoints(check, train)
        elif shutil.which(mpirun) is None:
            print(f"skipped: there is no launcher {mpirun} (Debian: apt-get install openmpi-bin)")
            sys.exit(77)
        else:
            os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
            check_mpi(check, train, mpirun)
    check.exit()


main()
