#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every subcommand of mixedprec: text, --json, wrong usage, damaged files, a closed output, exit codes.
usage: mixedprec_command.py MIXEDPREC MIXEDPREC_TRAIN FIXTURES"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

from common import Checks

SMALL = "--layers 1 --dim 32 --heads 2 --context 16 --batch 2 --steps 20 --sample 0 --val-batches 1 --threads 1"


def safetensors(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def tensor(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


class Command:
    def __init__(self, program, check):
        self.program, self.check = program, check

    def __call__(self, words, code=0, env=None):
        words = [str(word) for word in (words.split() if isinstance(words, str) else words)]
        done = subprocess.run([self.program] + words, capture_output=True, text=True, timeout=600,
                              env=dict(os.environ, **env) if env else None)
        self.check(done.returncode == code, f"mixedprec {' '.join(words)}: exit code {done.returncode}" +
                   ("" if done.returncode == code else f", wanted {code}\n{done.stdout}{done.stderr}"))
        return done

    def json(self, words, code=0, env=None):
        words = words.split() if isinstance(words, str) else words
        return json.loads(self(list(words) + ["--json"], code, env).stdout)


def check_info(command, check, folder):
    found = command.json("info")
    check(found["library"]["version"] >= 200 and len(found["environment"]) == 9, "info: library and environment")
    check(all(test["good"] for test in found["devices"][0]["self_test"]), "info: the self-test passes")
    supports = {(one["operation"], one["dtype"]): one["support"] for one in found["devices"][0]["operations"]}
    check(supports["matrix product", "fp32"] == "native" and set(supports.values()) <= {"native", "emulated", "yes", "no"},
          "info: operations and types")
    check("self_test" in command("info --no-self-test --json").stdout, "info without self-test")
    hidden = command.json("info --no-self-test",
                          env={"MIXEDPREC_MODULE_PATH": str(folder), "MIXEDPREC_ONEDNN_LIBRARY": "/no/such.so"})
    check("/no/such.so" in hidden["host"]["onednn"] and hidden["environment"]["MIXEDPREC_MODULE_PATH"] == str(folder),
          "info: a library that is hidden, and why")
    text = command("info").stdout
    check("Self-test: 10 checks passed" in text and "\033" not in text, "info: text without colour")


def check_recipes(command, check, folder):
    names = [one["name"] for one in command.json("recipe list")["recipes"]]
    check("bf16_pure_kahan" in names and names[-2:] == ["auto", "auto_fp8"], "recipe list")
    check(len(command.json("recipe keys")["keys"]) > 20, "recipe keys")
    check(command.json("recipe show fp32 --set gemm.margin=2")["gemm.margin"] == 2, "recipe show --set")
    check(len(command.json("recipe diff fp32 bf16_mixed")["differences"]) == 4, "recipe diff")
    check(command.json("recipe diff fp32 fp32")["differences"] == [], "recipe diff of the same")
    (folder / "bad.json").write_text('{"recipe": "fp32", "nonsense": 1}')
    verdicts = command.json(["recipe", "check", "fp32", "bf16_pure", folder / "bad.json"], 1)["recipes"]
    check([one["verdict"] for one in verdicts] == ["good", "advice", "refused"], "recipe check")


def check_plan(command, check, folder):
    plans = {one["recipe"]: one for one in command.json("plan --params 1M --memory 13M", 0)["plans"]}
    check(plans["fp32"]["bytes"]["total"] == 16_000_000 and not plans["fp32"]["fits"] and plans["bf16_pure_kahan"]["fits"],
          "plan: 16 bytes a parameter do not fit, 10 do")
    command("plan --params 1M --memory 1M", 1)
    offloaded = command.json("plan --params 1M --memory 9M --recipe fp32 --offload", 0)["plans"][0]
    check(offloaded["fits"] and offloaded["bytes"]["total"] - offloaded["bytes"]["on_host"] == 8_000_000,
          "plan: weights and gradients alone are the device's")
    both = command.json("plan --params 1M --recipe fp32 --offload --offload-grads", 0)["plans"][0]["bytes"]
    check(both["total"] - both["on_host"] == 4_000_000, "plan: weights alone are the device's")
    plans = command.json("plan --params 1M --recipe fp32 --offload --offload-grads --ranks 2", 0)["plans"]
    check([one["stage"] for one in plans] == [1, 2, 3], "plan: stages whose sums the host may have")
    plans = command.json("plan --shapes 1024x1024*2,1024 --recipe fp32 --ranks 4")["plans"]
    count = 2 * 1024 * 1024 + 1024
    check([one["stage"] for one in plans] == [0, 1, 2, 3] and
          plans[1]["step_bytes_sent_computed"]["total"] == 0.75 * 8 * count, "plan: stages, and a ring's bytes")
    mixed = command.json("plan --shapes 256x256,256 --recipe msamp_o2 --keep-fp32-vectors")["plans"][0]["bytes"]
    whole = command.json("plan --shapes 256x256 --recipe msamp_o2")["plans"][0]["bytes"]
    check(mixed["weights"] - whole["weights"] == 1024 and mixed["exp_avg_sq"] - whole["exp_avg_sq"] == 1024,
          "plan: a mixed layout")
    shared = command.json("plan --shapes 256x256,256 --recipe msamp_o2 --keep-fp32-vectors --ranks 2 --stage 1")["plans"][0]
    # The matrix has fp8 gradients and fp16 weights, the vector fp32 ones; half of all leaves a rank.
    sent = {"gradients": (65536 + 4 * 256) // 2, "weights": (2 * 65536 + 4 * 256) // 2}
    check(shared["step_bytes_sent_computed"] == {**sent, "total": sum(sent.values())}, "plan: a mixed layout's bytes on the wire")
    good = folder / "good.safetensors"
    safetensors(good, {"__metadata__": {"a": "b"}, "x": tensor([2, 3], 0, 24), "y": tensor([], 24, 28)}, b"0" * 28)
    check(command.json(["plan", "--safetensors", good, "--recipe", "fp32"])["parameters"] == 7, "plan of a safetensors file")
    bad = {"huge": struct.pack("<Q", 2**63) + b"{", "short": b"123", "empty": b"", "length": struct.pack("<Q", 99) + b"{}"}
    for name, data in bad.items():
        (folder / name).write_bytes(data)
    headers = {"nested": b'{"x":' * 1000, "null": b'{"x": null}', "list": b"[]", "twice": b'{"x":{},"x":{}}',
               "fields": {"x": {"dtype": "F32"}},
               "overlap": {"x": tensor([1], 0, 4), "y": tensor([1], 2, 6)}, "hole": {"x": tensor([1], 4, 8)},
               "overflow": {"x": tensor([2**62, 2**62], 0, 4)}, "type": {"x": tensor([1], 0, 4, "F33")},
               "size": {"x": tensor([2], 0, 4)}, "outside": {"x": tensor([100], 0, 400)}, "negative": {"x": tensor([-1], 0, 4)}}
    for name, header in headers.items():
        safetensors(folder / name, header, b"0" * 8)
    for name in list(bad) + list(headers):
        command(["plan", "--safetensors", folder / name], 1)
    os.mkfifo(folder / "pipe")
    command(["plan", "--safetensors", folder / "pipe"], 1)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def check_unknown_state(command, check, newest, folder):
    """A tensor of a state that this version does not know: named, and nothing is written without it."""
    later = folder / "later" / newest.name
    shutil.copytree(newest, later)
    manifest = (later / "manifest.json").read_bytes().replace(b'"state":"data"', b'"state":"tape"')
    body = manifest[:manifest.rindex(b',"crc32c":"')]
    (later / "manifest.json").write_bytes(body + b',"crc32c":"%08x"}\n' % crc32c(body))
    for words in (["reshard", later, folder / "none", "--ranks", 1], ["convert", later, folder / "none", "--recipe", "fp32"]):
        done = command(words, 1)
        check("(tape), which this version does not know" in done.stderr, f"{words[0]}: {done.stderr.strip()[-120:]}")
    check(not (folder / "none").exists(), "nothing is written")


def check_without_param(command, check, newest, folder):
    """A parameter's own tensor left out of the manifest, with its moments in it."""
    changed = folder / "without" / newest.name
    shutil.copytree(newest, changed)
    manifest = json.loads((changed / "manifest.json").read_bytes())
    del manifest["crc32c"]
    manifest["tensors"] = [one for one in manifest["tensors"] if (one["name"], one["state"]) != ("h0.fc.bias", "param")]
    body = json.dumps(manifest, separators=(",", ":"))[:-1].encode()
    (changed / "manifest.json").write_bytes(body + b',"crc32c":"%08x"}\n' % crc32c(body))
    done = command(["reshard", changed, folder / "none", "--ranks", 1], 1)
    check("map::at" not in done.stderr and not (folder / "none").exists(),
          f"reshard without a param: {done.stderr.strip()[-120:]}")


def check_resharding(command, check, folder, trainer, text):
    """What the trainer saves by each kind of recipe, in other numbers of files and back, to the bit."""
    runs = [["fp8_delayed", "--set", "gemm.filter.first_last=on"], ["fp8_delayed", "--set", "gemm.filter.multiple_of=32"],
            ["fp8_delayed", "--set", "layers=h0.*: gemm.amax_history_len=16; head"],
            ["bf16_mixed", "--set", "layers=*.fc: recipe=fp8_delayed"], ["fp8_block"], ["mxfp8"], ["msamp_o1"],
            ["msamp_o2", "--ranks", "2"], ["msamp_o3_fp8_delayed"], ["bf16_pure_sr"], ["bf16_with_fp8_mixed", "--ranks", "2"],
            ["bf16_pure_remainder"], ["fp16_amp", "--ranks", "2"],
            ["bf16_pure", "--ranks", "2", "--set",
             "layers=*fc*: optimizer.exp_avg.dtype=fp32; h0.*: optimizer.exp_avg_sq.dtype=fp32"]]
    for number, (recipe, *more) in enumerate(runs):
        saved, there, back = (folder / f"{what}{number}" for what in ("saved", "there", "back"))
        words = [trainer, "--data", str(text), *SMALL.split(), "--steps", "2", "--recipe", recipe, *more, "--checkpoint",
                 str(saved)]
        ranks = more[1] if "--ranks" in more else "1"
        words += ["--batch", "2", "--accum", ranks, "--val-batches", ranks]
        done = subprocess.run(words, capture_output=True, text=True)
        check(done.returncode == 0, f"{recipe} {more}: {done.stderr[-200:]}")
        command(["reshard", saved, there, "--ranks", 3])
        command(["reshard", there, back, "--ranks", 1])
        command(["diff", saved, back])
        if "gemm.filter" in "".join(more):
            command(["reshard", with_former_names(saved, folder / f"former{number}"), folder / f"of_former{number}", "--ranks",
                     3])
            command(["diff", saved, folder / f"of_former{number}"])


def with_former_names(saved, folder):
    """A copy of the newest checkpoint whose recipe calls its keys as before they lost the word fp8."""
    source = max(path for path in saved.iterdir() if path.name.startswith("step-"))
    shutil.copytree(source, folder / source.name)
    manifest = folder / source.name / "manifest.json"
    body = manifest.read_bytes()
    body = body[:body.rindex(b',"crc32c":"')]
    for now, before in ((b"gemm.filter.", b"fp8.filter."), (b"gemm.scaling", b"fp8.scaling"),
                        (b"gemm.fprop.quantized", b"fp8.fprop")):
        assert now in body
        body = body.replace(now, before)
    manifest.write_bytes(body + b',"crc32c":"%08x"}\n' % crc32c(body))
    return folder


def check_checkpoints(command, check, folder, trainer, text):
    runs = folder / "runs"
    words = [trainer, "--data", str(text)] + SMALL.split()
    for seed in (1, 2):
        done = subprocess.run(words + ["--seed", str(seed), "--compare", "fp32,bf16_pure", "--out", str(folder / f"out{seed}")],
                              capture_output=True, text=True)
        check(done.returncode == 0, f"losses of seed {seed}")
    subprocess.run(words + ["--recipe", "fp16_mixed", "--checkpoint", str(runs), "--checkpoint-every", "10"],
                   capture_output=True, check=True)
    check([one["step"] for one in command.json(["inspect", runs])["checkpoints"]] == [20, 10], "inspect: the newest first")
    newest = pathlib.Path(command.json(["inspect", runs])["checkpoints"][0]["path"])
    check(len(command.json(["inspect", newest])["tensor_list"]) > 10 and
          "fp16_mixed" in command(["inspect", newest, "--tensors"]).stdout, "inspect one")
    check(all(one["good"] for one in command.json(["verify", runs])["checkpoints"]), "verify")
    command(["reshard", newest, folder / "three", "--ranks", 3])
    check(command.json(["verify", folder / "three"])["checkpoints"][0]["good"], "verify three files")
    same = command.json(["diff", newest, folder / "three"])
    check(same["tensors"] > 10 and same["differences"] == [], "diff: the same in one file and in three")
    older = pathlib.Path(command.json(["inspect", runs])["checkpoints"][1]["path"])
    found = {(one["name"], one["state"]) for one in command.json(["diff", newest, older], 1)["differences"]}
    check(("step", "number") in found and any(state == "exp_avg" for _, state in found), "diff: steps and states of another time")
    without = {one["state"] for one in command.json(["diff", newest, older, "--no-data"], 1)["differences"]}
    check("data" in {state for _, state in found} and "data" not in without, "diff: without the program's own data")
    command(["reshard", folder / "three", folder / "one", "--ranks", 1])
    before, after = ([one["files"] for one in (command.json(["inspect", path]),)] for path in
                     (newest, command.json(["inspect", folder / "one"])["checkpoints"][0]["path"]))
    check(before[0][0]["bytes"] == after[0][0]["bytes"], "resharded there and back: as many bytes")
    command(["diff", newest, folder / "one"])
    made = command.json(["convert", newest, folder / "converted", "--recipe", "bf16_pure"])
    check(made["converted"] and 0 < made["errors"]["weight_largest"] < 0.01, "convert says what was lost")
    again = subprocess.run(words + ["--recipe", "fp16_mixed", "--steps", "25", "--resume", str(folder / "three")],
                           capture_output=True, text=True)
    check("format" in command(["diff", newest, folder / "converted"], 1).stdout, "diff: other formats")
    check(again.returncode == 0, "training goes on from a resharded checkpoint" + again.stderr[-300:] * (again.returncode != 0))
    check_unknown_state(command, check, newest, folder)
    check_without_param(command, check, newest, folder)
    check_resharding(command, check, folder, trainer, text)
    shard = next(newest.glob("shard-*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    check("is damaged between" in command(["verify", runs], 1).stdout, "verify finds a flipped bit")
    command(["reshard", newest, folder / "never", "--ranks", 2], 1)
    shard.write_bytes(data[:-1])
    command(["verify", newest], 1)
    (newest / "manifest.json").write_text("{}")
    command(["verify", newest], 1)
    command(["inspect", runs], 1)
    command(["inspect", folder / "nothing"], 1)


def check_compare(command, check, folder):
    files = [folder / f"out{seed}" / "losses.csv" for seed in (1, 2)]
    found = command.json(["compare", *files, "--tolerance", 50, "--svg", folder / "c.svg"])["recipes"]
    check(found[1]["seeds"] == 2 and found[1]["paired"] and found[1]["interval_half"] >= 0, "compare: two seeds, paired")
    check((folder / "c.svg").read_text().startswith("<svg"), "compare: a plot")
    check(command.json(["compare", files[0], "--tolerance", 50])["recipes"][1]["interval_half"] is None,
          "compare: one seed, no interval")
    rows = "recipe,step,train_loss,val_loss\n" + "".join(f"{name},1,{loss},\n" for name, loss in (("fp32", 1), ("worse", 2)))
    (folder / "worse.csv").write_text(rows)
    command(["compare", folder / "worse.csv"], 1)
    for name, text in (("nothing.csv", ""), ("letters.csv", rows + "x,1,abc,\n"), ("steps.csv", rows + "x,7,1,\n")):
        (folder / name).write_text(text)
        command(["compare", folder / name], 1)


def check_rest(command, check, folder):
    names = {one["name"]: one for one in command.json("bench --side 64 --mib 1 --repeats 1 --threads 1")["measurements"]}
    check(names["copy of fp32"]["value"] > 0 and names["product of bf16"]["ratio"] > 0, "bench")
    script = folder / "completion.bash"
    script.write_text(command("completion bash").stdout)
    asked = f". {script}; COMP_WORDS=(mixedprec recipe sh); COMP_CWORD=2; _mixedprec; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True)
    check(done.stdout == "show\n", f"bash completes: {done.stdout}{done.stderr}")
    check(command("completion zsh").stdout.startswith("#compdef mixedprec\n"), "a zsh completion")
    check("complete -c mixedprec" in command("completion fish").stdout, "a fish completion")
    check("--layers" in command("train --help").stdout, "train is the trainer")
    command("train --bogus 1", 2)
    alone = folder / "mixedprec"
    alone.write_bytes(pathlib.Path(command.program).read_bytes())
    alone.chmod(0o755)
    done = subprocess.run([alone, "train"], capture_output=True, text=True)
    check(done.returncode == 1 and "mixedprec_train" in done.stderr, "train without the trainer beside it says so")
    check("plan" in command("--help").stdout and "probe" not in command("--help").stdout, "--help")
    for words in ("", "bogus", "recipe", "recipe show", "recipe diff fp32", "recipe show fp32 --set x=1",
                  "recipe show fp32 --set x", "plan", "plan --params x", "plan --params 1e99", "plan --params 1M --ranks 0",
                  "plan --params 1M --rule sgd",
                  "plan --params 1M --stage 1", "plan --params 1M --ranks 2 --stage 4", "plan --shapes 3xx3", "plan --shapes 0",
                  "plan --shapes 9999999999x9999999999", "plan --shapes 1*99999999", "plan --shapes 1x1x1x1x1x1x1x1x1",
                  "plan --shapes 4 --keep-fp32 [", "compare", "diff a", "diff a b c", "bench --side 1", "completion csh",
                  "verify",
                  "reshard a b --ranks 0"):
        command(words, 2)
    for words in (["convert", "a", "b", "--recipe", ""], ["plan", "--params", "1M", "--recipe", ""],
                  ["compare", "a", "--svg", ""]):
        check("is empty" in command(words, 2).stderr, f"{words[0]}: a value that is empty")
    check("'bogus'" in command("bogus", 2).stderr and "'bogus'" in command("recipe bogus", 2).stderr, "the unknown word is said")
    command("recipe show nosuch", 1)
    with open("/dev/full", "w") as full:
        done = subprocess.run([command.program, "recipe", "list"], stdout=full, stderr=subprocess.PIPE, text=True)
    check(done.returncode == 1 and "standard output" in done.stderr, "a full standard output is a failure")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([command.program, "recipe", "list"], stdout=write, stderr=subprocess.PIPE, text=True)
    check(done.returncode == 1, "a closed pipe is a failure, not a signal")


def main():
    check = Checks()
    command, trainer = Command(sys.argv[1], check), sys.argv[2]
    text = pathlib.Path(sys.argv[3]) / "train_gpt" / "genesis.txt"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_info(command, check, folder)
        check_recipes(command, check, folder)
        check_plan(command, check, folder)
        check_checkpoints(command, check, folder, trainer, text)
        check_compare(command, check, folder)
        check_rest(command, check, folder)
    check.exit()


main()
