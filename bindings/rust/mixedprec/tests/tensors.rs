// SPDX-License-Identifier: Apache-2.0
//! Contexts, queues, tensors, conversions, quantized tensors, products.
mod common;
use common::*;
use mixedprec::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[test]
fn library_and_devices() {
    let (major, minor, patch) = library_version();
    assert!((major, minor) >= (0, 2), "{major}.{minor}.{patch}");
    assert!(library_build_info().contains('.'));
    assert_eq!(DeviceKind::Host.count().unwrap(), 1);
    DeviceKind::Host.available(0).unwrap();
    assert!(!DeviceKind::Host.name(0).unwrap().is_empty());
    assert!(DeviceKind::Host.memory(0).unwrap() > 1 << 20);
    assert_ne!(kind(DeviceKind::Host.available(7)), ErrorKind::Internal);
}

#[test]
fn contexts() {
    let context = context();
    assert_eq!(context.threads().unwrap(), 2);
    assert!(context.describe().unwrap().contains("\"host\""));
    context.sync().unwrap();
    assert_eq!(kind(Context::builder().threads(-3).open().map(drop)), ErrorKind::InvalidArgument);
    assert_eq!(kind(Context::builder().backend("warp").open().map(drop)), ErrorKind::UnknownName);
    assert_eq!(kind(Context::builder().backend("a\0b").open().map(drop)), ErrorKind::InvalidArgument);
    // Alive, so the library cannot end.
    assert_eq!(kind(library_shutdown()), ErrorKind::BadState);
}

#[test]
fn a_log_gets_lines_and_its_panics_go_nowhere() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let (copy, count) = (lines.clone(), Arc::new(AtomicUsize::new(0)));
    let seen = count.clone();
    let context = Context::builder()
        .threads(1)
        .log(LogLevel::Debug, move |level, line| {
            assert!(level <= LogLevel::Debug);
            copy.lock().unwrap().push(line.to_owned());
            // A call of the library is an error here, and a panic is swallowed.
            let inner = Context::new().map(drop).unwrap_err();
            assert_eq!(inner.kind(), ErrorKind::BadState);
            seen.fetch_add(1, Ordering::Relaxed);
            panic!("from a log");
        })
        .open()
        .unwrap();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut optimizer = Optimizer::new(
        &Recipe::new(&context, "fp32").unwrap(),
        &OptimizerOptions { check_finite: true, ..Default::default() },
    )
    .unwrap();
    let group = optimizer.add_group(&GroupOptions::default()).unwrap();
    let p = Tensor::from_slice(&context, &[1.0f32], &[1]).unwrap();
    let g = Tensor::from_slice(&context, &[f32::NAN], &[1]).unwrap();
    optimizer.add_param(group, &Param::new("p", &p).grad(&g)).unwrap();
    optimizer.step(None).unwrap();
    std::panic::set_hook(hook);
    assert!(optimizer.stats().unwrap().found_inf);
    assert!(!lines.lock().unwrap().is_empty());
    assert_eq!(count.load(Ordering::Relaxed), lines.lock().unwrap().len());
}

#[test]
fn a_parallel_loop_of_the_programs_gives_the_same_bits() {
    fn steps(context: &Context) -> Vec<u32> {
        let count = 200_000;
        let (mut p, g) = (wave(count, 0.0), wave(count, 1.0));
        let (mut m, mut v) = (vec![0.0f32; count], vec![0.0f32; count]);
        for step in 1..4 {
            let slot = Slot::new(&mut p, &g).exp_avg(&mut m).exp_avg_sq(&mut v);
            step_slices(context, &StepArgs { step, ..Default::default() }, &mut [slot], None).unwrap();
        }
        bits(&p)
    }
    let expected = steps(&context());
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = calls.clone();
    let threads = Context::builder()
        .threads(4)
        .parallel(move |count, task| {
            seen.fetch_add(1, Ordering::Relaxed);
            std::thread::scope(|scope| {
                for part in 0..2 {
                    scope.spawn(move || (0..count).filter(|i| i % 2 == part).for_each(task));
                }
            });
        })
        .open()
        .unwrap();
    assert_eq!(steps(&threads), expected);
    assert!(calls.load(Ordering::Relaxed) > 0);
    // One that forgets some, does others twice, and invents more.
    let careless = Context::builder()
        .threads(4)
        .parallel(|count, task| {
            for index in (0..count + 9).step_by(2) {
                task(index);
                task(index);
            }
        })
        .open()
        .unwrap();
    assert_eq!(steps(&careless), expected);
}

