//! Keeps accounts for another component, as a resource type of its own.

mod bindings;

use std::cell::{Cell, RefCell};

use bindings::exports::test::ledger::accounts::{
    Account as Owned, AccountBorrow, Guest, GuestAccount, GuestPrinter, OutputStream,
};

thread_local! {
    static OPEN: Cell<u32> = const { Cell::new(0) };
    static CLOSED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// An account.
pub struct Account {
    owner: String,
    balance: Cell<u32>,
}

impl Drop for Account {
    fn drop(&mut self) {
        OPEN.set(OPEN.get() - 1);
        CLOSED.with_borrow_mut(|closed| closed.push(self.owner.clone()));
    }
}

impl GuestAccount for Account {
    fn new(owner: String, balance: u32) -> Self {
        OPEN.set(OPEN.get() + 1);
        Self { owner, balance: Cell::new(balance) }
    }

    fn balance(&self) -> u32 {
        self.balance.get()
    }

    fn deposit(&self, amount: u32) -> u32 {
        self.balance.set(self.balance.get() + amount);
        self.balance.get()
    }

    fn transfer(&self, to: AccountBorrow<'_>, amount: u32) -> Result<u32, String> {
        let left = self.balance.get().checked_sub(amount);
        let left = left.ok_or_else(|| format!("{} has only {}", self.owner, self.balance.get()))?;
        self.balance.set(left);
        to.get::<Self>().deposit(amount);
        Ok(left)
    }

    fn merge(first: Owned, second: Owned) -> Owned {
        let (one, two) = (first.get::<Self>(), second.get::<Self>());
        Owned::new(Self::new(format!("{}+{}", one.owner, two.owner), one.balance() + two.balance()))
    }
}

/// Wraps a stream of the host's.
pub struct Printer(OutputStream);

impl GuestPrinter for Printer {
    fn new(to: OutputStream) -> Self {
        Self(to)
    }

    fn print(&self, what: AccountBorrow<'_>) {
        print(what.get(), &self.0);
    }
}

fn print(account: &Account, to: &OutputStream) {
    let line = format!("{} has {}\n", account.owner, account.balance());
    let _ = to.blocking_write_and_flush(line.as_bytes()); // the caller sees it or does not
}

struct Ledger;

impl Guest for Ledger {
    type Account = Account;
    type Printer = Printer;

    fn total(all: Vec<AccountBorrow<'_>>) -> u32 {
        all.iter().map(|account| account.get::<Account>().balance()).sum()
    }

    fn print(what: Option<AccountBorrow<'_>>, to: &OutputStream) {
        if let Some(account) = what {
            print(account.get(), to);
        }
    }

    fn state() -> (u32, Vec<String>) {
        (OPEN.get(), CLOSED.with_borrow(Clone::clone))
    }
}

bindings::export!(Ledger with_types_in bindings);
