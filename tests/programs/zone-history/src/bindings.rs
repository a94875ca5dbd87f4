//! The bindings of the `agent` world with `dormouse:zones` beside it.

#![allow(missing_docs, clippy::pedantic, unused_qualifications, reason = "generated code")]

wit_bindgen::generate!({
    inline: "
        package test:zone-history;
        world guest {
            include dormouse:agent/agent@0.1.0;
            include dormouse:zones/imports@0.1.0;
        }
    ",
    path: "../../../wit",
    world: "test:zone-history/guest",
    pub_export_macro: true,
    generate_all,
});