// Cells of the memory that the library's threads work on may lie in a thread local: no code of the program runs there meanwhile.
#[test]
fn a_parallel_loop_never_meets_the_cells_of_its_caller() {
    use std::cell::RefCell;
    thread_local! {
        static CELLS: RefCell<Option<Cells<'static, f32>>> = const { RefCell::new(None) };
    }
    let met = Arc::new(AtomicUsize::new(0));
    let calls = Arc::new(AtomicUsize::new(0));
    let (seen, called) = (met.clone(), calls.clone());
    let lent = Context::builder()
        .threads(4)
        .parallel(move |count, task| {
            called.fetch_add(1, Ordering::Relaxed);
            seen.fetch_add(CELLS.with(|cells| cells.borrow().is_some()) as usize, Ordering::Relaxed);
            // Nor does the library take a call from there, that would make some.
            seen.fetch_add(Context::new().is_ok() as usize, Ordering::Relaxed);
            (0..count).for_each(task);
        })
        .open()
        .unwrap();
    let recipe = Recipe::new(&lent, "fp32").unwrap();
    let mut optimizer = Optimizer::new(&recipe, &OptimizerOptions::default()).unwrap();
    let group = optimizer.add_group(&GroupOptions::default()).unwrap();
    let p = Tensor::zeros(&lent, DType::Fp32, &[200_000]).unwrap();
    let grad = Tensor::from_slice(&lent, &[1f32; 200_000], &[200_000]).unwrap();
    optimizer.add_param(group, &Param::new("p", &p).grad(&grad)).unwrap();
    CELLS.with(|cells| *cells.borrow_mut() = Some(p.cells::<f32>().unwrap()));
    optimizer.step(None).unwrap();
    CELLS.with(|cells| *cells.borrow_mut() = None);
    assert!(calls.load(Ordering::Relaxed) > 0);
    assert_eq!(met.load(Ordering::Relaxed), 0);
}

#[test]
fn queues_and_events() {
    let context = context();
    let (queue, other) = (Queue::new(&context).unwrap(), Queue::new(&context).unwrap());
    let mut event = Event::new(&context).unwrap();
    assert!(event.is_reached().unwrap());
    let mut tensor = Tensor::from_slice(&context, &[1.0f32; 100], &[10, 10]).unwrap();
    tensor.set_queue(Some(&queue));
    tensor.zero().unwrap();
    event.record(Some(&queue)).unwrap();
    other.wait_event(&event).unwrap();
    event.sync().unwrap();
    queue.sync().unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [0.0; 100]);
    queue.workspace_peak().unwrap();
    queue.reserve_workspace(1 << 16).unwrap();
    drop(queue); // the tensor still has it
    tensor.zero().unwrap();
    tensor.set_queue(None);
    tensor.zero().unwrap();
    event.record(None).unwrap();
    std::thread::spawn(move || event.sync()).join().unwrap().unwrap();
}

#[test]
fn tensors_of_the_library() {
    let context = context();
    let data = wave(24, 0.0);
    let tensor = Tensor::from_slice(&context, &data, &[2, 3, 4]).unwrap();
    assert_eq!((tensor.shape(), tensor.len(), tensor.dtype()), (vec![2, 3, 4], 24, DType::Fp32));
    assert_eq!((tensor.byte_len(), tensor.device(), tensor.is_empty()), (96, DeviceKind::Host, false));
    assert_eq!(tensor.to_vec::<f32>().unwrap(), data);
    assert_eq!(tensor.to_bytes().unwrap().len(), 96);
    let view = tensor.view(4, &[2, 4]).unwrap();
    assert_eq!(view.to_vec::<f32>().unwrap(), data[4..12]);
    view.zero().unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap()[3..5], [data[3], 0.0]);
    let cells = tensor.cells::<f32>().unwrap();
    cells[5].set(7.5);
    drop(tensor); // cells and view keep the memory
    assert_eq!((cells[5].get(), cells.len()), (7.5, 24));
    assert_eq!(view.to_vec::<f32>().unwrap()[1], 7.5);
    let empty = Tensor::from_slice::<f32>(&context, &[], &[0, 5]).unwrap();
    assert!(empty.is_empty() && empty.to_vec::<f32>().unwrap().is_empty());
    assert!(empty.cells::<f32>().unwrap().is_empty());
    let scalar = Tensor::from_slice(&context, &[3i64], &[]).unwrap();
    assert_eq!((scalar.len(), scalar.to_vec::<i64>().unwrap()), (1, vec![3]));
    let host = Tensor::zeros_on_host(&context, DType::Fp32, &[2, 4]).unwrap();
    view.copy_to(&host).unwrap();
    assert_eq!(host.to_vec::<f32>().unwrap()[1], 7.5);
}

