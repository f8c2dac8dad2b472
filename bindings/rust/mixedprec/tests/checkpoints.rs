// SPDX-License-Identifier: Apache-2.0
//! Saving and loading.
mod common;
use common::*;
use mixedprec::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

struct Model<'a> {
    optimizer: Optimizer<'a>,
    scaler: Scaler,
    linear: Linear<'a>,
    weight: Tensor<'a>,
    param: i32,
}

impl<'a> Model<'a> {
    fn new(context: &Context, recipe: &str) -> Model<'a> {
        let recipe = Recipe::new(context, recipe).unwrap();
        let weight = recipe.weight(&[64, 32], Some(&wave(2048, 0.0))).unwrap();
        let linear = Linear::new(&recipe, &weight, None, &LinearOptions::default()).unwrap();
        let mut optimizer = Optimizer::new(&recipe, &OptimizerOptions::default()).unwrap();
        let group = optimizer.add_group(&GroupOptions::default()).unwrap();
        let param = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
        optimizer.set_linears(&[&linear]).unwrap();
        Model { optimizer, scaler: Scaler::from_recipe(&recipe).unwrap(), linear, weight, param }
    }

    fn step(&mut self, phase: f32) {
        let context = self.weight.context().clone();
        let x = Tensor::from_slice(&context, &wave(512, phase), &[16, 32]).unwrap();
        let y = Tensor::zeros(&context, DType::Fp32, &[16, 64]).unwrap();
        self.linear.forward(&x, &y).unwrap();
        let grad = self.optimizer.state(self.param, "grad").unwrap();
        self.linear.backward(&y, &Gradients { dw: Some(&grad), ..Default::default() }).unwrap();
        self.optimizer.step(Some(&mut self.scaler)).unwrap();
        self.scaler.update().unwrap();
    }

    fn checkpoint(&self, options: CheckpointOptions) -> Checkpoint<'a> {
        let mut checkpoint = Checkpoint::new(self.weight.context(), None, options).unwrap();
        checkpoint.add_optimizer(&self.optimizer).unwrap();
        checkpoint.add_scaler(&self.scaler).unwrap();
        checkpoint.add_linear("layer", &self.linear).unwrap();
        checkpoint
    }
}

#[test]
fn training_goes_on_bit_for_bit() {
    let (context, folder) = (context(), Folder::new());
    let position = [Cell::new(5i64), Cell::new(6)];
    let done = Arc::new(AtomicU64::new(0));
    let mut first = Model::new(&context, "fp8_delayed");
    first.step(1.0);
    {
        let seen = done.clone();
        let progress = move |done, total| {
            assert!(done <= total);
            seen.store(done, Ordering::Relaxed);
            panic!("from a progress callback"); // which is swallowed
        };
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let options = CheckpointOptions { keep: 2, progress: Some(Box::new(progress)) };
        let mut checkpoint = first.checkpoint(options);
        checkpoint.add_data("position", &position).unwrap();
        checkpoint.save(folder.path(), 1).unwrap();
        std::panic::set_hook(hook);
        assert!(done.load(Ordering::Relaxed) > 8192);
    }
    first.step(2.0);
    position[1].set(77);

    let mut second = Model::new(&context, "fp8_delayed");
    let mut checkpoint = second.checkpoint(CheckpointOptions::default());
    checkpoint.add_data("position", &position).unwrap();
    let info = checkpoint.load(folder.path(), &Load { verify_all: true, ..Default::default() }).unwrap();
    assert_eq!((info.step, info.world, info.applied_step, info.converted), (1, 1, 1, false));
    assert_eq!((position[0].get(), position[1].get()), (5, 6));
    second.step(2.0);
    assert_eq!(second.weight.to_bytes().unwrap(), first.weight.to_bytes().unwrap());
    assert_eq!(second.linear.scaling().unwrap(), first.linear.scaling().unwrap());
    let file = folder.path().join("weights.safetensors");
    checkpoint.export_weights(&file).unwrap();
    assert!(std::fs::metadata(&file).unwrap().len() > 8192);
    assert_eq!(kind(checkpoint.export_weights(&file)), ErrorKind::Io);
}

