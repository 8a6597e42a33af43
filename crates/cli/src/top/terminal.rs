//! The terminal: a screen that is redrawn, and the keys that the user presses.

use std::{
    io::{self, IsTerminal, Read, Write},
    os::fd::AsRawFd,
    thread,
};

use tokio::sync::mpsc;

/// Uses the second screen of the terminal, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Returns to the first screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves to the first line.
const HOME: &str = "\x1b[H";
/// Clears the remainder of a line, or of the screen.
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";
/// Size of a terminal that does not report one: columns and rows.
const SIZE_DEFAULT: (usize, usize) = (80, 24);
/// Keys that wait to be read.
const KEYS_MAX: usize = 8;

/// The screen, until it is dropped.
pub struct Screen {
    /// Settings of the terminal before; `None`: standard input is no terminal.
    before: Option<libc::termios>,
}

impl Screen {
    /// Clears the screen, and lets the terminal pass on each key at once. Ctrl-C sends SIGINT.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn enter() -> io::Result<Screen> {
        let screen = Screen { before: settings() };
        if let Some(mut raw) = screen.before {
            raw.c_lflag &= !(libc::ICANON | libc::ECHO);
            // Ctrl-Z and Ctrl-\ would stop or end the process and leave the terminal changed.
            raw.c_cc[libc::VSUSP] = libc::_POSIX_VDISABLE;
            raw.c_cc[libc::VQUIT] = libc::_POSIX_VDISABLE;
            apply(&raw);
        }
        write(ENTER)?;
        Ok(screen)
    }

    /// Draws these lines.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn draw(&self, lines: &[String]) -> io::Result<()> {
        write(&drawing(lines))
    }

    /// Returns the columns and rows of the terminal.
    pub fn size(&self) -> (usize, usize) {
        // SAFETY: the structure consists of integers, for which zeros are valid values.
        let mut size: libc::winsize = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is valid for the call, which writes a `winsize`.
        let result = unsafe { libc::ioctl(io::stdout().as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
        let (columns, rows) = (usize::from(size.ws_col), usize::from(size.ws_row));
        if result == 0 && columns > 0 && rows > 0 { (columns, rows) } else { SIZE_DEFAULT }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            apply(before);
        }
        // The terminal may have been closed.
        let _ = write(LEAVE);
    }
}

/// Returns the keys that the user presses. There are none if standard input is no terminal, or if
/// no thread can be started.
pub fn keys() -> mpsc::Receiver<u8> {
    let (sender, receiver) = mpsc::channel(KEYS_MAX);
    if io::stdin().is_terminal() {
        // The thread ends with the process: it may be waiting for a key.
        let _ = thread::Builder::new().spawn(move || {
            for key in io::stdin().lock().bytes() {
                if key.map_or(true, |key| sender.blocking_send(key).is_err()) {
                    return;
                }
            }
        });
    }
    receiver
}

/// Returns the output that replaces the screen by these lines. Each line is cleared before its
/// text: after a line of full width the cursor is on the last character, and would clear it.
fn drawing(lines: &[String]) -> String {
    let (last, others) = lines.split_last().map_or(("", lines), |(last, others)| (last.as_str(), others));
    let mut out = HOME.to_owned();
    for line in others {
        out.extend([CLEAR_LINE, line.as_str(), "\r\n"]);
    }
    out.extend([CLEAR_BELOW, last]);
    out
}

fn settings() -> Option<libc::termios> {
    // SAFETY: the structure consists of integers, for which zeros are valid values.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is valid for the call.
    let result = unsafe { libc::tcgetattr(io::stdin().as_raw_fd(), &mut settings) };
    (result == 0).then_some(settings)
}

fn apply(settings: &libc::termios) {
    // SAFETY: the pointer is valid for the call. If it fails, the terminal was closed.
    unsafe { libc::tcsetattr(io::stdin().as_raw_fd(), libc::TCSANOW, settings) };
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawing_clears_before_the_text_of_each_line() {
        let lines = ["a", "b"].map(str::to_owned);
        assert_eq!(drawing(&lines), "\x1b[H\x1b[Ka\r\n\x1b[Jb");
        assert_eq!(drawing(&[]), "\x1b[H\x1b[J");
    }
}
