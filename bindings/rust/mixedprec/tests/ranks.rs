// SPDX-License-Identifier: Apache-2.0
//! Communicators, transports of the program's, reductions, sharded optimizers. Ranks are threads.
mod common;
use common::*;
use mixedprec::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options() -> CommOptions {
    CommOptions { deadline: Some(Duration::from_secs(20)), ..Default::default() }
}

fn exchange(rank: usize, comm: &Comm) {
    let size = comm.size().unwrap();
    assert_eq!(comm.rank().unwrap(), rank);
    assert_eq!(comm.node(rank).unwrap(), comm.node(0).unwrap());
    let mut values = [rank as u32, 7 - rank as u32];
    comm.max_u32(&mut values).unwrap();
    assert_eq!(values, [size as u32 - 1, 7]);
    let mut data = [rank as u8; 3];
    comm.broadcast(&mut data, 1).unwrap();
    assert_eq!(data, [1; 3]);
    // Rank r sends r + 1 bytes to each.
    let parts: Vec<Vec<u8>> = (0..size).map(|to| vec![(10 * rank + to) as u8; rank + 1]).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let sizes: Vec<usize> = (1..=size).collect();
    let request = comm.begin_all_to_all(&parts, &sizes).unwrap();
    let gather = comm.begin_all_gather(&vec![rank as u8; rank + 1], &sizes).unwrap();
    for (from, part) in request.wait().unwrap().iter().enumerate() {
        assert_eq!(part, &vec![(10 * from + rank) as u8; from + 1]);
    }
    for (from, part) in gather.wait().unwrap().iter().enumerate() {
        assert_eq!(part, &vec![from as u8; from + 1]);
    }
    assert_eq!(comm.all_to_all(&parts, &sizes).unwrap().len(), size);
    assert_eq!(comm.all_gather(&[], &vec![0; size]).unwrap(), vec![Vec::<u8>::new(); size]);
    let mut request = comm.begin_broadcast(vec![rank as u8; 5], 0).unwrap();
    while !request.test().unwrap() {
        std::thread::yield_now();
    }
    assert_eq!(request.wait().unwrap(), [0; 5]);
    comm.barrier().unwrap();
    assert!(comm.traffic().unwrap().total_bytes > 0 || size == 1);
    comm.status().unwrap();
    assert_eq!(kind(comm.all_to_all(&parts[1..], &sizes).map(drop)), ErrorKind::InvalidShape);
    assert_eq!(kind(comm.all_gather(&[], &[]).map(drop)), ErrorKind::InvalidShape);
    assert_ne!(kind(comm.broadcast(&mut data, 99)), ErrorKind::Internal);
    assert!(!comm.describe().unwrap().is_empty());
}

#[test]
fn threads_exchange_bytes() {
    on_ranks(Comm::threads(&options(), 3).unwrap(), |rank, comm| {
        exchange(rank, &comm);
        let pair = comm.split((rank < 2).then_some(0), 0).unwrap();
        assert_eq!(pair.is_some(), rank < 2);
        if let Some(pair) = pair {
            assert_eq!(pair.size().unwrap(), 2);
            pair.barrier().unwrap();
        }
    });
    let own = Comm::own(&options()).unwrap();
    assert_eq!((own.rank().unwrap(), own.size().unwrap()), (0, 1));
    assert_eq!(own.all_gather(&[1, 2], &[2]).unwrap(), [[1, 2]]);
    assert_eq!(own.deadline().unwrap(), Duration::from_secs(20));
    own.set_deadline(Duration::from_secs(3)).unwrap();
    assert_eq!(own.deadline().unwrap(), Duration::from_secs(3));
    assert_eq!(kind(own.all_gather(&[1], &[usize::MAX]).map(drop)), ErrorKind::InvalidArgument);
    assert_eq!(kind(Comm::threads(&options(), 0).map(drop)), ErrorKind::InvalidArgument);
}

