//! MUNGE: by its programs, processes of a site's hosts prove to each other as which user they run.

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sheen_keys::Witness;
use sheen_wire::auth::User;

use crate::accounts::account_of;

/// Environment variable with the socket of munged, if it is another than MUNGE's default.
const SOCKET: &str = "SHEEN_MUNGE_SOCKET";
/// Time after which a program is ended. MUNGE's programs take a few milliseconds, but try again for
/// 10 s if munged does not answer.
const TIME_MAX: Duration = Duration::from_millis(1500);
/// Pause between two looks at a program.
const LOOK: Duration = Duration::from_millis(1);
/// From this exit status on, `unmunge` says that the credential is not valid (EMUNGE_BAD_CRED).
const BAD_CREDENTIAL: i32 = 8;

/// The MUNGE daemon of this host.
#[derive(Debug)]
pub struct Munge {
    /// The programs. They are searched once: later the directories may be on a mount that waits for
    /// this.
    munge: PathBuf,
    unmunge: PathBuf,
}

impl Munge {
    /// Finds the programs.
    pub fn new() -> Munge {
        Munge { munge: program("munge"), unmunge: program("unmunge") }
    }
}

/// Returns the path of a program.
fn program(name: &str) -> PathBuf {
    let dirs = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&dirs).map(|dir| dir.join(name)).find(|path| path.is_absolute() && path.is_file());
    found.unwrap_or_else(|| name.into())
}

/// Runs a program of MUNGE with this input. Returns its output.
///
/// # Errors
/// `InvalidData`: the credential in the input is not valid.
fn run(mut command: Command, input: &str) -> io::Result<String> {
    if let Some(socket) = env::var_os(SOCKET).filter(|socket| !socket.is_empty()) {
        command.arg("--socket").arg(socket);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/");
    let name = command.get_program().display().to_string();
    let mut child = command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => io::Error::other(format!("there is no program {name} on this host")),
        _ => io::Error::new(e.kind(), format!("{name}: {e}")),
    })?;
    // Credentials and outputs are much smaller than the buffer of a pipe. Writing fails if the
    // program ended before; its exit status says why.
    child.stdin.take().and_then(|mut stdin| stdin.write_all(input.as_bytes()).ok());
    let since = Instant::now();
    while child.try_wait()?.is_none() {
        if since.elapsed() > TIME_MAX {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "munged does not answer"));
        }
        thread::sleep(LOOK);
    }
    let ended = child.wait_with_output()?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let is_bad = ended.status.code().is_some_and(|code| code >= BAD_CREDENTIAL);
    let kind = if is_bad { io::ErrorKind::InvalidData } else { io::ErrorKind::Other };
    let reason = String::from_utf8_lossy(&ended.stderr);
    Err(io::Error::new(kind, reason.lines().next().unwrap_or("MUNGE refused it").to_owned()))
}

impl Witness for Munge {
    fn attest(&self, text: &str) -> io::Result<String> {
        let mut command = Command::new(&self.munge);
        command.args(["--string", text]);
        Ok(run(command, "")?.trim_end().to_owned())
    }

    fn check(&self, credential: &str, text: &str) -> io::Result<u32> {
        let mut command = Command::new(&self.unmunge);
        command.args(["--numeric", "--keys", "UID"]);
        of_text(&run(command, credential)?, text)
    }

    fn user(&self, uid: u32) -> io::Result<Option<User>> {
        account_of(uid)
    }
}

/// Returns the user in the output of `unmunge`: the line with the user, an empty one, and the text.
fn of_text(output: &str, text: &str) -> io::Result<u32> {
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let (lines, said) = output.split_once("\n\n").ok_or_else(|| invalid("unmunge has unexpected output"))?;
    if said != text {
        return Err(invalid("the credential is for another connection"));
    }
    let uid = lines.strip_prefix("UID:").and_then(|uid| uid.trim().parse().ok());
    uid.ok_or_else(|| invalid("unmunge names no user"))
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
