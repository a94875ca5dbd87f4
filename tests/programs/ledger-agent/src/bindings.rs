//! The bindings of the world `test:ledger/agent`.

#![allow(missing_docs, clippy::pedantic, unused_qualifications, reason = "generated code")]

wit_bindgen::generate!({
    path: ["../../../wit", "../wit-ledger"],
    world: "test:ledger/agent",
    pub_export_macro: true,
    generate_all,
});
