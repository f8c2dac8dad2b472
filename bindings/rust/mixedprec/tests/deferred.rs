// SPDX-License-Identifier: Apache-2.0
//! Memory of parameters and gradients that comes and goes: named in advance, or the host's.
mod common;
use common::*;
use mixedprec::*;

// In stage 3 two weights take turns in one place, and a gradient has its own.
#[test]
fn memory_may_be_named_for_later() {
    let _ = on_ranks(Comm::threads(&CommOptions::default(), 2).unwrap(), |_, comm| {
        let context = Context::builder().threads(1).open().unwrap();
        let recipe = Recipe::new(&context, "fp32").unwrap();
        let (mut place, mut gradient) = ([7.0f32; 10], [7.0f32; 10]);
        let memory = place.as_mut_ptr();
        let at = |shape: &[usize]| {
            // SAFETY: `place` has ten elements, outlives all, and is read by this pointer alone, while a weight is gathered.
            unsafe {
                Tensor::deferred_from_raw_parts(&context, memory.cast(), DType::Fp32, shape, (DeviceKind::Host, 0))
            }
        };
        let (first, second) = (at(&[10]).unwrap(), at(&[10]).unwrap());
        let grad = Tensor::wrap_deferred(&context, &mut gradient, &[10]).unwrap();
        assert_eq!(kind(grad.to_vec::<f32>()), ErrorKind::BadState); // it has none yet
        let mut optimizer =
            Optimizer::sharded(&recipe, &OptimizerOptions::default(), &comm, &Sharding::stage(3)).unwrap();
        let group = optimizer.add_group(&GroupOptions::default()).unwrap();
        let a = optimizer.add_param(group, &Param { grad: Some(&grad), ..Param::new("a", &first) }).unwrap();
        let b = optimizer.add_param(group, &Param::new("b", &second)).unwrap();
        optimizer.shard().unwrap();
        optimizer.init_params(1, &[(a, FirstValues::Constant(2.0)), (b, FirstValues::Constant(3.0))]).unwrap();
        for (index, value) in [(a, 2.0), (b, 3.0)] {
            optimizer.gather(&[index]).unwrap();
            // SAFETY: this weight has the place now, and nobody moves it.
            assert_eq!(unsafe { *memory.add(9) }, value);
            optimizer.gather_free(&[index]).unwrap();
        }
        optimizer.acquire_grad(a).unwrap();
        assert_eq!(grad.to_vec::<f32>().unwrap(), [0.0; 10]);
    });
}

#[test]
fn gradients_may_be_the_hosts() {
    let context = context();
    let options = OptimizerOptions { offload: true, offload_grads: true, ..Default::default() };
    let mut optimizer = optimizer(&context, "fp32", options);
    assert!(optimizer.options().unwrap().offload_grads);
    let weight = Tensor::from_slice(&context, &[1.0f32; 100], &[100]).unwrap();
    let group = optimizer.add_group(&group(1e-3)).unwrap();
    let index = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
    assert_eq!(kind(optimizer.state(index, "grad").unwrap().to_vec::<f32>()), ErrorKind::BadState);
    optimizer.acquire_grad(index).unwrap();
    optimizer.state(index, "grad").unwrap().write(&[1.0f32; 100]).unwrap();
    optimizer.grad_ready(index).unwrap();
    optimizer.step(None).unwrap();
    assert!((weight.to_vec::<f32>().unwrap()[99] - 0.999).abs() < 1e-6);
    assert_eq!(optimizer.memory().unwrap().grad_bytes, 448); // lines of 64 bytes, on the host
}
