//! Resources that guests define themselves, and handles that are lent to functions of a component.
//!
//! A rewritten component that has either imports `dormouse:rewrite/resources` for it. What a guest defines is a number
//! of its own behind a handle, in the table that all its handles are in. A function that a handle is lent to gets the
//! same number as its lender has; so what it drops is looked up here first, and is given back where it was lent.

use std::collections::HashMap;

use wasmtime::StoreContextMut;
use wasmtime::component::Linker;

use super::object::Object;
use super::state::GuestState;
use super::table::MAX_HANDLES;

/// Handles that are lent at once, each as often as it is lent.
pub const MAX_LOANS: usize = MAX_HANDLES;

/// Why a loan ends the guest's call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoanError {
    /// What is lent for a call is given back before it returns.
    #[error("a function returned without dropping {0} of the handles that it was lent")]
    Kept(u32),
    /// More are lent than may be.
    #[error("at most {MAX_LOANS} handles are lent at once")]
    TooMany,
    /// The rewriter lends to calls alone.
    #[error("a handle was lent to no call")]
    NoCall,
}

/// The handles that are lent to the calls which are under way. There are none between turns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loans {
    /// How many each call has that handles are lent to, the outermost first.
    calls: Vec<u32>,
    /// The calls that each handle is lent to, the outermost first.
    lent: HashMap<u32, Vec<usize>>,
    count: usize,
}

impl Loans {
    fn begin(&mut self) {
        self.calls.push(0);
    }

    /// Lends a handle to the innermost call.
    fn lend(&mut self, handle: u32) -> Result<(), LoanError> {
        let call = self.calls.len().checked_sub(1).ok_or(LoanError::NoCall)?;
        if self.count >= MAX_LOANS {
            return Err(LoanError::TooMany);
        }
        self.count += 1;
        self.calls[call] += 1;
        self.lent.entry(handle).or_default().push(call);
        Ok(())
    }

    /// Gives a handle back that the innermost call was lent which has it; says whether there is one.
    fn give_back(&mut self, handle: u32) -> bool {
        let Some(calls) = self.lent.get_mut(&handle) else { return false };
        if let Some(call) = calls.pop() {
            self.calls[call] -= 1;
            self.count -= 1;
        }
        if calls.is_empty() {
            self.lent.remove(&handle);
        }
        true
    }

    /// The innermost call returns.
    fn end(&mut self) -> Result<(), LoanError> {
        match self.calls.pop() {
            Some(0) => Ok(()),
            Some(kept) => Err(LoanError::Kept(kept)),
            None => Err(LoanError::NoCall),
        }
    }
}

type Guest<'a> = StoreContextMut<'a, GuestState>;

/// Adds `dormouse:rewrite/resources` to a linker.
pub(crate) fn link(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    let mut interface = linker.instance("dormouse:rewrite/resources")?;
    interface.func_wrap("new", |mut guest: Guest<'_>, (ty, rep): (u32, u32)| {
        Ok((guest.data_mut().table.push(Object::Guest { ty, rep })?,))
    })?;
    interface.func_wrap("rep", |guest: Guest<'_>, (ty, handle): (u32, u32)| {
        Ok((guest.data().table.guest(ty, handle)?,))
    })?;
    interface.func_wrap("take", |mut guest: Guest<'_>, (ty, handle): (u32, u32)| {
        let table = &mut guest.data_mut().table;
        let rep = table.guest(ty, handle)?;
        table.take(handle)?;
        Ok((rep,))
    })?;
    interface.func_wrap("begin", |mut guest: Guest<'_>, (): ()| {
        guest.data_mut().loans.begin();
        Ok(())
    })?;
    interface.func_wrap("lend", |mut guest: Guest<'_>, (handle,): (u32,)| {
        let guest = guest.data_mut();
        guest.table.get(handle)?;
        Ok(guest.loans.lend(handle)?)
    })?;
    interface.func_wrap("end", |mut guest: Guest<'_>, (): ()| Ok(guest.data_mut().loans.end()?))?;
    interface.func_wrap("give-back", |mut guest: Guest<'_>, (handle,): (u32,)| {
        Ok((guest.data_mut().loans.give_back(handle),))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_given_back_once_by_the_innermost_call_that_has_it() {
        let mut loans = Loans::default();
        assert!(!loans.give_back(7));
        loans.begin();
        loans.lend(7).unwrap();
        loans.begin();
        loans.lend(7).unwrap();
        assert!(loans.give_back(7));
        loans.end().unwrap();
        assert!(loans.give_back(7));
        assert!(!loans.give_back(7), "it was lent twice");
        loans.end().unwrap();
        assert_eq!(loans.end(), Err(LoanError::NoCall));
        assert_eq!(loans.lend(7), Err(LoanError::NoCall));
    }

    #[test]
    fn a_call_that_keeps_what_it_was_lent_is_told() {
        let mut loans = Loans::default();
        loans.begin();
        loans.lend(7).unwrap();
        loans.lend(7).unwrap();
        assert!(loans.give_back(7));
        assert_eq!(loans.end(), Err(LoanError::Kept(1)));
    }

    #[test]
    fn loans_are_limited() {
        let mut loans = Loans::default();
        loans.begin();
        for _ in 0..MAX_LOANS {
            loans.lend(7).unwrap();
        }
        assert_eq!(loans.lend(8), Err(LoanError::TooMany));
        assert!(loans.give_back(7));
        loans.lend(8).unwrap();
    }
}
