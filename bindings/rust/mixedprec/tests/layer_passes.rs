// SPDX-License-Identifier: Apache-2.0
//! Layers whose weights come and go, and whose gradients leave, by one call around a pass. Ranks are threads.
mod common;
use common::*;
use mixedprec::*;
use std::time::Duration;

const COUNT: usize = 40_000;
const LAYERS: usize = 2;

fn comms() -> Vec<Comm> {
    let options = CommOptions { deadline: Some(Duration::from_secs(20)), ..Default::default() };
    Comm::threads(&options, 2).unwrap()
}

/// An optimizer of one parameter a layer, and these.
fn model<'a>(context: &Context, comm: Option<(&Comm, i32)>) -> (Optimizer<'a>, Vec<Tensor<'a>>) {
    let recipe = Recipe::new(context, "fp32").unwrap();
    let options = OptimizerOptions::default();
    let mut optimizer = match comm {
        Some((comm, stage)) => Optimizer::sharded(&recipe, &options, comm, &Sharding::stage(stage)).unwrap(),
        None => Optimizer::new(&recipe, &options).unwrap(),
    };
    let group = optimizer.add_group(&group(0.01)).unwrap();
    let weights = (0..LAYERS).map(|_| recipe.weight(&[COUNT], Some(&wave(COUNT, 0.0))).unwrap());
    let weights: Vec<_> = weights.collect();
    for (layer, weight) in weights.iter().enumerate() {
        assert_eq!(optimizer.add_param(group, &Param::new(&format!("w{layer}"), weight)).unwrap(), layer as i32);
    }
    (optimizer, weights)
}

fn begin(optimizer: &mut Optimizer, layer: usize, pass: Pass) -> Result<()> {
    // SAFETY: these tests touch weights and gradients of a layer between its begin and its end alone.
    unsafe { optimizer.layer_begin(layer, pass) }
}

/// A whole number, so that no sum of it is rounded, and its mean over two ranks is that of one.
fn gradient(rank: Option<usize>, step: usize, layer: usize) -> f32 {
    ((step + layer) % 3) as f32 - 1.0 + rank.map_or(0.0, |rank| 2.0 * rank as f32 - 1.0)
}

/// The last weights. A gradient is the sum of two micro-batches.
fn train(optimizer: &mut Optimizer, weights: &[Tensor], rank: Option<usize>, stage: i32) -> Vec<Vec<u32>> {
    let forward = |optimizer: &mut Optimizer| {
        let layers = weights.iter().enumerate().map(|(layer, weight)| {
            begin(optimizer, layer, Pass::Forward).unwrap();
            let values = bits(&weight.to_vec().unwrap());
            optimizer.layer_end(layer, Pass::Forward).unwrap();
            values
        });
        layers.collect::<Vec<_>>()
    };
    for step in 0..4 {
        forward(optimizer);
        // The last layer's is not under way to anybody.
        assert_eq!(weights[LAYERS - 1].to_vec::<f32>().is_ok(), stage < 3);
        for pass in [Pass::Accumulate, Pass::Backward] {
            for layer in (0..LAYERS).rev() {
                begin(optimizer, layer, pass).unwrap();
                let grad = optimizer.state(layer as i32, "grad").unwrap();
                let value = match pass {
                    Pass::Accumulate => gradient(rank, step, layer) - 1.0,
                    _ => grad.to_vec::<f32>().unwrap()[COUNT - 1] + 1.0,
                };
                grad.write(&vec![value; COUNT]).unwrap();
                optimizer.layer_end(layer, pass).unwrap();
            }
        }
        optimizer.step(None).unwrap();
    }
    forward(optimizer)
}

#[test]
fn layers_give_the_same_bits_in_every_stage() {
    let context = Context::builder().threads(1).open().unwrap();
    let (mut optimizer, weights) = model(&context, None);
    optimizer.set_layer_params(&[&[0], &[1]], 1).unwrap();
    let expected = train(&mut optimizer, &weights, None, 0);
    assert!(expected[0] != bits(&wave(COUNT, 0.0)) && expected[0] != expected[1]);
    for stage in 0..=3 {
        for prefetch in 0..=1 {
            let results = on_ranks(comms(), |rank, comm| {
                let context = Context::builder().threads(1).open().unwrap();
                let (mut optimizer, weights) = model(&context, Some((&comm, stage)));
                optimizer.set_layer_params(&[&[0], &[1]], prefetch).unwrap();
                optimizer.shard().unwrap();
                train(&mut optimizer, &weights, Some(rank), stage)
            });
            assert!(results.iter().all(|result| *result == expected), "stage {stage}, prefetch {prefetch}");
        }
    }
}

#[test]
fn wrong_passes_are_refused() {
    let context = context();
    let (mut optimizer, _weights) = model(&context, None);
    assert_eq!(kind(begin(&mut optimizer, 0, Pass::Forward)), ErrorKind::InvalidArgument);
    optimizer.set_layer_params(&[&[0, 1], &[]], 0).unwrap();
    assert_eq!(kind(optimizer.layer_end(0, Pass::Forward)), ErrorKind::BadState);
    begin(&mut optimizer, 0, Pass::Backward).unwrap();
    assert_eq!(kind(begin(&mut optimizer, 0, Pass::Backward)), ErrorKind::BadState);
    assert_eq!(kind(optimizer.layer_end(0, Pass::Forward)), ErrorKind::BadState);
    assert_eq!(kind(optimizer.set_layer_params(&[], 1)), ErrorKind::BadState);
    optimizer.layer_end(0, Pass::Backward).unwrap();
    for layer in [2, usize::MAX] {
        assert_eq!(kind(begin(&mut optimizer, layer, Pass::Forward)), ErrorKind::InvalidArgument);
    }
    for wrong in [-1, 2] {
        assert_eq!(kind(optimizer.set_layer_params(&[&[wrong]], 1)), ErrorKind::InvalidArgument);
    }
    for prefetch in [65, usize::MAX] {
        assert_eq!(kind(optimizer.set_layer_params(&[&[0]], prefetch)), ErrorKind::InvalidArgument);
    }
    assert_eq!(kind(optimizer.set_layer_params(&[&[0, 0]], 1)), ErrorKind::InvalidArgument);
    optimizer.set_layer_params(&[], 1).unwrap();
}
