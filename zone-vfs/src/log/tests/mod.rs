//! Tests of the log over every device, and under crashes of the simulated one.

mod crash;
mod damage;
mod failures;
mod functions;

use super::*;
use crate::device::simulated::Simulated;
use uuid::Uuid;

fn agent(number: u128) -> AgentId {
    AgentId(Uuid::from_u128(number))
}

fn record(of: u128, sequence: u64, body: &[u8]) -> Record {
    Record {
        agent: agent(of),
        epoch: Epoch(1),
        sequence: Sequence(sequence),
        needs: Vec::new(),
        body: body.to_vec(),
    }
}

fn small() -> LogOptions {
    LogOptions { file_len: 32 << 10, group_target: 8 << 10, share: 1 << 10, ..LogOptions::default() }
}

fn open(
    device: Arc<dyn Device>,
    options: LogOptions,
    from: LogPosition,
) -> Result<(Log, Vec<Record>), LogError> {
    let mut records = Vec::new();
    let log = Log::open(device, options, from, &mut |record| {
        records.push(record);
        Ok(())
    })?;
    Ok((log, records))
}

fn start(device: &Simulated, options: LogOptions) -> (Log, Vec<Record>) {
    open(Arc::new(device.clone()), options, LogPosition::START).unwrap()
}

fn error_of(device: &Simulated, from: LogPosition) -> LogError {
    match open(Arc::new(device.clone()), small(), from) {
        Err(error) => error,
        Ok((_, records)) => panic!("opened, with {} records", records.len()),
    }
}

fn sequences(records: &[Record]) -> Vec<u64> {
    records.iter().map(|it| it.sequence.0).collect()
}
