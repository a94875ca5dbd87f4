//! What a delegated function answers when the object behind one of its handles is gone.
//!
//! Sockets and HTTP bodies do not survive a pause. Their handles do, as numbers in guest memory, and
//! the next use must be an error that the guest can handle rather than a trap.

use anyhow::{Result, bail};
use wit_parser::{Function, Handle, Resolve, Type, TypeDefKind};

use crate::names;

/// What to do about a handle whose object is gone.
pub enum Gone {
    /// Return this Rust expression.
    Answer(String),
    /// The interface has no way to say it.
    Trap,
}

/// By error type, the error of an object that is gone.
const ERRORS: &[(&str, &str)] = &[
    ("wasi:sockets/network.error-code", "sockets::network::ErrorCode::ConnectionAborted"),
    ("wasi:http/types.error-code", "http::types::ErrorCode::ConnectionTerminated"),
    ("wasi:http/types.header-error", "http::types::HeaderError::Immutable"),
];

/// The answer of a function, from its result type.
pub fn answer(resolve: &Resolve, key: &str, function: &Function) -> Result<Gone> {
    match &function.result {
        Some(ty) => for_type(resolve, key, ty),
        None => Ok(Gone::Trap),
    }
}

fn for_type(resolve: &Resolve, key: &str, ty: &Type) -> Result<Gone> {
    let id = match ty {
        Type::Bool => return Ok(Gone::Answer("false".to_owned())),
        Type::Id(id) => names::definition(resolve, *id),
        _ => return Ok(Gone::Trap),
    };
    let answer = match &resolve.types[id].kind {
        TypeDefKind::Result(result) => match result.err {
            None => "Err(())".to_owned(),
            Some(Type::Id(error)) => {
                let name = names::full_type(resolve, error)?;
                match ERRORS.iter().find(|(wit, _)| *wit == name) {
                    Some((_, error)) => format!("Err({error})"),
                    None => bail!("{key}: no answer is defined for {name}"),
                }
            }
            Some(_) => bail!("{key}: no answer is defined for a primitive error"),
        },
        // a future that will never come true has failed
        TypeDefKind::Option(Type::Id(inner)) => match &resolve.types[names::definition(resolve, *inner)].kind
        {
            TypeDefKind::Result(result) => match &result.ok {
                Some(ok) => match for_type(resolve, key, ok)? {
                    Gone::Answer(ok) => format!("Some(Ok({ok}))"),
                    Gone::Trap => "None".to_owned(),
                },
                None => "None".to_owned(),
            },
            _ => "None".to_owned(),
        },
        TypeDefKind::Option(_) => "None".to_owned(),
        TypeDefKind::List(_) => "Vec::new()".to_owned(),
        // whoever waits for what is gone must wake up and find out
        TypeDefKind::Handle(Handle::Own(resource))
            if names::full_type(resolve, *resource)? == "wasi:io/poll.pollable" =>
        {
            "host.ready_pollable()?".to_owned()
        }
        _ => return Ok(Gone::Trap),
    };
    Ok(Gone::Answer(answer))
}
