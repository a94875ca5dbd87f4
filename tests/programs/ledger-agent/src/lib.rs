//! An agent over accounts that another component keeps: `open NAME AMOUNT`, `many COUNT`, `deposit NAME AMOUNT`,
//! `balance NAME`, `transfer FROM TO AMOUNT`, `merge ONE TWO`, `close NAME`, `total`, `print [NAME]`, `state`. `printer`
//! hands it standard output to wrap, `through NAME` prints with that, and `no-printer` drops it.

mod bindings;

use std::cell::RefCell;
use std::collections::BTreeMap;

use bindings::test::ledger::accounts::{self, Account, Printer};
use bindings::wasi::cli::stdout::get_stdout;
use bindings::{Event, Guest, Reply};

thread_local! {
    static HELD: RefCell<BTreeMap<String, Account>> = const { RefCell::new(BTreeMap::new()) };
    static PRINTER: RefCell<Option<Printer>> = const { RefCell::new(None) };
}

struct Agent;

impl Guest for Agent {
    fn handle(event: Event) -> Result<Reply, String> {
        let text = String::from_utf8(event.payload).map_err(|e| e.to_string())?;
        let words: Vec<&str> = text.split(' ').collect();
        let answer = HELD.with_borrow_mut(|held| run(held, &words))?;
        Ok(Reply { payload: answer.into_bytes() })
    }
}

fn number(word: &str) -> Result<u32, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn run(held: &mut BTreeMap<String, Account>, words: &[&str]) -> Result<String, String> {
    let unknown = |name: &str| format!("there is no account {name:?}");
    let find = |name: &str| held.get(name).ok_or_else(|| unknown(name));
    Ok(match words {
        ["open", name, amount] => {
            let account = Account::new(name, number(amount)?);
            held.insert((*name).to_owned(), account);
            format!("{} held", held.len())
        }
        ["many", count] => {
            for _ in 0..number(count)? {
                let name = held.len().to_string();
                held.insert(name.clone(), Account::new(&name, 1));
            }
            format!("{} held", held.len())
        }
        ["deposit", name, amount] => find(name)?.deposit(number(amount)?).to_string(),
        ["balance", name] => find(name)?.balance().to_string(),
        ["transfer", from, to, amount] => find(from)?.transfer(find(to)?, number(amount)?)?.to_string(),
        ["merge", one, two] => {
            let first = held.remove(*one).ok_or_else(|| unknown(one))?;
            let second = held.remove(*two).ok_or_else(|| unknown(two))?;
            held.insert((*one).to_owned(), Account::merge(first, second));
            format!("{} held", held.len())
        }
        ["close", name] => {
            drop(held.remove(*name).ok_or_else(|| unknown(name))?);
            format!("{} held", held.len())
        }
        ["total"] => accounts::total(&held.values().collect::<Vec<_>>()).to_string(),
        ["print", name @ ..] => {
            let account = name.first().map(|name| find(name)).transpose()?;
            accounts::print(account, &get_stdout());
            String::new()
        }
        ["printer"] => {
            PRINTER.set(Some(Printer::new(get_stdout())));
            String::new()
        }
        ["through", name] => PRINTER.with_borrow(|printer| {
            printer.as_ref().ok_or("there is no printer")?.print(find(name)?);
            Ok::<_, String>(String::new())
        })?,
        ["no-printer"] => {
            PRINTER.set(None);
            String::new()
        }
        ["state"] => {
            let (open, closed) = accounts::state();
            format!("{open} open, closed: {}", closed.join(" "))
        }
        _ => return Err("there is no such command".to_owned()),
    })
}

bindings::export!(Agent with_types_in bindings);
