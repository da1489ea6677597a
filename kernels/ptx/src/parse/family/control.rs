//! Branches, ends and hints.

use crate::error::Reason;
use crate::isa::operation::Operation;
use crate::isa::types::Scalar;
use crate::parse::statement::Statement;

pub(super) fn parse(s: &mut Statement<'_>) -> Result<Operation, Reason> {
    match s.opcode {
        "bra" => {
            let uniform = s.take("uni");
            Ok(Operation::Branch { target: 0, uniform })
        }
        // Entries alone run, and they return to nothing.
        "ret" | "exit" => {
            if s.opcode == "ret" {
                s.take("uni");
            }
            Ok(Operation::Exit)
        }
        "trap" => Ok(Operation::Trap),
        "nanosleep" => {
            s.ty(&[Scalar::U32])?;
            s.source(Scalar::U32)?;
            Ok(Operation::Hint)
        }
        "setmaxnreg" => {
            s.require(&[("inc", ()), ("dec", ())], "'.inc' or '.dec'")?;
            s.require_modifier("sync")?;
            s.require_modifier("aligned")?;
            s.ty(&[Scalar::U32])?;
            s.constant()?;
            Ok(Operation::Hint)
        }
        // A launch begins when the one before it has ended.
        _ => {
            s.require(&[("launch_dependents", ()), ("wait", ())], "an action")?;
            Ok(Operation::Hint)
        }
    }
}
