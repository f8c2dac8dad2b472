// SPDX-License-Identifier: Apache-2.0
//! Recipes, errors and notes.
mod common;
use common::*;
use mixedprec::*;

#[test]
fn presets_and_keys() {
    let context = context();
    let presets = presets().unwrap();
    assert!(presets.len() > 15 && presets.iter().any(|preset| preset.name == "bf16_mixed"));
    for preset in &presets {
        let recipe = Recipe::new(&context, preset.name).unwrap();
        assert!(!preset.text.is_empty());
        let json = recipe.to_json().unwrap();
        assert_eq!(Recipe::from_json(&context, &json).unwrap().to_json().unwrap(), json);
    }
    let recipe = Recipe::new(&context, "fp32").unwrap();
    for key in keys().unwrap() {
        assert!(!key.allowed.is_empty() && !key.text.is_empty());
        match key.kind {
            KeyType::Text => assert_eq!(recipe.text(key.name).unwrap(), key.fp32_value),
            KeyType::Float => drop(recipe.float(key.name).unwrap()),
            KeyType::Int => drop(recipe.int(key.name).unwrap()),
        }
    }
}

#[test]
fn keys_are_set_until_a_recipe_is_used() {
    let context = context();
    let mut recipe = Recipe::new(&context, "fp8_delayed").unwrap();
    recipe.set_int("gemm.amax_history_len", 7).unwrap();
    recipe.set_float("scaler.init_scale", 1024.0).unwrap();
    recipe.set_text("gemm.amax_compute_algo", "most_recent").unwrap();
    assert_eq!(recipe.int("gemm.amax_history_len").unwrap(), 7);
    assert_eq!(recipe.float("scaler.init_scale").unwrap(), 1024.0);
    assert_eq!(recipe.text("gemm.amax_compute_algo").unwrap(), "most_recent");
    recipe.validate().unwrap();
    assert!(!recipe.is_frozen().unwrap());
    let scaler = Scaler::from_recipe(&recipe).unwrap();
    assert!(recipe.is_frozen().unwrap());
    assert_eq!(kind(recipe.set_int("gemm.amax_history_len", 8)), ErrorKind::BadState);
    let mut copy = recipe.try_clone().unwrap();
    copy.set_int("gemm.amax_history_len", 8).unwrap();
    copy.set_text("layers", "lm_*: gemm.amax_history_len=9").unwrap();
    assert_eq!(copy.for_layer("lm_head").unwrap().int("gemm.amax_history_len").unwrap(), 9);
    assert_eq!(kind(copy.for_layer("a\0b").map(drop)), ErrorKind::InvalidArgument);
    assert_ne!(copy.for_param("lm_head").unwrap().int("gemm.amax_history_len").unwrap(), 9);
    assert_eq!(scaler.scale().unwrap(), 1.0); // fp8_delayed scales no loss
    let auto = Recipe::new(&context, "auto").unwrap();
    assert!(!auto.reason().unwrap().is_empty() && recipe.reason().unwrap().is_empty());
    // One thread at a time, but any.
    std::thread::spawn(move || copy.to_json().map(drop)).join().unwrap().unwrap();
}

