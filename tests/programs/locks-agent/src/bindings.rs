//! The bindings that `wit-bindgen` derives from `wit`.
#![allow(clippy::pedantic, missing_docs, reason = "generated code")]

wit_bindgen::generate!({
    path: "../../../wit",
    inline: "
        package test:locks;
        world locks-agent {
            include dormouse:agent/agent@0.1.0;
            import dormouse:zones/locks@0.1.0;
        }
    ",
    world: "test:locks/locks-agent",
    generate_all,
    pub_export_macro: true,
});
