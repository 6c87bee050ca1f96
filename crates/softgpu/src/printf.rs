//! Device `printf`: C conversions over the argument buffer that the compiler lays out.

use crate::block::Env;
use crate::trap::Exec;
use crate::warp::Warp;
use crate::worker::Worker;

/// Width and precision beyond this are cut: a guest's number must not take the host's memory.
const MOST: usize = 4096;

/// Flags, width, precision and conversion of one `%…`.
#[derive(Debug, Default, PartialEq)]
struct Spec {
    minus: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: Option<usize>,
    width_argument: bool,
    precision: Option<usize>,
    precision_argument: bool,
    /// `l`, `ll`, `z`, `t`, `j` make an integer 8 bytes.
    long: bool,
    short: u32,
    conversion: u8,
}

impl Worker<'_> {
    /// The text of one call and the number of arguments used.
    pub(crate) fn format(
        &mut self,
        env: &Env,
        warp: &Warp,
        lane: usize,
        format: &[u8],
        arguments: u64,
    ) -> Exec<(Vec<u8>, u64)> {
        let mut text = Vec::new();
        let (mut next, mut count) = (arguments, 0u64);
        let mut take = |worker: &mut Self, bytes: u32| -> Exec<u64> {
            next = next.wrapping_add(u64::from(bytes) - 1) & !(u64::from(bytes) - 1);
            let value = worker.value(env, warp, lane, next, bytes)?;
            next = next.wrapping_add(u64::from(bytes));
            count += 1;
            Ok(value)
        };
        let mut i = 0;
        while i < format.len() {
            if format[i] != b'%' {
                text.push(format[i]);
                i += 1;
                continue;
            }
            let Some((mut spec, used)) = parse(&format[i..]) else {
                text.push(b'%');
                i += 1;
                continue;
            };
            let raw = &format[i..i + used];
            i += used;
            if spec.conversion == b'%' {
                text.push(b'%');
                continue;
            }
            if spec.width_argument {
                let width = take(self, 4)? as i32;
                spec.minus |= width < 0;
                spec.width = Some((width.unsigned_abs() as usize).min(MOST));
            }
            if spec.precision_argument {
                spec.precision = usize::try_from(take(self, 4)? as i32)
                    .ok()
                    .map(|n| n.min(MOST));
            }
            match spec.conversion {
                b'd' | b'i' => {
                    let value = if spec.long {
                        take(self, 8)? as i64
                    } else {
                        i64::from(take(self, 4)? as i32)
                    };
                    let value = match spec.short {
                        1 => i64::from(value as i16),
                        2 => i64::from(value as i8),
                        _ => value,
                    };
                    integer(
                        &spec,
                        value < 0,
                        &value.unsigned_abs().to_string(),
                        &mut text,
                    );
                }
                b'u' | b'x' | b'X' | b'o' => {
                    let value = if spec.long {
                        take(self, 8)?
                    } else {
                        take(self, 4)?
                    };
                    let value = match spec.short {
                        1 => value & 0xffff,
                        2 => value & 0xff,
                        _ => value,
                    };
                    let digits = match spec.conversion {
                        b'x' => format!("{value:x}"),
                        b'X' => format!("{value:X}"),
                        b'o' => format!("{value:o}"),
                        _ => value.to_string(),
                    };
                    integer(&spec, false, &digits, &mut text);
                }
                b'c' => {
                    let byte = take(self, 4)? as u8;
                    pad(&spec, &[], &[byte], false, &mut text);
                }
                b'p' => {
                    let value = take(self, 8)?;
                    pad(
                        &spec,
                        &[],
                        format!("{value:#x}").as_bytes(),
                        false,
                        &mut text,
                    );
                }
                b's' => {
                    let address = take(self, 8)?;
                    let mut bytes = if address == 0 {
                        b"(null)".to_vec()
                    } else {
                        self.text(env, warp, lane, address)?
                    };
                    bytes.truncate(spec.precision.unwrap_or(usize::MAX));
                    pad(&spec, &[], &bytes, false, &mut text);
                }
                b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => {
                    let value = f64::from_bits(take(self, 8)?);
                    float(&spec, value, &mut text);
                }
                _ => text.extend_from_slice(raw),
            }
        }
        Ok((text, count))
    }
}

