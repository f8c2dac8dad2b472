#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each function of the headers that may write to memory of the caller's, or of a tensor, is either a row of
tests/capi/writer_table*.hpp, which tries what layers keep of that memory, or stands below with the reason why it is none.

Such a function takes a queue, on which work is enqueued, or has an argument that it may write through: a tensor or numbers
that are not const, memory, the arrays of a step or of an exchange."""
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bindings/generate"))
import headers

TABLES = sorted((headers.ROOT / "tests/capi").glob("writer*.[hc]pp"))
WRITABLE = re.compile(r"^(mp_queue\*|mp_tensor\*|void\*|float\*|uint32_t\*|const mp_quantized_memory\*|"
                      r"const mp_comm_exchange\*|const mp_gemm_args\*|const mp_step_slot\*)$")
READS = "reads the tensor, or keeps it; what writes there later is a row of its own"
NUMBER = "writes numbers of an object's own, which the same operations and copies do"
TABLE_OF_SHARDING = "moves weights and gradients by the same operations and copies as mp_optimizer_shard's row"
NONE = {
    "mp_checkpoint_add_data": "mp_checkpoint_load writes there", "mp_checkpoint_verify": "the payload is handed on",
    "mp_comm_get_nccl_unique_id": "bytes of the host, made by NCCL",
    "mp_dlpack_export": READS,
    "mp_model_writer_write_tensor": "writes files alone", "mp_optimizer_write_params": "writes files alone",
    "mp_event_record": "writes nothing", "mp_queue_wait_event": "writes nothing",
    "mp_adapter_create": READS, "mp_linear_create": READS, "mp_linear_set_weight_codes": READS,
    "mp_linear_set_monitor": "the payload is handed on",
    "mp_linear_get_scaling": "bytes of the host, copied",
    "mp_linear_end_step": NUMBER, "mp_linear_clear_stats": NUMBER,
    "mp_linear_quantize": "mp_tensor_quantize by another name",
    "mp_optimizer_get_stats": "writes nothing", "mp_step_plan_get_stats": "writes nothing",
    "mp_optimizer_set_lr_tensor": READS, "mp_optimizer_set_grad_scale_tensor": READS,
    "mp_optimizer_set_step": NUMBER, "mp_optimizer_get_group_step": "writes nothing", "mp_optimizer_set_group_step": NUMBER,
    "mp_step_plan_set_args": NUMBER, "mp_step_plan_create": "mp_step_plan_run writes", "mp_optimizer_set_guard": NUMBER,
    "mp_optimizer_step_begin": "writes nothing but what the step reads",
    "mp_queue_sync": "writes nothing", "mp_queue_destroy": "writes nothing", "mp_queue_get_native": "writes nothing",
    "mp_queue_get_workspace": "writes nothing", "mp_queue_get_workspace_peak": "writes nothing",
    "mp_scaler_get_scale": "writes nothing", "mp_scaler_get_state": "writes nothing",
    "mp_scaler_update": NUMBER, "mp_scaler_check_pointers": NUMBER, "mp_scaler_combine": NUMBER, "mp_scaler_set_state": NUMBER,
    "mp_optimizer_grad_ready": TABLE_OF_SHARDING, "mp_optimizer_end_microbatch": TABLE_OF_SHARDING,
    "mp_optimizer_acquire_grad": TABLE_OF_SHARDING, "mp_optimizer_gather_begin": TABLE_OF_SHARDING,
    "mp_optimizer_gather_wait": TABLE_OF_SHARDING, "mp_optimizer_gather_free": TABLE_OF_SHARDING,
    "mp_optimizer_layer_begin": TABLE_OF_SHARDING, "mp_optimizer_layer_end": TABLE_OF_SHARDING,
    "mp_optimizer_set_frozen": TABLE_OF_SHARDING, "mp_optimizer_set_layer_params": "writes nothing",
    "mp_tensor_destroy": READS, "mp_tensor_wrap": READS, "mp_tensor_create_view": READS,
    "mp_context_create": "writes nothing",
}


def writers(functions):
    return {f.name for f in functions if any(WRITABLE.match(str(kind)) for kind, _ in f.parameters)}


def problems(functions, tables):
    found, listed = writers(functions), set(re.findall(r'"(mp_\w+)', tables))
    missing = [f"{name} may write, and is no row of the tables nor in the list of {Path(__file__).name}"
               for name in sorted(found - listed - NONE.keys())]
    return missing + [f"{name} is both a row and in the list" for name in sorted(NONE.keys() & listed)] + [
        f"{name} is in the list, but in no header" for name in sorted(NONE.keys() - {f.name for f in functions})]


def main():
    functions = headers.functions()
    found = problems(functions, "".join(path.read_text() for path in TABLES))
    print("\n".join(found) or f"{len(writers(functions))} functions that may write")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
