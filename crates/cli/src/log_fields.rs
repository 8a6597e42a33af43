//! The fields of a log line: those of the event, and the operation that the code works for.

use std::fmt;

use sheen_rt::operation;
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FormatFields,
        format::{DefaultFields, Writer},
    },
};

/// Writes the fields of an event, then `op=` with the operation's id, if there is one. So every
/// line of a client and of the servers that one operation caused has the same `op`.
#[derive(Default)]
pub struct LogFields(DefaultFields);

impl<'writer> FormatFields<'writer> for LogFields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        self.0.format_fields(writer.by_ref(), fields)?;
        let op = operation::current();
        if op.is_none() { Ok(()) } else { write!(writer, " op={op}") }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        pin::pin,
        sync::Arc,
        task::{Context, Waker},
    };

    use parking_lot::Mutex;
    use sheen_rt::operation::Operation;
    use sheen_wire::OpId;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_line_of_an_operation_ends_with_its_id() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(LogFields::default())
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let operation = Operation::without_job(OpId::new(0xab, 14));
            let work = operation::within(operation, async { tracing::warn!(seconds = 12, "slow request") });
            assert!(pin!(work).poll(&mut Context::from_waker(Waker::noop())).is_ready());
            tracing::warn!(seconds = 13, "without an operation");
        });
        let text = String::from_utf8(lines.0.lock().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("slow request seconds=12 op=000000ab:14"), "{text}");
        assert!(lines[1].ends_with("without an operation seconds=13"), "{text}");
    }
}