#[test]
fn what_goes_wrong_comes_out_on_every_rank() {
    let short = CommOptions { deadline: Some(Duration::from_millis(300)), ..Default::default() };
    let mut comms = Comm::threads(&short, 2).unwrap();
    let (absent, waiting) = (comms.pop().unwrap(), comms.pop().unwrap());
    assert_eq!(kind(waiting.barrier()), ErrorKind::Timeout);
    assert_eq!(kind(waiting.status()), ErrorKind::Timeout);
    drop(absent);

    let mut comms = Comm::threads(&options(), 2).unwrap();
    drop(comms.pop());
    assert_eq!(kind(comms[0].barrier()), ErrorKind::Peer);

    let comms = Comm::threads(&options(), 2).unwrap();
    let kinds =
        on_ranks(comms, |rank, comm| if rank == 0 { kind(comm.barrier()) } else { kind(comm.max_u32(&mut [1])) });
    assert_eq!(kinds, [ErrorKind::Peer, ErrorKind::Peer]);

    // One rank is given up from elsewhere while it waits.
    let mut comms = Comm::threads(&options(), 2).unwrap();
    let other = comms.pop().unwrap();
    let comm = comms.pop().unwrap();
    let aborter = comm.aborter();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            aborter.abort("enough").unwrap();
        });
        let error = comm.barrier().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Peer);
        assert!(error.message().contains("enough"), "{error}");
    });
    drop((comm, other));
    aborter.abort("it is gone").unwrap();

    // A request that is dropped, or forgotten, leaves nobody with memory that is gone.
    let comms = Comm::threads(&short, 2).unwrap();
    drop(comms[0].begin_all_gather(&[1; 1000], &[1000, 1000]).unwrap());
    assert_eq!(kind(comms[0].barrier()), ErrorKind::Peer);
    let comms = Comm::threads(&short, 2).unwrap();
    std::mem::forget(comms[0].begin_all_gather(&[1; 1000], &[1000, 1000]).unwrap());
    assert_ne!(kind(comms[1].barrier()), ErrorKind::Internal);
}

/// Ranks of one process that leave parts for each other: a transport as a program would write it.
struct Mailbox {
    rank: usize,
    members: Vec<usize>,
    space: i64,
    parts: Arc<Mutex<HashMap<Address, Vec<u8>>>>,
    fails: bool,
}

/// Group, operation, sender, receiver.
type Address = (i64, u64, usize, usize);

impl Mailbox {
    fn ranks(count: usize) -> Vec<Mailbox> {
        let parts = Arc::new(Mutex::new(HashMap::new()));
        let members: Vec<usize> = (0..count).collect();
        (0..count)
            .map(|rank| Mailbox { rank, members: members.clone(), space: -1, parts: parts.clone(), fails: false })
            .collect()
    }
}

impl Transport for Mailbox {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn begin(&mut self, operation: &mut Operation<'_>) -> std::result::Result<(), String> {
        let sequence = operation.sequence();
        for to in 0..self.size() {
            let part = match operation.kind() {
                OperationKind::AllToAll | OperationKind::AllGather => operation.send(to).to_vec(),
                OperationKind::Broadcast if operation.root() == self.rank => operation.data().to_vec(),
                OperationKind::Max => operation.values().iter().flat_map(|value| value.to_ne_bytes()).collect(),
                _ => Vec::new(),
            };
            self.parts.lock().unwrap().insert((self.space, sequence, self.rank, to), part);
        }
        Ok(())
    }

