//! Arguments as the bytes that a kernel reads.

use super::expression::Value;
use super::manifest::NumberType;

/// A number of a type, little-endian; an error says why it has none.
pub(super) fn number(kind: NumberType, value: &Value) -> Result<Vec<u8>, String> {
    let misfit = || format!("{value} is no {}", kind.name());
    let whole = match *value {
        Value::Integer(value) => Some(value),
        Value::Truth(value) => Some(i64::from(value)),
        Value::Number(_) | Value::Word(_) => None,
    };
    let real = match *value {
        Value::Integer(value) => Some(value as f64).filter(|real| *real as i64 == value),
        Value::Number(value) => Some(value),
        Value::Truth(_) | Value::Word(_) => None,
    };
    let bytes = match kind {
        NumberType::I32 => {
            whole.and_then(|it| i32::try_from(it).ok()).map(|it| it.to_le_bytes().into())
        }
        NumberType::U32 => {
            whole.and_then(|it| u32::try_from(it).ok()).map(|it| it.to_le_bytes().into())
        }
        NumberType::I64 => whole.map(|it| it.to_le_bytes().into()),
        NumberType::U64 => {
            whole.and_then(|it| u64::try_from(it).ok()).map(|it| it.to_le_bytes().into())
        }
        // Rounded to nearest, as a host rounds it; what is finite stays so.
        NumberType::F32 => real
            .filter(|it| (*it as f32).is_finite() || !it.is_finite())
            .map(|it| (it as f32).to_le_bytes().into()),
        NumberType::F64 => real.map(|it| it.to_le_bytes().into()),
    };
    bytes.ok_or_else(misfit)
}

/// The members of a struct as C lays them out: each at a multiple of its own size, and the whole a
/// multiple of the largest.
pub(super) fn members(members: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let pad = |bytes: &mut Vec<u8>, size: usize| {
        bytes.resize(bytes.len().next_multiple_of(size.max(1)), 0);
    };
    for member in members {
        pad(&mut bytes, member.len());
        bytes.extend(member);
    }
    pad(&mut bytes, members.iter().map(Vec::len).max().unwrap_or(1));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        for (kind, value) in [
            (NumberType::I32, Value::Integer(1 << 31)),
            (NumberType::I32, Value::Number(1.0)),
            (NumberType::U32, Value::Integer(-1)),
            (NumberType::U64, Value::Integer(-1)),
            (NumberType::I64, Value::Word("1".to_owned())),
            (NumberType::F32, Value::Number(1e39)),
            (NumberType::F64, Value::Integer((1 << 53) + 1)),
            (NumberType::F32, Value::Truth(true)),
        ] {
            let refused = number(kind, &value).expect_err(kind.name());
            assert!(refused.contains(&value.to_string()), "{refused}");
        }
    }

    #[test]
    fn numbers_are_little_endian() {
        for (kind, value, bytes) in [
            (NumberType::I32, Value::Integer(-2), vec![0xfe, 0xff, 0xff, 0xff]),
            (NumberType::I32, Value::Truth(true), vec![1, 0, 0, 0]),
            (NumberType::U32, Value::Integer(u32::MAX.into()), vec![0xff; 4]),
            (NumberType::I64, Value::Integer(-1), vec![0xff; 8]),
            (NumberType::F32, Value::Number(0.1), 0.1_f32.to_le_bytes().to_vec()),
            (NumberType::F32, Value::Number(f64::INFINITY), f32::INFINITY.to_le_bytes().to_vec()),
            (NumberType::F64, Value::Integer(3), 3.0_f64.to_le_bytes().to_vec()),
        ] {
            assert_eq!(number(kind, &value), Ok(bytes), "{value}");
        }
    }

    /// `struct { int a; void* b; float c; int d; int e; }` of C is 32 bytes long.
    #[test]
    fn structs_are_laid_out_as_in_c() {
        let packed = members(&[vec![1; 4], vec![2; 8], vec![3; 4], vec![4; 4], vec![5; 4]]);
        let mut expected = vec![1; 4];
        expected.extend([0; 4]);
        expected.extend([2; 8]);
        expected.extend([3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0, 0, 0, 0]);
        assert_eq!(packed, expected);
    }
}
