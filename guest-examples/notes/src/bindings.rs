//! The bindings that `wit-bindgen` derives from `wit/`: those of an agent, and of what it can learn of its past.
#![allow(clippy::pedantic, missing_docs, reason = "generated code")]

wit_bindgen::generate!({
    path: "../../wit",
    inline: "
        package dormouse:notes;
        world notes {
            include dormouse:agent/upgradable-agent@0.1.0;
            import dormouse:session/events@0.1.0;
        }
    ",
    world: "dormouse:notes/notes",
    generate_all,
    pub_export_macro: true,
});