#[test]
fn wrong_tensors_are_errors() {
    let context = context();
    let tensor = Tensor::from_slice(&context, &wave(6, 0.0), &[6]).unwrap();
    assert_eq!(kind(Tensor::from_slice(&context, &[1.0f32; 5], &[6]).map(drop)), ErrorKind::InvalidShape);
    assert_eq!(kind(Tensor::zeros(&context, DType::Fp32, &[1; 9]).map(drop)), ErrorKind::InvalidShape);
    assert_eq!(kind(Tensor::zeros(&context, DType::Fp32, &[usize::MAX]).map(drop)), ErrorKind::InvalidArgument);
    assert_eq!(kind(Tensor::zeros(&context, DType::Fp32, &[1 << 40, 1 << 40]).map(drop)), ErrorKind::InvalidShape);
    assert_eq!(kind(Tensor::from_slice(&context, &[0.0f32], &[1 << 40, 1 << 40]).map(drop)), ErrorKind::InvalidShape);
    assert_eq!(kind(tensor.read(&mut [0.0f32; 5])), ErrorKind::InvalidShape);
    assert_eq!(kind(tensor.write(&[0.0f32; 7])), ErrorKind::InvalidShape);
    assert_eq!(kind(tensor.write_bytes(&[0; 7])), ErrorKind::InvalidShape);
    // The reproduction of bytes as fp32: the type of the slice says what it is.
    assert_eq!(kind(tensor.write(&[0u8; 24])), ErrorKind::InvalidDType);
    assert_eq!(kind(tensor.to_vec::<Bf16>()), ErrorKind::InvalidDType);
    assert_eq!(kind(tensor.cells::<i32>().map(drop)), ErrorKind::InvalidDType);
    assert_eq!(kind(tensor.view(3, &[4]).map(drop)), ErrorKind::InvalidShape);
    assert_eq!(kind(tensor.view(usize::MAX, &[1]).map(drop)), ErrorKind::InvalidArgument);
    assert_ne!(kind(tensor.copy_to(&tensor.view(0, &[6]).unwrap())), ErrorKind::Internal);
    assert_ne!(kind(tensor.scales().map(drop)), ErrorKind::Internal);
    assert_ne!(kind(tensor.quantization().map(drop)), ErrorKind::Internal);
}

