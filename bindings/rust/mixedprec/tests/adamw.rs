// SPDX-License-Identifier: Apache-2.0
//! What the safe layer promises: the numbers of AdamW, errors as values, lengths checked, drops in any order.
use mixedprec::{
    step_pointers, sys, Bf16, Context, Hyperparameters, Optimizer, Recipe, Slot, Tensor,
};
use std::cell::Cell;
use std::ptr::{null, null_mut};

#[test]
fn ten_steps_are_within_two_ulp_of_double() {
    let context = Context::host(1).unwrap();
    let values = Hyperparameters {
        weight_decay: 0.01,
        ..Default::default()
    };
    let (mut p, mut m, mut v) = ([1.0f32; 5], [0.0f32; 5], [0.0f32; 5]);
    for t in 1..=10 {
        let g = [(t as f64).sin() as f32; 5];
        step_pointers(
            &context,
            &values,
            t,
            &mut [Slot::new(&mut p, &g, &mut m, &mut v).unwrap()],
        )
        .unwrap();
    }
    let expected = 0.996_245_676_070_964_1_f64 as f32;
    assert!(
        p.iter()
            .all(|x| x.to_bits().abs_diff(expected.to_bits()) <= 2),
        "{:?}",
        p
    );
}

#[test]
fn an_unknown_recipe_is_an_error_with_the_nearest_names() {
    let context = Context::host(1).unwrap();
    let error = Recipe::preset(&context, "bf16_pure_kahn").err().unwrap();
    assert_eq!(error.status, sys::MP_STATUS_UNKNOWN_NAME);
    assert_eq!(error.name, "MP_STATUS_UNKNOWN_NAME");
    assert!(error.message.contains("bf16_pure_kahan"), "{}", error);
    let boxed: Box<dyn std::error::Error + Send + Sync> = Box::new(error);
    assert!(boxed.to_string().contains("nearest"));
}

#[test]
fn slices_that_do_not_fit_never_reach_the_library() {
    let context = Context::host(1).unwrap();
    let (mut p, g, mut m, mut v) = ([Bf16(0); 4], [Bf16(0); 3], [0.0f32; 4], [0.0f32; 4]);
    let error = Slot::new(&mut p, &g, &mut m, &mut v).err().unwrap();
    assert_eq!(error.status, sys::MP_STATUS_INVALID_SHAPE);
    let cells = [Cell::new(1.0f32), Cell::new(2.0)];
    let tensor = Tensor::wrap(&context, &cells).unwrap();
    assert_eq!(
        tensor.read(&mut [Bf16(0); 4]).err().unwrap().status,
        sys::MP_STATUS_INVALID_DTYPE
    );
    assert!(tensor.read(&mut [0.0f32; 3]).is_err());
    let mut out = [0.0f32; 2];
    tensor.read(&mut out).unwrap();
    assert_eq!(out, [1.0, 2.0]);
}

#[test]
fn everything_may_be_dropped_before_the_optimizer() {
    let (p, g) = ([Cell::new(1.0f32)], [Cell::new(0.5f32)]);
    let mut optimizer = {
        let context = Context::host(1).unwrap();
        let mut optimizer =
            Optimizer::new(&context, &Recipe::preset(&context, "fp32").unwrap()).unwrap();
        let group = optimizer.add_group(&Hyperparameters::default()).unwrap();
        let (param, grad) = (
            Tensor::wrap(&context, &p).unwrap(),
            Tensor::wrap(&context, &g).unwrap(),
        );
        optimizer
            .add_param(&group, "p", &param, &grad, None)
            .unwrap();
        optimizer
    };
    assert_eq!(optimizer.step().unwrap().step, 1);
    assert_eq!(p[0].get(), 0.999);
    drop(optimizer);
    p[0].set(2.0); // ours again
}

/// Bindings with a garbage collector rest on this: a finalizer may run between a call and the reading of its message.
#[test]
fn giving_an_object_back_keeps_the_message() {
    let name = b"bf16_pure_kahn\0".as_ptr().cast();
    unsafe {
        let (mut context, mut recipe) = (null_mut(), null_mut());
        assert_eq!(sys::mp_context_create(null(), &mut context), 0);
        assert_eq!(
            sys::mp_recipe_create(context, name, &mut recipe),
            sys::MP_STATUS_UNKNOWN_NAME
        );
        sys::mp_context_destroy(context);
        assert_ne!(*sys::mp_last_error_message(), 0);
    }
}