#[test]
fn in_the_background() {
    let (context, folder) = (context(), Folder::new());
    let mut model = Model::new(&context, "bf16_mixed");
    let mut checkpoint = model.checkpoint(CheckpointOptions { keep: 1, progress: None });
    for step in 1..=3 {
        model.step(step as f32);
        checkpoint.save_in_background(folder.path(), step).unwrap();
        model.step(9.0); // the state was copied
        checkpoint.wait().unwrap();
        assert!(!checkpoint.is_saving().unwrap());
    }
    assert_eq!(checkpoint::inspect(folder.path()).unwrap().step, 3);
    assert!(checkpoint::describe(folder.path()).unwrap().contains("step-"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    checkpoint.save_in_background(folder.path(), 4).unwrap();
    drop((model, checkpoint)); // waits
    assert_eq!(checkpoint::inspect(folder.path()).unwrap().step, 4);
}

#[test]
fn what_is_wrong_changes_nothing() {
    let (context, folder) = (context(), Folder::new());
    assert_eq!(kind(checkpoint::inspect(folder.path())), ErrorKind::Io);
    assert_eq!(kind(checkpoint::inspect("a\0b")), ErrorKind::InvalidArgument);
    let mut model = Model::new(&context, "bf16_mixed");
    model.step(1.0);
    let mut checkpoint = model.checkpoint(CheckpointOptions::default());
    assert_eq!(kind(checkpoint.add_scaler(&model.scaler)), ErrorKind::BadState);
    assert_eq!(kind(checkpoint.add_data::<u8>("nothing", &[])), ErrorKind::InvalidArgument);
    assert_eq!(kind(checkpoint.save(folder.path(), -1)), ErrorKind::InvalidArgument);
    checkpoint.save(folder.path(), 1).unwrap();
    let mut other = Model::new(&context, "bf16_pure");
    other.step(1.0);
    let before = other.weight.to_bytes().unwrap();
    let mut loader = other.checkpoint(CheckpointOptions::default());
    assert_ne!(kind(loader.load(folder.path(), &Load::default())), ErrorKind::Internal);
    assert_eq!(other.weight.to_bytes().unwrap(), before);
    let info = loader.load(folder.path(), &Load { convert: true, ..Default::default() }).unwrap();
    assert!(info.converted && info.weight_error.0 > 0.0 && info.weight_error.0 < 0.01);
    assert!(info.state_error["exp_avg"].0 >= info.state_error["exp_avg"].1);
    // Damage is found, and an older checkpoint taken with a note.
    model.step(2.0);
    checkpoint.save(folder.path(), 2).unwrap();
    let newest = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let newest = newest.max_by_key(|path| path.file_name().unwrap().to_owned()).unwrap();
    for file in std::fs::read_dir(&newest).unwrap().map(|entry| entry.unwrap().path()) {
        let mut bytes = std::fs::read(&file).unwrap();
        let last = bytes.len() / 2;
        bytes[last] ^= 0xff;
        std::fs::write(&file, bytes).unwrap();
    }
    assert_eq!(kind(checkpoint.load(&newest, &Load::default())), ErrorKind::CorruptData);
    take_notes();
    assert_eq!(checkpoint.load(folder.path(), &Load::default()).unwrap().step, 1);
    assert_eq!(take_notes().len(), 1);
}

#[test]
fn ranks_save_together() {
    let folder = Folder::new();
    let path = folder.path();
    let run = |first: bool| {
        let weights: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let comms = Comm::threads(&CommOptions::default(), 2).unwrap();
            let threads: Vec<_> = comms
                .into_iter()
                .map(|comm| {
                    scope.spawn(move || {
                        let context = Context::builder().threads(1).open().unwrap();
                        let recipe = Recipe::new(&context, "bf16_mixed").unwrap();
                        let defaults = OptimizerOptions::default();
                        let mut optimizer =
                            Optimizer::sharded(&recipe, &defaults, &comm, &Sharding::stage(1)).unwrap();
                        let group = optimizer.add_group(&GroupOptions::default()).unwrap();
                        let weight = recipe.weight(&[40_000], Some(&wave(40_000, 0.0))).unwrap();
                        let index = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
                        let options = CheckpointOptions::default();
                        let mut checkpoint = Checkpoint::new(&context, Some(&comm), options).unwrap();
                        checkpoint.add_optimizer(&optimizer).unwrap();
                        optimizer.shard().unwrap();
                        if first {
                            let grad = optimizer.state(index, "grad").unwrap();
                            grad.write(&wave(40_000, 3.0)).unwrap();
                            optimizer.step(None).unwrap();
                            checkpoint.save(path, 1).unwrap();
                        } else {
                            assert_eq!(checkpoint.load(path, &Load::default()).unwrap().world, 2);
                        }
                        weight.to_bytes().unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(weights[0], weights[1]);
        weights
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn names_are_unique() {
    let (context, folder) = (context(), Folder::new());
    let model = Model::new(&context, "fp8_delayed");
    let mut checkpoint = model.checkpoint(CheckpointOptions::default());
    let again = checkpoint.add_linear("layer", &model.linear);
    let saved = checkpoint.save(folder.path(), 1);
    assert_eq!(kind(again.and(saved)), ErrorKind::InvalidArgument);
}
