#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package safetensors opens what mixedprec_train leaves: the shard of a checkpoint, and weights alone, which are the
same bytes. Skipped where the package is not installed. usage: python_reader.py MIXEDPREC_TRAIN FIXTURES"""
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import safetensors
except ImportError:
    print("LEFT OUT: the Python package safetensors is not installed (pip install safetensors)")
    sys.exit(77)


def main():
    program, fixtures = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as temporary:
        for recipe, dtype in (("fp32", "F32"), ("bf16_pure_kahan", "BF16"), ("msamp_o2", "F16"), ("msamp_o3", "F8_E4M3")):
            folder = pathlib.Path(temporary, recipe)
            folder.mkdir()
            subprocess.run([program, "--recipe", recipe, "--steps", "1", "--layers", "1", "--dim", "16", "--heads", "2",
                            "--context", "16", "--batch", "2", "--sample", "0", "--val-batches", "1",
                            "--data", os.path.join(fixtures, "train_gpt", "genesis.txt"), "--checkpoint", folder / "c",
                            "--save", folder / "weights.safetensors"], check=True, stdout=subprocess.DEVNULL)
            shard = next((folder / "c").glob("step-1-*/shard-0-of-1.safetensors"))
            saved = dict(safetensors.deserialize(shard.read_bytes()))
            weights = dict(safetensors.deserialize((folder / "weights.safetensors").read_bytes()))
            assert {t["dtype"] for t in weights.values()} >= {dtype}, (recipe, {t["dtype"] for t in weights.values()})
            for name, tensor in weights.items():
                suffix = "_param_scale_inv"
                key = name[:-len(suffix)] + ".param_scale_inv" if name.endswith(suffix) else name + ".param"
                assert saved[key] == tensor, key
            print(f"{recipe}: {len(saved)} tensors of a shard, {len(weights)} of weights, e.g. head.weight "
                  f"{weights['head.weight']['dtype']} {weights['head.weight']['shape']}")


if __name__ == "__main__":
    main()