#[test]
fn from_files() {
    let (context, folder) = (context(), Folder::new());
    let path = folder.path().join("recipe.json");
    assert_eq!(kind(Recipe::from_file(&context, &path).map(drop)), ErrorKind::Io);
    std::fs::write(&path, r#"{"recipe": "bf16_mixed", "optimizer.exp_avg.dtype": "bf16"}"#).unwrap();
    let recipe = Recipe::from_file(&context, &path).unwrap();
    assert_eq!(recipe.text("optimizer.exp_avg.dtype").unwrap(), "bf16");
}

#[test]
fn memory_before_anything_is_allocated() {
    let context = context();
    let recipe = Recipe::new(&context, "bf16_mixed_dual").unwrap();
    let report = recipe.plan_memory(Rule::AdamW, &[1000, 24]).unwrap();
    assert_eq!((report.parameter_count, report.weight_bytes, report.master_bytes), (1024, 2048, 4096));
    let (stage1, counts) = (Sharding::stage(1), [1 << 20, 1 << 20]);
    let whole = recipe.plan_memory(Rule::AdamW, &counts).unwrap();
    let rank = recipe.plan_memory_sharded(Rule::AdamW, &counts, &stage1, 1, 2).unwrap();
    assert_eq!(rank.state_bytes["exp_avg"] * 2, whole.state_bytes["exp_avg"]);
    assert_eq!(kind(recipe.plan_memory(Rule::Lion, &[usize::MAX])), ErrorKind::InvalidArgument);
    assert_eq!(kind(recipe.plan_memory_sharded(Rule::Lion, &[1], &stage1, 2, 2)), ErrorKind::InvalidArgument);
}

#[test]
fn plans_of_tensors_that_differ() {
    let context = context();
    let recipe = Recipe::new(&context, "bf16_pure").unwrap();
    let kept = PlannedTensor { weight_dtype: Some(DType::Fp32), rule: Rule::Lion, ..PlannedTensor::new(24) };
    let mut tensors = vec![PlannedTensor::new(1000), kept];
    let stage1 = Sharding::stage(1);
    let options = OptimizerOptions::default();
    let (memory, traffic) = recipe.plan_tensors(&options, &tensors, &stage1, 0, 1).unwrap();
    assert_eq!((memory.weight_bytes, memory.state_bytes["exp_avg_sq"]), (2 * 1000 + 4 * 24, 2 * 1000));
    assert_eq!(traffic.total_bytes, 0);
    assert!(recipe.plan_tensors(&options, &tensors, &stage1, 1, 2).unwrap().1.total_bytes > 0);
    assert_eq!(recipe.plan_tensors(&options, &[], &stage1, 0, 1).unwrap().0.total_bytes, 0);
    let given = OptimizerOptions { grads_given: true, ..options };
    assert_eq!(recipe.plan_tensors(&given, &tensors, &stage1, 0, 1).unwrap().0.grad_bytes, 0);
    tensors[0].state_formats = formats("exp_avg", "fp32");
    assert_eq!(recipe.plan_tensors(&options, &tensors[..1], &stage1, 0, 1).unwrap().0.state_bytes["exp_avg"], 4 * 1000);
    tensors[0].state_formats = formats("exp_avg", "int9");
    assert!(recipe.plan_tensors(&options, &tensors, &stage1, 0, 1).is_err());
    tensors[0].state_formats = formats("exp_avg", "a\0b");
    assert_eq!(kind(recipe.plan_tensors(&options, &tensors, &stage1, 0, 1)), ErrorKind::InvalidArgument);
    assert_eq!(kind(recipe.plan_tensors(&options, &[PlannedTensor::new(1)], &stage1, 2, 2)), ErrorKind::InvalidArgument);
}

#[test]
fn weights_in_the_recipes_types() {
    let context = context();
    let values = wave(32, 0.0);
    for (name, dtype) in [("bf16_mixed", DType::Fp32), ("bf16_pure", DType::Bf16), ("msamp_o2", DType::Fp16)] {
        let recipe = Recipe::new(&context, name).unwrap();
        assert_eq!(recipe.weight(&[4, 8], Some(&values)).unwrap().dtype(), dtype);
        assert_eq!(kind(recipe.weight(&[4, 9], Some(&values)).map(drop)), ErrorKind::InvalidShape);
        assert_eq!(recipe.weight(&[0, 9], None).unwrap().len(), 0);
    }
    let delayed = Recipe::new(&context, "fp8_delayed").unwrap();
    assert_eq!(delayed.weight_codes(&[4, 8], Some(&values)).unwrap().dtype(), DType::Fp8E4M3);
    let blocks = Recipe::new(&context, "mxfp8").unwrap();
    assert_eq!(kind(blocks.weight_codes(&[4, 8], None).map(drop)), ErrorKind::Unsupported);
}

#[test]
fn errors_have_kinds_and_the_librarys_words() {
    let context = context();
    let error = Recipe::new(&context, "bf16_mixt").map(drop).unwrap_err();
    assert_eq!((error.kind(), error.status_name()), (ErrorKind::UnknownName, "MP_STATUS_UNKNOWN_NAME"));
    assert!(error.message().contains("bf16_mixed"), "{error}");
    assert!(error.to_string().starts_with("MP_STATUS_UNKNOWN_NAME: "));
    fn is_good_error<E: std::error::Error + Send + Sync + 'static>(_: &E) {}
    is_good_error(&error);
    assert_eq!(kind(Recipe::from_json(&context, "{\"recipe\": ").map(drop)), ErrorKind::Parse);
    assert_eq!(kind(Recipe::new(&context, "a\0b").map(drop)), ErrorKind::InvalidArgument);
    let mut recipe = Recipe::new(&context, "fp32").unwrap();
    assert_eq!(kind(recipe.set_text("weight.type", "bf16")), ErrorKind::UnknownName);
    assert_eq!(kind(recipe.set_text("weight.dtype", "double")), ErrorKind::InvalidArgument);
    assert_eq!(kind(recipe.set_int("weight.dtype", 3)), ErrorKind::InvalidArgument);
    assert_eq!(kind(recipe.float("weight.dtype")), ErrorKind::InvalidArgument);
    // The message is the failed call's, whatever is dropped meanwhile.
    let message = {
        let _dropped_first = Recipe::new(&context, "fp32").unwrap();
        Recipe::new(&context, "nothing").map(drop).unwrap_err()
    };
    assert!(message.message().contains("nothing"));
}

#[test]
fn notes_are_kept_until_they_are_taken() {
    let context = context();
    take_notes();
    let recipe = Recipe::new(&context, "bf16_pure").unwrap();
    recipe.validate().unwrap();
    recipe.to_json().unwrap();
    let notes = take_notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(take_notes().is_empty());
    for _ in 0..100 {
        recipe.validate().unwrap();
    }
    assert_eq!(take_notes().len(), 64);
    recipe.validate().unwrap();
    assert!(std::thread::spawn(take_notes).join().unwrap().is_empty());
    assert_eq!(take_notes(), notes);
}
