//! The environment of a command of `lctl`.

use std::io::Write;

use sheen_control::{Reply, Request};

use super::processes::Processes;

/// The environment of a command. Tests inject their own, so that they need no process.
pub struct Tool<'a> {
    /// The processes of this machine.
    pub processes: &'a dyn Processes,
    /// The file system that `--fsname` selects.
    pub fsname: Option<String>,
    /// The device that the command `device` selected, in interactive mode.
    pub device: Option<String>,
    /// Whether colours are shown, unless an option says otherwise.
    pub colors: bool,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

impl Tool<'_> {
    /// Sends a request to all processes that the user controls. With `--fsname`, the request covers
    /// only that file system.
    pub fn ask(&self, request: Request) -> Vec<Reply> {
        self.processes.ask(&self.of_fsname(request))
    }

    /// As [`Tool::ask`], and sends the request also to processes of which the user may only read
    /// public parameters.
    pub fn ask_readable(&self, request: Request) -> Vec<Reply> {
        let mut replies = self.ask(request.clone());
        replies.extend(self.ask_public(request));
        replies
    }

    /// Sends a request to the processes of which the user may only read public parameters. With
    /// `--fsname`, the request covers only that file system.
    pub fn ask_public(&self, request: Request) -> Vec<Reply> {
        self.processes.ask_public(&self.of_fsname(request))
    }

    fn of_fsname(&self, request: Request) -> Request {
        match &self.fsname {
            Some(fsname) => Request::Of { fsname: fsname.clone(), request: Box::new(request) },
            None => request,
        }
    }
}