/// Parses a conversion that starts with `%`; its length in bytes comes with it.
fn parse(text: &[u8]) -> Option<(Spec, usize)> {
    let mut spec = Spec::default();
    let mut i = 1;
    loop {
        match *text.get(i)? {
            b'-' => spec.minus = true,
            b'+' => spec.plus = true,
            b' ' => spec.space = true,
            b'#' => spec.alternate = true,
            b'0' => spec.zero = true,
            _ => break,
        }
        i += 1;
    }
    let number = |i: &mut usize| {
        let mut value = 0usize;
        while let Some(digit) = text.get(*i).filter(|b| b.is_ascii_digit()) {
            value = (value * 10 + usize::from(digit - b'0')).min(MOST);
            *i += 1;
        }
        value
    };
    if text.get(i) == Some(&b'*') {
        spec.width_argument = true;
        i += 1;
    } else if text.get(i)?.is_ascii_digit() {
        spec.width = Some(number(&mut i));
    }
    if text.get(i) == Some(&b'.') {
        i += 1;
        if text.get(i) == Some(&b'*') {
            spec.precision_argument = true;
            i += 1;
        } else {
            spec.precision = Some(number(&mut i));
        }
    }
    loop {
        match *text.get(i)? {
            b'l' | b'z' | b't' | b'j' => spec.long = true,
            b'h' => spec.short += 1,
            b'L' => {}
            conversion => {
                spec.conversion = conversion;
                return Some((spec, i + 1));
            }
        }
        i += 1;
    }
}

fn integer(spec: &Spec, negative: bool, digits: &str, text: &mut Vec<u8>) {
    let sign = sign(spec, negative && matches!(spec.conversion, b'd' | b'i'));
    let mut prefix = if matches!(spec.conversion, b'd' | b'i') {
        sign.to_owned()
    } else {
        String::new()
    };
    let mut digits = digits.to_owned();
    if let Some(precision) = spec.precision {
        if precision == 0 && digits == "0" {
            digits.clear();
        }
        digits = format!("{digits:0>precision$}");
    }
    if spec.alternate && !digits.trim_start_matches('0').is_empty() {
        match spec.conversion {
            b'x' => prefix.push_str("0x"),
            b'X' => prefix.push_str("0X"),
            b'o' if !digits.starts_with('0') => digits.insert(0, '0'),
            _ => {}
        }
    }
    pad(
        spec,
        prefix.as_bytes(),
        digits.as_bytes(),
        spec.zero && spec.precision.is_none(),
        text,
    );
}

fn sign(spec: &Spec, negative: bool) -> &'static str {
    match (negative, spec.plus, spec.space) {
        (true, _, _) => "-",
        (false, true, _) => "+",
        (false, false, true) => " ",
        (false, false, false) => "",
    }
}

fn pad(spec: &Spec, prefix: &[u8], body: &[u8], zeroes: bool, text: &mut Vec<u8>) {
    let fill = spec
        .width
        .unwrap_or(0)
        .saturating_sub(prefix.len() + body.len());
    let spaces = |n: usize| std::iter::repeat_n(b' ', n);
    if spec.minus {
        text.extend_from_slice(prefix);
        text.extend_from_slice(body);
        text.extend(spaces(fill));
    } else if zeroes {
        text.extend_from_slice(prefix);
        text.extend(std::iter::repeat_n(b'0', fill));
        text.extend_from_slice(body);
    } else {
        text.extend(spaces(fill));
        text.extend_from_slice(prefix);
        text.extend_from_slice(body);
    }
}

fn float(spec: &Spec, value: f64, text: &mut Vec<u8>) {
    let upper = spec.conversion.is_ascii_uppercase();
    let sign = sign(spec, value.is_sign_negative());
    let magnitude = value.abs();
    if !value.is_finite() {
        let body = if value.is_nan() { "nan" } else { "inf" };
        let body = if upper {
            body.to_uppercase()
        } else {
            body.to_owned()
        };
        return pad(spec, sign.as_bytes(), body.as_bytes(), false, text);
    }
    let precision = spec.precision.unwrap_or(6);
    let body = match spec.conversion.to_ascii_lowercase() {
        b'f' => fixed(magnitude, precision, spec.alternate),
        b'e' => exponent(magnitude, precision, spec.alternate),
        b'g' => {
            let precision = precision.max(1);
            let probe = format!("{magnitude:.*e}", precision - 1);
            let power: i32 = probe
                .split('e')
                .nth(1)
                .and_then(|p| p.parse().ok())
                .unwrap_or(0);
            let body = if power < -4 || power >= precision as i32 {
                exponent(magnitude, precision - 1, spec.alternate)
            } else {
                fixed(
                    magnitude,
                    (precision as i32 - 1 - power).max(0) as usize,
                    spec.alternate,
                )
            };
            if spec.alternate { body } else { trim(&body) }
        }
        _ => hexadecimal(magnitude, spec.precision),
    };
    let body = if upper { body.to_uppercase() } else { body };
    pad(spec, sign.as_bytes(), body.as_bytes(), spec.zero, text);
}

