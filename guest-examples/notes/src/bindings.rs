//! The bindings that `wit-bindgen` derives from `wit/agent.wit`.
#![allow(clippy::pedantic, missing_docs, reason = "generated code")]

wit_bindgen::generate!({
    path: "../../wit",
    world: "dormouse:agent/upgradable-agent",
    pub_export_macro: true,
});