    fn poll(&mut self, operation: &mut Operation<'_>) -> std::result::Result<bool, String> {
        assert!(!self.fails, "from a transport");
        let mut parts = self.parts.lock().unwrap();
        let sequence = operation.sequence();
        let address = |from| (self.space, sequence, from, self.rank);
        if !(0..self.members.len()).all(|from| parts.contains_key(&address(from))) {
            return Ok(false);
        }
        for from in 0..self.members.len() {
            let part = parts.remove(&address(from)).unwrap();
            match operation.kind() {
                OperationKind::AllToAll | OperationKind::AllGather => {
                    operation.receive(from).copy_from_slice(&part);
                }
                OperationKind::Broadcast if from == operation.root() => operation.data().copy_from_slice(&part),
                OperationKind::Max => {
                    for (value, bytes) in operation.values().iter_mut().zip(part.chunks_exact(4)) {
                        *value = (*value).max(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
                    }
                }
                _ => {}
            }
        }
        Ok(true)
    }

    fn split(&mut self, group: &Group) -> std::result::Result<Box<dyn Transport>, String> {
        // The same on all members, and on no others.
        let space = self.space * 1000 + i64::from(group.context) * 10 + group.members[0] as i64 + 1;
        let (members, parts) = (group.members.clone(), self.parts.clone());
        Ok(Box::new(Mailbox { rank: group.rank, members, space, parts, fails: false }))
    }
}

#[test]
fn a_transport_of_the_programs() {
    let comms =
        Mailbox::ranks(3).into_iter().map(|rank| Comm::from_transport(&options(), Box::new(rank)).unwrap()).collect();
    on_ranks(comms, |rank, comm| {
        exchange(rank, &comm);
        let pair = comm.split(Some((rank / 2) as u16), 0).unwrap().unwrap();
        assert_eq!(pair.size().unwrap(), if rank < 2 { 2 } else { 1 });
        pair.barrier().unwrap();
    });
    let mut ranks = Mailbox::ranks(1);
    ranks[0].fails = true;
    let comm = Comm::from_transport(&options(), Box::new(ranks.pop().unwrap())).unwrap();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = comm.max_u32(&mut [1]);
    std::panic::set_hook(hook);
    assert_eq!(kind(result), ErrorKind::CallbackFailed);
    let wrong = Mailbox { rank: 3, ..Mailbox::ranks(1).pop().unwrap() };
    assert_eq!(kind(Comm::from_transport(&options(), Box::new(wrong)).map(drop)), ErrorKind::InvalidArgument);
}

#[test]
fn reductions() {
    on_ranks(Comm::threads(&options(), 2).unwrap(), |rank, comm| {
        let context = Context::builder().threads(1).open().unwrap();
        let mine = Tensor::from_slice(&context, &wave(256, rank as f32), &[256]).unwrap();
        let sum = Tensor::zeros(&context, DType::Fp32, &[256]).unwrap();
        comm.all_reduce(&ReduceOptions::default(), &[&mine], &sum).unwrap();
        let expected: Vec<f32> = wave(256, 0.0).iter().zip(wave(256, 1.0)).map(|(a, b)| a + b).collect();
        assert_eq!(sum.to_vec::<f32>().unwrap(), expected);
        let share = Tensor::zeros(&context, DType::Fp32, &[128]).unwrap();
        comm.reduce_scatter(&ReduceOptions::default(), &[&mine], Some(&[128, 128]), &share).unwrap();
        assert_eq!(share.to_vec::<f32>().unwrap(), expected[128 * rank..128 * (rank + 1)]);
        let whole = Tensor::zeros(&context, DType::Fp32, &[256]).unwrap();
        comm.all_gather_values(&ReduceOptions::default(), &share, None, &whole).unwrap();
        assert_eq!(whole.to_vec::<f32>().unwrap(), expected);
        let narrow = ReduceOptions { wire_dtype: Some(DType::Bf16), order: Order::Exact, ..Default::default() };
        comm.all_reduce(&narrow, &[&mine], &whole).unwrap();
        let error =
            whole.to_vec::<f32>().unwrap().iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(error > 0.0 && error < 0.02, "{error}");
        let counts = comm.reduce_scatter(&ReduceOptions::default(), &[&mine], Some(&[256]), &share);
        assert_eq!(kind(counts), ErrorKind::InvalidShape);
        assert_ne!(kind(comm.all_reduce(&ReduceOptions::default(), &[&mine], &mine)), ErrorKind::Internal);
        let mut scaler = Scaler::new(&context, &ScalerOptions::default()).unwrap();
        if rank == 1 {
            scaler.check(&[&[f32::NAN][..]]).unwrap();
        }
        scaler.combine(&comm).unwrap();
        assert!(scaler.state().unwrap().found_inf);
    });
    assert_eq!(wire_bytes(128, DType::Fp8E4M3, WireScale::Block).unwrap(), 132);
}

const COUNT: usize = 40_000;

/// Some steps on ranks that share an optimizer: the last weights of rank 0.
fn train(comms: Vec<Comm>, stage: i32) -> Vec<u32> {
    let results = on_ranks(comms, |rank, comm| {
        let context = Context::builder().threads(1).open().unwrap();
        let recipe = Recipe::new(&context, "fp32").unwrap();
        let sharding = Sharding::stage(stage);
        let mut optimizer = Optimizer::sharded(&recipe, &OptimizerOptions::default(), &comm, &sharding).unwrap();
        let mut scaler = Scaler::new(&context, &ScalerOptions::default()).unwrap();
        let group = optimizer.add_group(&GroupOptions::default()).unwrap();
        let weight = recipe.weight(&[COUNT], Some(&wave(COUNT, 0.0))).unwrap();
        let small = recipe.weight(&[10], None).unwrap();
        let index = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
        let other = optimizer.add_param(group, &Param::new("b", &small)).unwrap();
        optimizer.shard().unwrap();
        for step in 0..4 {
            optimizer.gather(&[index, other]).unwrap();
            for param in [other, index] {
                optimizer.acquire_grad(param).unwrap();
                let grad = optimizer.state(param, "grad").unwrap();
                // A mean over two ranks that is the same however many there are.
                let sign = if rank == 0 { 1.0 } else { 3.0 };
                let values = wave(grad.len(), step as f32);
                grad.write(&values.iter().map(|g| sign * 0.5 * 65536.0 * g).collect::<Vec<f32>>()).unwrap();
                optimizer.grad_ready(param).unwrap();
                // Nobody waits for another thread that allocates: there is no collector here, but there are locks.
                drop(vec![0u8; 1 << 20]);
            }
            optimizer.step(Some(&mut scaler)).unwrap();
            scaler.update().unwrap();
        }
        assert_eq!(optimizer.stats().unwrap().step, 4);
        let owned: usize = (0..2).map(|rank| optimizer.slice(index, rank).unwrap().len()).sum();
        assert_eq!(owned, COUNT);
        assert!(optimizer.traffic().unwrap().total_bytes > 0);
        let progress = optimizer.progress().unwrap();
        assert_eq!(progress.begun, progress.finished);
        assert_eq!(optimizer.grad_mu(index).unwrap(), 0.0);
        if stage == 3 {
            assert_ne!(kind(weight.to_vec::<f32>()), ErrorKind::Internal);
        }
        optimizer.gather(&[index]).unwrap();
        let values = bits(&weight.to_vec().unwrap());
        optimizer.gather_free(&[index]).unwrap();
        values
    });
    assert!(results[0] == results[1], "ranks have the same weights");
    results.into_iter().next().unwrap()
}

#[test]
fn sharded_optimizers_give_the_same_bits_in_every_stage() {
    let expected = train(Comm::threads(&options(), 2).unwrap(), 0);
    assert!(expected != bits(&wave(COUNT, 0.0)));
    for stage in 1..=3 {
        assert!(train(Comm::threads(&options(), 2).unwrap(), stage) == expected, "stage {stage}");
    }
    let mailboxes = Mailbox::ranks(2).into_iter();
    let comms = mailboxes.map(|rank| Comm::from_transport(&options(), Box::new(rank)).unwrap()).collect();
    assert!(train(comms, 1) == expected, "over a transport of the program's");
}

#[test]
fn memory_that_comes_and_goes_is_never_read() {
    on_ranks(Comm::threads(&options(), 2).unwrap(), |rank, comm| {
        let context = Context::builder().threads(1).open().unwrap();
        let recipe = Recipe::new(&context, "fp32").unwrap();
        let mut memory = wave(COUNT, 0.0);
        // Weights of the program's own are there while they are gathered.
        let mut own = wave(COUNT, 0.0);
        let taken = Tensor::wrap(&context, &mut own, &[COUNT]).unwrap();
        let mut optimizer =
            Optimizer::sharded(&recipe, &OptimizerOptions::default(), &comm, &Sharding::stage(3)).unwrap();
        let group = optimizer.add_group(&GroupOptions::default()).unwrap();
        optimizer.add_param(group, &Param::new("w", &taken)).unwrap();
        optimizer.shard().unwrap();
        assert!(taken.to_vec::<f32>().is_err());
        drop(optimizer);
        let wrapped = Tensor::wrap(&context, &mut memory, &[COUNT]).unwrap();
        // A gradient's memory leaves with its bucket, and cells of it keep it, or there is an error.
        let mut optimizer =
            Optimizer::sharded(&recipe, &OptimizerOptions::default(), &comm, &Sharding::stage(2)).unwrap();
        let group = optimizer.add_group(&GroupOptions::default()).unwrap();
        let index = optimizer.add_param(group, &Param::new("w", &wrapped)).unwrap();
        optimizer.shard().unwrap();
        optimizer.acquire_grad(index).unwrap();
        let grad = optimizer.state(index, "grad").unwrap();
        grad.write(&wave(COUNT, rank as f32)).unwrap();
        let cells = grad.cells::<f32>().unwrap();
        let ready = optimizer.grad_ready(index);
        let value = cells[1].get();
        assert!(value == wave(2, rank as f32)[1] || value == 0.0, "{value} {ready:?}");
        drop(cells);
    });
}

#[test]
fn norms_over_ranks_with_other_parameters() {
    let norms = on_ranks(Comm::threads(&options(), 2).unwrap(), |rank, comm| {
        let context = Context::builder().threads(1).open().unwrap();
        let recipe = Recipe::new(&context, "fp32").unwrap();
        let clip = OptimizerOptions { max_grad_norm: 1.0, ..Default::default() };
        let mut optimizer = Optimizer::new(&recipe, &clip).unwrap();
        let group = optimizer.add_group(&GroupOptions::default()).unwrap();
        let weight = Tensor::zeros(&context, DType::Fp32, &[2]).unwrap();
        let index = optimizer.add_param(group, &Param::new("w", &weight)).unwrap();
        optimizer.state(index, "grad").unwrap().write(&[3.0 + rank as f32, 0.0]).unwrap();
        optimizer.set_norm_comm(Some(comm)).unwrap();
        optimizer.step(None).unwrap();
        optimizer.stats().unwrap().grad_norm
    });
    assert_eq!(norms, [5.0, 5.0]);
}

#[test]
fn layers_scale_alike_on_ranks() {
    let scalings = on_ranks(Comm::threads(&options(), 2).unwrap(), |rank, comm| {
        let context = Context::builder().threads(1).open().unwrap();
        let recipe = Recipe::new(&context, "fp8_delayed").unwrap();
        let weight = recipe.weight(&[64, 32], Some(&wave(2048, 0.0))).unwrap();
        let mut linear = Linear::new(&recipe, &weight, None, &LinearOptions::default()).unwrap();
        let x: Vec<f32> = wave(512, 1.0).iter().map(|x| x * (rank + 1) as f32).collect();
        let x = Tensor::from_slice(&context, &x, &[16, 32]).unwrap();
        let y = Tensor::zeros(&context, DType::Fp32, &[16, 64]).unwrap();
        linear.forward(&x, &y).unwrap();
        end_step(&context, &mut [&mut linear], Some(&comm)).unwrap();
        linear.scaling().unwrap()
    });
    assert_eq!(scalings[0], scalings[1]);
}
