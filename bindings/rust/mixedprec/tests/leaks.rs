// SPDX-License-Identifier: Apache-2.0
//! Objects that are made and dropped many times leave nothing behind. One test alone, because it looks at the
//! process.
mod common;
use common::*;
use mixedprec::*;

/// Bytes that the C library's allocator has lent, modulo 2^32; those of the process that are resident are the system's
/// to decide.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn lent() -> u32 {
    #[repr(C)]
    struct Info([i32; 10]);
    extern "C" {
        fn mallinfo() -> Info;
    }
    // SAFETY: takes nothing, and only counts.
    let Info(numbers) = unsafe { mallinfo() };
    let (mapped, in_use) = (numbers[4], numbers[7]);
    (mapped as u32).wrapping_add(in_use as u32)
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn lent() -> u32 {
    0
}

fn round() {
    let context = Context::builder().threads(1).log(LogLevel::Error, |_, _| {}).open().unwrap();
    let recipe = Recipe::new(&context, "fp8_delayed").unwrap();
    let mut memory = wave(64 * 128, 0.0);
    let mut optimizer = Optimizer::new(&recipe, &OptimizerOptions::default()).unwrap();
    let weight = Tensor::wrap(&context, &mut memory, &[64, 128]).unwrap();
    let mut optimizer_of_wrapped = Optimizer::new(&recipe, &OptimizerOptions::default()).unwrap();
    let group = optimizer_of_wrapped.add_group(&GroupOptions::default()).unwrap();
    optimizer_of_wrapped.add_param(group, &Param::new("w", &weight)).unwrap();
    let owned = recipe.weight(&[64, 128], None).unwrap();
    let group = optimizer.add_group(&GroupOptions::default()).unwrap();
    optimizer.add_param(group, &Param::new("w", &owned)).unwrap();
    let mut linear = Linear::new(&recipe, &owned, None, &LinearOptions::default()).unwrap();
    linear.set_monitor("layer", 1, |_, _, _| {}).unwrap();
    let x = Tensor::zeros(&context, DType::Fp32, &[16, 128]).unwrap();
    let y = Tensor::zeros(&context, DType::Fp32, &[16, 64]).unwrap();
    let mut saved = Saved::new(&linear).unwrap();
    linear.forward_saved(&x, Some(&y), Some(&mut saved), Keep::Input).unwrap();
    optimizer.set_linears(&[&linear]).unwrap();
    let mut scaler = Scaler::new(&context, &ScalerOptions::default()).unwrap();
    optimizer.step(Some(&mut scaler)).unwrap();
    optimizer_of_wrapped.step(None).unwrap();
    let cells = weight.cells::<f32>().unwrap();
    let mut checkpoint = Checkpoint::new(&context, None, CheckpointOptions::default()).unwrap();
    checkpoint.add_optimizer(&optimizer).unwrap();
    let comms = Comm::threads(&CommOptions::default(), 2).unwrap();
    drop(comms[0].begin_all_gather(&[1; 4096], &[4096, 4096]).unwrap());
    assert!(Recipe::new(&context, "nothing").is_err());
    drop(cells);
}

#[test]
fn nothing_is_left_behind() {
    for _ in 0..100 {
        round(); // pools and caches grow to their size
    }
    let before = lent();
    (0..400).for_each(|_| round());
    let growth = lent().wrapping_sub(before) as i32;
    // One lost tensor of a round would be 13 MB.
    assert!(growth < 1 << 20, "{growth} bytes more");
}
