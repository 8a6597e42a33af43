//! MUNGE: by its programs, processes of a site's hosts prove to each other as which user they run.

use std::{
    env,
    io::{self, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Command, Stdio},
};

use sheen_keys::Witness;
use sheen_wire::auth::User;

use crate::accounts::account_of;

/// Environment variable with the socket of munged, if it is another than MUNGE's default.
const SOCKET: &str = "SHEEN_MUNGE_SOCKET";

/// MUNGE's default.
const DEFAULT_SOCKET: &str = "/run/munge/munge.socket.2";

/// The MUNGE daemon of this host.
#[derive(Debug)]
pub struct Munge;

impl Munge {
    /// Runs a program of MUNGE with this input. Returns its output.
    fn run(mut command: Command, input: &str) -> io::Result<String> {
        let socket = env::var_os(SOCKET).filter(|socket| !socket.is_empty());
        if let Some(socket) = &socket {
            command.arg("--socket").arg(socket);
        }
        // The programs would try again for 10 s.
        let socket = PathBuf::from(socket.unwrap_or(DEFAULT_SOCKET.into()));
        if UnixStream::connect(&socket).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            return Err(io::Error::other(format!("nobody listens at {}", socket.display())));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = command.get_program().display().to_string();
        let mut child = command.spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => io::Error::other(format!("there is no program {name} on this host")),
            _ => io::Error::new(e.kind(), format!("{name}: {e}")),
        })?;
        // It fails if the program ended before; its exit status says why.
        child.stdin.take().and_then(|mut stdin| stdin.write_all(input.as_bytes()).ok());
        let ended = child.wait_with_output()?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        let reason = String::from_utf8_lossy(&ended.stderr);
        Err(io::Error::other(reason.lines().next().unwrap_or("MUNGE refused it").to_owned()))
    }
}

impl Witness for Munge {
    fn attest(&self, text: &str) -> io::Result<String> {
        let mut command = Command::new("munge");
        command.args(["--string", text]);
        Ok(Munge::run(command, "")?.trim_end().to_owned())
    }

    fn check(&self, credential: &str, text: &str) -> io::Result<u32> {
        let mut command = Command::new("unmunge");
        command.args(["--numeric", "--keys", "UID"]);
        of_text(&Munge::run(command, credential)?, text)
    }

    fn user(&self, uid: u32) -> Option<User> {
        account_of(uid)
    }
}

/// Returns the user in the output of `unmunge`: the line with the user, an empty one, and the text.
fn of_text(output: &str, text: &str) -> io::Result<u32> {
    let (lines, said) = output.split_once("\n\n").ok_or_else(|| io::Error::other("unmunge has unexpected output"))?;
    if said != text {
        return Err(io::Error::other("the credential is for another connection"));
    }
    let uid = lines.strip_prefix("UID:").and_then(|uid| uid.trim().parse().ok());
    uid.ok_or_else(|| io::Error::other("unmunge names no user"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_a_credential_is_accepted_for_its_text_only() {
        let user = |output: &str| of_text(output, "text").map_err(|e| e.to_string());
        assert_eq!(user("UID:             1000\n\ntext"), Ok(1000));
        for other in ["", "text", "UID: 1000\n\ntext\n", "UID: 1000\n\nother", "UID: \n\ntext", "GID: 1\n\ntext"] {
            assert!(user(other).is_err(), "{other:?}");
        }
    }
}
