//! Numbers that a manifest derives from a problem: expressions, without statements, loops or functions
//! of their own.

use std::fmt;

use rhai::{AST, Dynamic, Engine, ImmutableString, OptimizationLevel, Scope};

/// Operations that one expression may take: far more than any honest one does.
const MOST_OPERATIONS: u64 = 10_000;
/// Nested parentheses and operators.
const MOST_DEPTH: usize = 64;
/// Bytes of a word.
const LONGEST_WORD: usize = 1024;

/// What an expression comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number of 64 bits, checked for overflow.
    Integer(i64),
    /// A number of `f64`.
    Number(f64),
    /// A truth value.
    Truth(bool),
    /// A word, such as the name of a number format.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Number(value) => write!(f, "{value:?}"),
            Self::Truth(value) => value.fmt(f),
            Self::Word(value) => write!(f, "'{value}'"),
        }
    }
}

/// An expression that was understood.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) text: String,
    tree: AST,
}

/// Reads and computes expressions.
pub(super) struct Expressions(Engine);

/// The values of names.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Scope<'static>);

impl Names {
    pub(super) fn set(&mut self, name: &str, value: Value) {
        match value {
            Value::Integer(value) => self.0.push_constant(name, value),
            Value::Number(value) => self.0.push_constant(name, value),
            Value::Truth(value) => self.0.push_constant(name, value),
            Value::Word(value) => self.0.push_constant(name, ImmutableString::from(value)),
        };
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

impl Expressions {
    pub(super) fn new() -> Self {
        // Without any package: operators on numbers, truth values and words are built in.
        let mut engine = Engine::new_raw();
        engine
            .set_optimization_level(OptimizationLevel::None)
            .set_max_operations(MOST_OPERATIONS)
            .set_max_expr_depths(MOST_DEPTH)
            .set_max_string_size(LONGEST_WORD)
            .set_allow_looping(false)
            .set_allow_loop_expressions(false)
            .set_allow_statement_expression(false)
            .set_allow_switch_expression(false)
            .set_allow_shadowing(false)
            .set_strict_variables(true)
            .disable_symbol("eval");
        // Bits are lost without a word where integers are shifted too far.
        for symbol in ["<<", ">>"] {
            engine.disable_symbol(symbol);
        }
        engine.register_fn("min", i64::min);
        engine.register_fn("max", i64::max);
        engine.register_fn("ceil_div", ceil_div);
        engine.register_fn("round_up", round_up);
        Self(engine)
    }

    /// Reads an expression in which these names may stand; an error says what is wrong with it.
    pub(super) fn read(&self, text: &str, names: &Names) -> Result<Expression, String> {
        let text = text.to_owned();
        match self.0.compile_expression_with_scope(&names.0, &text) {
            Ok(tree) => Ok(Expression { text, tree }),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Computes it; an error says why it comes to nothing.
    pub(super) fn value(&self, expression: &Expression, names: &Names) -> Result<Value, String> {
        let mut scope = names.0.clone();
        let value: Dynamic = self
            .0
            .eval_ast_with_scope(&mut scope, &expression.tree)
            .map_err(|error| error.to_string())?;
        if let Ok(value) = value.as_int() {
            Ok(Value::Integer(value))
        } else if let Ok(value) = value.as_float() {
            Ok(Value::Number(value))
        } else if let Ok(value) = value.as_bool() {
            Ok(Value::Truth(value))
        } else {
            let kind = value.type_name();
            value.into_string().map(Value::Word).map_err(|_| format!("it comes to a {kind}"))
        }
    }
}

type Computed = Result<i64, Box<rhai::EvalAltResult>>;

/// `value / divisor`, rounded up.
fn ceil_div(value: i64, divisor: i64) -> Computed {
    let quotient = value.checked_div_euclid(divisor);
    let rest = value.checked_rem_euclid(divisor);
    quotient
        .zip(rest)
        .filter(|_| divisor > 0)
        .map(|(quotient, rest)| quotient + i64::from(rest > 0))
        .ok_or_else(|| format!("ceil_div({value}, {divisor}): expected a positive divisor").into())
}

/// The least multiple from `value` on.
fn round_up(value: i64, multiple: i64) -> Computed {
    ceil_div(value, multiple)?
        .checked_mul(multiple)
        .ok_or_else(|| format!("round_up({value}, {multiple}) does not fit 64 bits").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.set("query_len", Value::Integer(65));
        names.set("head_dim", Value::Integer(40));
        names.set("scale", Value::Number(0.125));
        names.set("ragged", Value::Truth(true));
        names.set("format", Value::Word("bf16".to_owned()));
        names
    }

    fn value(text: &str) -> Result<Value, String> {
        let engine = Expressions::new();
        engine.read(text, &names()).and_then(|expression| engine.value(&expression, &names()))
    }

    #[test]
    fn expressions_come_to_what_they_say() {
        for (text, expected) in [
            ("7", Value::Integer(7)),
            ("-1", Value::Integer(-1)),
            ("ceil_div(query_len, 64)", Value::Integer(2)),
            ("round_up(head_dim, 16) * 2", Value::Integer(96)),
            ("if head_dim <= 32 {32} else if head_dim <= 64 {64} else {128}", Value::Integer(64)),
            ("min(query_len, 64) + max(1, 2)", Value::Integer(66)),
            ("scale * 2.0", Value::Number(0.25)),
            ("ragged && format == \"bf16\"", Value::Truth(true)),
            ("format", Value::Word("bf16".to_owned())),
        ] {
            assert_eq!(value(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in [
            "",
            "1 +",
            "unknown",
            "let x = 1",
            "x = 1",
            "query_len = 1",
            "1; 2",
            "while true {}",
            "loop {}",
            "fn f() { 1 }",
            "eval(\"1\")",
            "print(1)",
            "if true { let x = 1; x } else { 2 }",
            "()",
            "1 / 0",
            "9223372036854775807 + 1",
            "ceil_div(1, 0)",
            "round_up(9223372036854775807, 2)",
            "\"a\" * 2",
            "1 << 64",
        ] {
            assert!(value(text).is_err(), "{text}: {:?}", value(text));
        }
    }

    #[test]
    fn deep_and_long_expressions_are_refused() {
        let nested = format!("{}1{}", "(".repeat(10_000), ")".repeat(10_000));
        assert!(value(&nested).is_err());
        let long = vec!["1"; 100_000].join(" + ");
        assert!(value(&long).is_err());
        let word = format!("\"{}\"", "x".repeat(2 * LONGEST_WORD));
        assert!(value(&word).is_err());
    }

    /// Fragments that expressions are made of, in any order.
    fn fragments() -> impl Strategy<Value = String> {
        let words = [
            "query_len",
            "head_dim",
            "scale",
            "format",
            "ragged",
            "min",
            "max",
            "ceil_div",
            "if",
            "else",
            "let",
            "fn",
            "loop",
            "(",
            ")",
            "{",
            "}",
            ",",
            ";",
            "+",
            "-",
            "*",
            "/",
            "%",
            "**",
            "<<",
            ">>",
            "==",
            "<",
            "&&",
            "!",
            "0",
            "1",
            "-1",
            "9223372036854775807",
            "1e308",
            "\"",
            "\"x\"",
            "`${",
            "'",
            "//",
            "/*",
            ".",
            "..",
            "=>",
            "|",
            "?",
            "#{",
            "[",
            "]",
        ];
        let word = prop::sample::select(words.to_vec()).prop_map(str::to_owned);
        prop::collection::vec(prop_oneof![8 => word, 1 => "\\PC{0,3}"], 0..24)
            .prop_map(|words| words.join(" "))
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in fragments()) {
            let _ = value(&text);
        }
    }
}