#[test]
fn wrapped_memory_is_written_in_place() {
    let context = context();
    let mut data = wave(10, 0.0);
    let expected = data[9];
    {
        let tensor = Tensor::wrap(&context, &mut data, &[2, 5]).unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap()[9], expected);
        tensor.zero().unwrap();
        tensor.cells::<f32>().unwrap()[3].set(2.0);
    }
    assert_eq!(data, [0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(kind(Tensor::wrap(&context, &mut data, &[11]).map(drop)), ErrorKind::InvalidShape);
    assert!(Tensor::wrap::<f32>(&context, &mut [], &[0]).unwrap().is_empty());
    let tensor = Tensor::wrap(&context, &mut data, &[10]).unwrap();
    drop(context); // the tensor keeps it
    tensor.zero().unwrap();
}

#[test]
fn conversions() {
    let context = context();
    let source = [1.0f32, -0.1, 1e9, f32::INFINITY, f32::NAN];
    let tensor = Tensor::from_slice(&context, &source, &[5]).unwrap();
    let bf16 = tensor.to_dtype(DType::Bf16).unwrap().to_vec::<Bf16>().unwrap();
    assert_eq!((bf16[0], bf16[1].to_f32()), (Bf16(0x3f80), -0.100_097_656));
    let mut slice = [Bf16(0); 5];
    cast_slice(&context, &source, &mut slice, &Cast::default()).unwrap();
    assert_eq!(slice.map(|code| code.0)[..4], [bf16[0].0, bf16[1].0, bf16[2].0, bf16[3].0]);
    let fp8 = tensor.to_dtype(DType::Fp8E4M3).unwrap().to_vec::<Fp8E4M3>().unwrap();
    assert_eq!(fp8[2], Fp8E4M3(0x7e)); // 448
    let kept = Tensor::zeros(&context, DType::Fp8E4M3, &[5]).unwrap();
    tensor.cast_to(&kept, &Cast { overflow: Overflow::Infinity, ..Cast::default() }).unwrap();
    assert_eq!(kept.to_vec::<Fp8E4M3>().unwrap()[2], Fp8E4M3(0x7f)); // NaN: there is no infinity
    assert!(tensor.amax().unwrap().is_nan());
    assert_eq!(tensor.view(0, &[3]).unwrap().amax().unwrap(), 1e9);
    // Stochastic rounding: the same numbers give the same bits, and the mean is right.
    let values = vec![1.001f32; 4096];
    let random = Stochastic { seed: 1, uid: 2, step: 3, microbatch: 4 };
    let cast = Cast { stochastic: Some(random), ..Cast::default() };
    let (mut one, mut two) = (vec![Bf16(0); 4096], vec![Bf16(0); 4096]);
    cast_slice(&context, &values, &mut one, &cast).unwrap();
    cast_slice(&context, &values, &mut two, &cast).unwrap();
    assert_eq!(one, two);
    let mean = one.iter().map(|code| f64::from(code.to_f32())).sum::<f64>() / 4096.0;
    assert!((mean - 1.001).abs() < 3e-4, "{mean}");
    assert_eq!(kind(cast_slice(&context, &values, &mut [F16(0); 3], &cast)), ErrorKind::InvalidShape);
    assert_eq!(kind(cast_slice(&context, &[1i32], &mut [0.0f32], &Cast::default())), ErrorKind::InvalidDType);
    assert_eq!(DType::from_name("fp8_e5m2"), Some(DType::Fp8E5M2));
    assert_eq!((DType::from_name("double"), DType::Bf16.size()), (None, 2));
    assert_eq!(DType::Bf16.to_string(), "bf16");
}

#[test]
fn quantized_tensors() {
    let context = context();
    let values = wave(64 * 96, 0.0);
    let source = Tensor::from_slice(&context, &values, &[64, 96]).unwrap();
    let back = Tensor::zeros(&context, DType::Fp32, &[64, 96]).unwrap();
    for scaling in [Scaling::Tensor, Scaling::Row, Scaling::Block1x128, Scaling::Block128x128, Scaling::Mx1x32] {
        let how = Quantization::new(scaling);
        let codes = Tensor::quantized(&context, DType::Fp8E4M3, &[64, 96], &how).unwrap();
        let stats = source.quantize_with_stats(&codes, None, &Quantize::default()).unwrap();
        assert_eq!((stats.elements, stats.non_finite), (64 * 96, 0));
        codes.dequantize_to(&back).unwrap();
        let error = back.to_vec::<f32>().unwrap().iter().zip(&values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error > 0.0 && error < 0.04, "{scaling:?}: {error}");
        let (rows, columns, dtype) = how.scale_grid(64, 96).unwrap();
        let scales = codes.scales().unwrap();
        assert_eq!((scales.shape(), scales.dtype()), (vec![rows, columns], dtype));
        assert_eq!(codes.quantization().unwrap().scaling, scaling);
        assert_eq!(codes.quantized_amax().unwrap().to_vec::<f32>().unwrap()[0], source.amax().unwrap());
        assert_ne!(kind(codes.view(0, &[1]).map(drop)), ErrorKind::Internal);
        assert_ne!(kind(codes.cells::<Fp8E4M3>().map(drop)), ErrorKind::Internal);
    }
    // In memory of the program's.
    #[repr(align(16))]
    struct Scales([f32; 64]);
    let (mut codes, mut scales) = (vec![Fp8E4M3(0); 64 * 96], Scales([0.0; 64]));
    let rowwise = Quantization::new(Scaling::Row);
    {
        let tensor = Tensor::wrap_quantized(&context, &mut codes, &[64, 96], &mut scales.0, &rowwise).unwrap();
        source.quantize_to(&tensor, None, &Quantize::default()).unwrap();
    }
    assert!(scales.0.iter().all(|&scale| scale > 0.0) && codes.iter().any(|code| code.0 != 0));
    let few = Tensor::wrap_quantized(&context, &mut codes, &[64, 96], &mut scales.0[..63], &rowwise);
    assert_eq!(kind(few.map(drop)), ErrorKind::InvalidShape);
    let mut bytes = [E8M0(0); 64];
    let wrong = Tensor::wrap_quantized(&context, &mut codes, &[64, 96], &mut bytes, &rowwise);
    assert_eq!(kind(wrong.map(drop)), ErrorKind::InvalidShape);
    let crooked = Tensor::wrap_quantized(&context, &mut codes, &[63, 96], &mut scales.0[1..], &rowwise);
    assert_ne!(kind(crooked.map(drop)), ErrorKind::Internal);

    let turned = Tensor::zeros(&context, DType::Fp8E4M3, &[96, 64]).unwrap();
    let codes = Tensor::quantized(&context, DType::Fp8E4M3, &[64, 96], &Quantization::default()).unwrap();
    let random = Quantize { stochastic: Some(Stochastic::default()), ..Default::default() };
    source.quantize_to(&codes, Some(&turned), &random).unwrap();
    let (codes_bytes, turned_bytes) = (codes.to_bytes().unwrap(), turned.to_bytes().unwrap());
    assert_eq!(codes_bytes[96 + 2], turned_bytes[2 * 64 + 1]);
    let fp4 = Tensor::quantized(&context, DType::Fp4E2M1, &[64, 96], &Quantization::new(Scaling::Nvfp4)).unwrap();
    source.quantize_to(&fp4, None, &Quantize::default()).unwrap();
    assert_eq!(fp4.to_bytes().unwrap().len(), 64 * 96 / 2);
    assert_ne!(kind(source.quantize_to(&back, None, &Quantize::default())), ErrorKind::Internal);
}

#[test]
fn products() {
    let context = context();
    let (a, b) = (wave(6 * 4, 0.0), wave(4 * 5, 1.0));
    let (t_a, t_b) =
        (Tensor::from_slice(&context, &a, &[6, 4]).unwrap(), Tensor::from_slice(&context, &b, &[4, 5]).unwrap());
    let bias = Tensor::from_slice(&context, &[1.0f32; 5], &[5]).unwrap();
    let d = Tensor::zeros(&context, DType::Fp32, &[6, 5]).unwrap();
    let options = GemmOptions { bias: true, alpha: 2.0, ..GemmOptions::new(6, 5, 4, DType::Fp32) };
    let mut gemm = Gemm::new(&context, &options).unwrap();
    gemm.run(&GemmOperands { bias: Some(&bias), ..GemmOperands::new(&t_a, &t_b, &d) }).unwrap();
    let d_values = d.to_vec::<f32>().unwrap();
    for i in 0..6 {
        for j in 0..5 {
            let sum: f32 = (0..4).map(|k| a[i * 4 + k] * b[k * 5 + j]).sum();
            assert!((d_values[i * 5 + j] - (2.0 * sum + 1.0)).abs() < 1e-5);
        }
    }
    assert!(!gemm.describe().unwrap().is_empty());
    // Without the bias it was planned with; over an operand; too small.
    assert_ne!(kind(gemm.run(&GemmOperands::new(&t_a, &t_b, &d))), ErrorKind::Internal);
    let over = GemmOperands { bias: Some(&bias), ..GemmOperands::new(&t_a, &t_b, &t_a) };
    assert_ne!(kind(gemm.run(&over)), ErrorKind::Internal);
    let small = GemmOperands { bias: Some(&bias), ..GemmOperands::new(&t_a, &bias, &d) };
    assert_eq!(kind(gemm.run(&small)), ErrorKind::InvalidShape);
    let huge = GemmOptions::new(1 << 40, 5, 2, DType::Fp32);
    assert_eq!(kind(Gemm::new(&context, &huge).map(drop)), ErrorKind::InvalidShape);
    // As codes: a product and a quantization.
    let row = Quantization::new(Scaling::Row);
    let codes = || Tensor::quantized(&context, DType::Fp8E4M3, &[6, 5], &row).unwrap();
    let (made, expected) = (codes(), codes());
    d.quantize_to(&expected, None, &Quantize::default()).unwrap();
    let into_codes = GemmOptions { dtype_d: DType::Fp8E4M3, quant_d: Some(row), ..options.clone() };
    let biased = |d| GemmOperands { bias: Some(&bias), ..GemmOperands::new(&t_a, &t_b, d) };
    Gemm::new(&context, &into_codes).unwrap().run(&biased(&made)).unwrap();
    assert_eq!(made.to_bytes().unwrap(), expected.to_bytes().unwrap());
    let bare = GemmOptions { quant_d: None, ..into_codes };
    assert_eq!(kind(Gemm::new(&context, &bare).unwrap().run(&biased(&made))), ErrorKind::InvalidDType);
    let unknown = GemmOptions { implementation: Some("warp".to_owned()), ..options };
    assert_eq!(kind(Gemm::new(&context, &unknown).map(drop)), ErrorKind::UnknownName);
}