fn fixed(value: f64, precision: usize, point: bool) -> String {
    let dot = if point && precision == 0 { "." } else { "" };
    format!("{value:.precision$}{dot}")
}

/// C writes at least two digits of exponent and always its sign.
fn exponent(value: f64, precision: usize, point: bool) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let dot = if point && precision == 0 { "." } else { "" };
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}{dot}e{sign}{:02}", power.abs())
}

/// `%g` drops trailing zeroes of the fraction.
fn trim(text: &str) -> String {
    let (mantissa, power) = match text.find('e') {
        Some(i) => text.split_at(i),
        None => (text, ""),
    };
    let mantissa = if mantissa.contains('.') {
        mantissa.trim_end_matches('0').trim_end_matches('.')
    } else {
        mantissa
    };
    format!("{mantissa}{power}")
}

fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    if value == 0.0 {
        return "0x0p+0".to_owned();
    }
    let bits = value.to_bits();
    let (mut lead, mut fraction) = (u64::from(bits >> 52 != 0), bits & ((1 << 52) - 1));
    let power = if lead == 0 {
        -1022
    } else {
        (bits >> 52) as i32 - 1023
    };
    let mut digits = 13;
    if let Some(precision) = precision.filter(|&p| p < 13) {
        let drop = 4 * (13 - precision as u32);
        let whole = lead << 52 | fraction;
        let rounded = (whole + (1 << (drop - 1)) - 1 + (whole >> drop & 1)) >> drop << drop;
        (lead, fraction, digits) = (rounded >> 52, rounded & ((1 << 52) - 1), precision);
    }
    let all = format!("{fraction:013x}");
    let mut shown = all[..digits].to_owned();
    match precision {
        None => shown.truncate(shown.trim_end_matches('0').len()),
        Some(precision) => shown = format!("{shown:0<precision$}"),
    }
    let dot = if shown.is_empty() { "" } else { "." };
    format!("0x{lead}{dot}{shown}p{power:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn real(format: &str, value: f64) -> String {
        let (spec, used) = parse(format.as_bytes()).expect("a conversion");
        assert_eq!(used, format.len());
        let mut text = Vec::new();
        float(&spec, value, &mut text);
        String::from_utf8(text).expect("ASCII")
    }

    fn int(format: &str, value: i64) -> String {
        let (spec, _) = parse(format.as_bytes()).expect("a conversion");
        let mut text = Vec::new();
        integer(
            &spec,
            value < 0,
            &value.unsigned_abs().to_string(),
            &mut text,
        );
        String::from_utf8(text).expect("ASCII")
    }

    #[test]
    fn floats_as_c_prints_them() {
        assert_eq!(real("%f", 3.5), "3.500000");
        assert_eq!(real("%8.2f", -3.253), "   -3.25");
        assert_eq!(real("%-8.1fx".trim_end_matches('x'), 2.25), "2.2     ");
        assert_eq!(real("%08.2f", -3.253), "-0003.25");
        assert_eq!(real("%e", 12345.678), "1.234568e+04");
        assert_eq!(real("%g", 0.0001), "0.0001");
        assert_eq!(real("%g", 0.00001), "1e-05");
        assert_eq!(real("%g", 1e6), "1e+06");
        assert_eq!(real("%g", 100000.0), "100000");
        assert_eq!(real("%g", 2.5), "2.5");
        assert_eq!(real("%a", 1.0), "0x1p+0");
        assert_eq!(real("%a", 0.75), "0x1.8p-1");
        assert_eq!(real("%F", f64::INFINITY), "INF");
        assert_eq!(real("%+.1f", 0.05), "+0.1");
    }

    #[test]
    fn integers_as_c_prints_them() {
        assert_eq!(int("%5d", -42), "  -42");
        assert_eq!(int("%-5d", 42), "42   ");
        assert_eq!(int("%05d", -42), "-0042");
        assert_eq!(int("%.3d", 7), "007");
        assert_eq!(int("%+d", 7), "+7");
    }
}
