//! Events as lines of text: as `tracing_subscriber` writes them. Lines of the access log are written here instead, to
//! the same bytes: there is one for each request, and the general way costs as much as a small answer.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The target of the lines of the access log.
const ACCESS: &str = "strata::access";

/// See the module. With colours, all lines are written in the general way.
#[derive(Default)]
pub(super) struct LogLines {
    general: Format<Full>,
}

impl<S, N> FormatEvent<S, N> for LogLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = Time::of(now.as_secs(), now.subsec_micros());
        let is_access = metadata.target() == ACCESS && *metadata.level() == Level::INFO;
        let (true, false, Some(time)) = (is_access, writer.has_ansi_escapes(), time) else {
            return self.general.format_event(context, writer, event);
        };
        writer.write_str(time.text())?;
        writer.write_str("  INFO ")?;
        let mut is_in_span = false;
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            is_in_span = true;
            writer.write_str(span.metadata().name())?;
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>().filter(|fields| !fields.is_empty()) {
                writer.write_char('{')?;
                writer.write_str(&fields.fields)?;
                writer.write_char('}')?;
            }
            writer.write_char(':')?;
        }
        writer.write_str(if is_in_span { " strata::access: " } else { "strata::access: " })?;
        let mut fields = Fields { writer, is_first: true, result: Ok(()) };
        event.record(&mut fields);
        fields.result?;
        fields.writer.write_char('\n')
    }
}

/// Writes the fields of an event: `name=value`, and the message as it is.
struct Fields<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl Fields<'_> {
    fn field(&mut self, field: &Field, value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        if self.result.is_err() {
            return;
        }
        let is_first = std::mem::take(&mut self.is_first);
        self.result = (|| {
            if !is_first {
                self.writer.write_char(' ')?;
            }
            if field.name() != "message" {
                self.writer.write_str(field.name())?;
                self.writer.write_char('=')?;
            }
            value(&mut self.writer)
        })();
    }
}

impl Visit for Fields<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        // The digits from the last one on; there are 20 at most.
        let (mut digits, mut first, mut left) = ([b'0'; 20], 20, value);
        while left > 0 || first == 20 {
            first -= 1;
            digits[first] = b'0' + (left % 10) as u8;
            left /= 10;
        }
        self.field(field, |writer| writer.write_str(str::from_utf8(&digits[first..]).unwrap_or_default()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.field(field, |writer| writer.write_str(if value { "true" } else { "false" }));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\');
        match is_plain && field.name() != "message" {
            true => self.field(field, |writer| {
                writer.write_char('"')?;
                writer.write_str(value)?;
                writer.write_char('"')
            }),
            false => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.field(field, |writer| write!(writer, "{value:?}"));
    }
}

/// A moment in UTC, as `2026-11-23T17:05:59.000123Z`.
struct Time([u8; 27]);

impl Time {
    /// Of so many seconds and microseconds since 1970; `None` after the year 9999.
    fn of(seconds: u64, micros: u32) -> Option<Time> {
        const DAY: u64 = 86_400;
        /// Days before 1970-01-01 since 0000-03-01, from which years end with February.
        const BEFORE: u64 = 719_468;
        const CYCLE_DAYS: u64 = 146_097;
        let days = (seconds / DAY).checked_add(BEFORE)?;
        let (cycle, day) = (days / CYCLE_DAYS, days % CYCLE_DAYS);
        let year_of_cycle = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = 400 * cycle + year_of_cycle + u64::from(month <= 2);
        if year > 9_999 {
            return None;
        }
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let time = seconds % DAY;
        let parts = [
            (0, 4, year),
            (5, 2, month),
            (8, 2, day),
            (11, 2, time / 3_600),
            (14, 2, time / 60 % 60),
            (17, 2, time % 60),
            (20, 6, u64::from(micros)),
        ];
        for (at, length, mut number) in parts {
            for digit in text[at..at + length].iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        Some(Time(text))
    }

    fn text(&self) -> &str {
        str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use chrono::{DateTime, SecondsFormat};
    use proptest::prelude::*;
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Written {
        type Writer = Written;

        fn make_writer(&self) -> Written {
            self.clone()
        }
    }

    impl Written {
        /// The lines without their times.
        fn lines(&self) -> Vec<String> {
            let text = String::from_utf8(self.0.lock().expect("not poisoned").clone()).expect("text");
            let line = |line: &str| {
                let (time, rest) = line.split_once(' ').expect("a time");
                assert_eq!(time.len(), 27, "{line}");
                rest.to_owned()
            };
            text.lines().map(line).collect()
        }
    }

    fn log(path: &str, status: Option<u16>, bytes: u64) {
        let event = || {
            let client: Option<std::net::IpAddr> = status.map(|_| [192, 0, 2, 1].into());
            tracing::info!(
                target: "strata::access",
                method = %"GET",
                path,
                status,
                bytes,
                whole = bytes > 0,
                duration_us = bytes / 3,
                client = client.map(tracing::field::display),
                "request"
            );
            tracing::warn!(target: "strata::slow", path, "slow request");
        };
        event();
        tracing::info_span!("request", id = "00ab").in_scope(event);
        let outer = tracing::info_span!("outer");
        outer.in_scope(|| tracing::info_span!("inner", number = 7, text = path).in_scope(event));
    }

    proptest! {
        #[test]
        fn lines_are_as_they_are_in_general(
            path in prop_oneof!["/[ -~]{0,20}", any::<String>()],
            status in prop::option::of(any::<u16>()),
            bytes in prop_oneof![0..20_u64, any::<u64>()],
        ) {
            let (ours, general) = (Written::default(), Written::default());
            let builder = || tracing_subscriber::fmt().with_ansi(false);
            let subscriber = builder().event_format(LogLines::default()).with_writer(ours.clone()).finish();
            tracing::subscriber::with_default(subscriber, || log(&path, status, bytes));
            let subscriber = builder().with_writer(general.clone()).finish();
            tracing::subscriber::with_default(subscriber, || log(&path, status, bytes));
            prop_assert_eq!(ours.lines(), general.lines());
        }

        #[test]
        fn times_are_those_of_the_calendar(seconds in 0..253_402_300_800_u64, micros in 0..1_000_000_u32) {
            let expected = DateTime::from_timestamp(seconds as i64, micros * 1_000).expect("a time");
            let time = Time::of(seconds, micros).expect("a time");
            prop_assert_eq!(time.text(), expected.to_rfc3339_opts(SecondsFormat::Micros, true));
        }
    }

    #[test]
    fn times_without_four_digits_of_a_year_are_left_to_others() {
        assert!(Time::of(253_402_300_799, 999_999).is_some_and(|time| time.text() == "9999-12-31T23:59:59.999999Z"));
        assert!(Time::of(253_402_300_800, 0).is_none());
        assert!(Time::of(u64::MAX, 0).is_none());
    }
}
