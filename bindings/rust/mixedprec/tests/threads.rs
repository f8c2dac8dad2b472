// SPDX-License-Identifier: Apache-2.0
//! What threads may share, and what a program may do to them.
mod common;
use common::*;
use mixedprec::*;

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

#[test]
fn what_may_be_shared_is() {
    is_send::<Context>();
    is_sync::<Context>();
    is_send::<Recipe>();
    is_send::<Comm>();
    is_send::<Event>();
    is_send::<Aborter>();
    is_sync::<Aborter>();
    is_send::<Error>();
    is_sync::<Error>();
}

#[test]
fn one_context_for_all_threads() {
    let context = context();
    let expected = steps(&context, 1.0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| steps(&context, 1.0))).collect();
        for thread in threads {
            assert!(thread.join().unwrap() == expected);
        }
    });
}

/// Steps with everything made in this thread.
fn steps(context: &Context, phase: f32) -> Vec<u32> {
    let recipe = Recipe::new(context, "bf16_mixed").unwrap();
    let mut optimizer = Optimizer::new(&recipe, &OptimizerOptions::default()).unwrap();
    let group = optimizer.add_group(&GroupOptions::default()).unwrap();
    let weight = recipe.weight(&[20_000], Some(&wave(20_000, 0.0))).unwrap();
    let index = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
    for step in 0..20 {
        let grad = optimizer.state(index, "grad").unwrap();
        grad.write(&wave(20_000, phase + step as f32)).unwrap();
        optimizer.step(None).unwrap();
    }
    bits(&weight.to_vec().unwrap())
}

#[test]
fn a_context_is_dropped_anywhere() {
    let context = context();
    let tensor = Tensor::from_slice(&context, &[1.0f32], &[1]).unwrap();
    let clone = context.clone();
    std::thread::spawn(move || drop(clone)).join().unwrap();
    drop(context);
    tensor.zero().unwrap();
}

#[test]
fn forgotten_objects_harm_nobody() {
    let context = context();
    let mut memory = wave(100, 0.0);
    {
        let tensor = Tensor::wrap(&context, &mut memory, &[100]).unwrap();
        let recipe = Recipe::new(&context, "fp32").unwrap();
        let mut optimizer = Optimizer::new(&recipe, &OptimizerOptions::default()).unwrap();
        let group = optimizer.add_group(&GroupOptions::default()).unwrap();
        optimizer.add_param(group, &Param::new("p", &tensor)).unwrap();
        optimizer.step(None).unwrap();
        std::mem::forget((tensor, optimizer));
    }
    let copy = memory.clone();
    context.sync().unwrap();
    assert_eq!(memory, copy);
}

#[test]
fn lent_by_dlpack_and_taken_back() {
    let context = context();
    let tensor = Tensor::from_slice(&context, &wave(12, 0.0), &[3, 4]).unwrap();
    let lent = tensor.to_dlpack().unwrap();
    // SAFETY: it was just made, and only this thread has it.
    let back = unsafe { Tensor::from_dlpack(&context, lent).unwrap() };
    assert_eq!(back.shape(), [3, 4]);
    drop(tensor);
    assert_eq!(back.to_vec::<f32>().unwrap(), wave(12, 0.0));
}

#[test]
fn many_dead_objects() {
    // More than the library remembers of the dead, so that addresses are used again.
    let context = context();
    for _ in 0..5000 {
        let tensor = Tensor::from_slice(&context, &[2.0f32], &[1]).unwrap();
        let view = tensor.view(0, &[]).unwrap();
        drop(tensor);
        assert_eq!(view.to_vec::<f32>().unwrap(), [2.0]);
    }
}
