use super::bindings::wasi::cli;
use super::{Exit, W};
use crate::wasi::delegate_generated::Kind;
use crate::wasi::object::Object;
use crate::wasi::state::GuestState;

impl cli::environment::Host for GuestState {
    fn get_environment(&mut self) -> W<Vec<(String, String)>> {
        self.touched.environment = true;
        Ok(self.env.to_vec())
    }

    fn get_arguments(&mut self) -> W<Vec<String>> {
        self.touched.environment = true;
        Ok(self.args.to_vec())
    }

    fn initial_cwd(&mut self) -> W<Option<String>> {
        self.touched.environment = true;
        Ok(None)
    }
}

impl cli::exit::Host for GuestState {
    fn exit(&mut self, status: Result<(), ()>) -> W<()> {
        Err(Exit(u8::from(status.is_err())).into())
    }

    fn exit_with_code(&mut self, status: u8) -> W<()> {
        Err(Exit(status).into())
    }
}

impl cli::stdin::Host for GuestState {
    fn get_stdin(&mut self) -> W<u32> {
        Ok(self.table.push(Object::Stdin)?)
    }
}

impl cli::stdout::Host for GuestState {
    fn get_stdout(&mut self) -> W<u32> {
        Ok(self.table.push(Object::Stdout)?)
    }
}

impl cli::stderr::Host for GuestState {
    fn get_stderr(&mut self) -> W<u32> {
        Ok(self.table.push(Object::Stderr)?)
    }
}

impl GuestState {
    fn drop_terminal(&mut self, handle: u32, kind: Kind) -> W<()> {
        self.table.take_as(handle, kind)?;
        Ok(())
    }

    fn terminal(&mut self, there: bool, object: Object) -> W<Option<u32>> {
        self.touched.environment = true;
        Ok(if there { Some(self.table.push(object)?) } else { None })
    }
}

impl cli::terminal_input::Host for GuestState {
    fn drop_terminal_input(&mut self, handle: u32) -> W<()> {
        self.drop_terminal(handle, Kind::TerminalInput)
    }
}

impl cli::terminal_output::Host for GuestState {
    fn drop_terminal_output(&mut self, handle: u32) -> W<()> {
        self.drop_terminal(handle, Kind::TerminalOutput)
    }
}

impl cli::terminal_stdin::Host for GuestState {
    fn get_terminal_stdin(&mut self) -> W<Option<u32>> {
        self.terminal(self.stdio.stdin_terminal, Object::TerminalInput)
    }
}

impl cli::terminal_stdout::Host for GuestState {
    fn get_terminal_stdout(&mut self) -> W<Option<u32>> {
        self.terminal(self.stdio.stdout_terminal, Object::TerminalOutput)
    }
}

impl cli::terminal_stderr::Host for GuestState {
    fn get_terminal_stderr(&mut self) -> W<Option<u32>> {
        self.terminal(self.stdio.stderr_terminal, Object::TerminalOutput)
    }
}
