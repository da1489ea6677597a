//! How a PTX text becomes a typed module.

mod body;
mod cursor;
mod family;
mod lexer;
mod operand;
mod scope;
mod statement;
mod variable;

use crate::error::{ParseError, Reason};
use crate::memory::address::module_global;
use crate::module::{Entry, Module, Parameter, Variable};
use cursor::Cursor;
use lexer::{Kind, Literal};
use scope::{Scopes, Symbol};

use crate::isa::operand::Space;
use crate::isa::types::Scalar;
use variable::{Declaration, MOST_BYTES, declaration, space_of};

/// Reads a text.
pub(crate) fn module(source: &str) -> Result<Module, ParseError> {
    let tokens = lexer::tokens(source)?;
    let mut parser = ModuleParser {
        cursor: Cursor::new(source, &tokens),
        module: Module {
            target: String::new(),
            entries: Vec::new(),
            globals: Vec::new(),
            constants: Vec::new(),
        },
        scopes: Scopes::default(),
        shared: SharedLayout::default(),
        dynamic: Vec::new(),
    };
    parser.scopes.enter();
    while parser.cursor.peek().is_some() {
        let place = parser.cursor.place();
        if let Err(stop) = parser.item() {
            return Err(match stop {
                Stop::Here(reason) => parser.cursor.error(place, reason),
                Stop::There(error) => error,
            });
        }
    }
    Ok(parser.module)
}

/// Why reading stopped: in the statement at hand, or in one further in.
enum Stop {
    Here(Reason),
    There(ParseError),
}

impl From<Reason> for Stop {
    fn from(reason: Reason) -> Self {
        Self::Here(reason)
    }
}

impl From<ParseError> for Stop {
    fn from(error: ParseError) -> Self {
        Self::There(error)
    }
}

/// Where variables lie in the shared memory of a block.
///
/// Variables of the module come first, then those of the entry; the dynamic part, which all `.extern`
/// arrays share, follows at the next multiple of [`DYNAMIC_ALIGNMENT`].
#[derive(Clone, Default)]
struct SharedLayout {
    bytes: usize,
}

/// Alignment of dynamic shared memory, and the widest swizzle pattern of `wgmma`.
const DYNAMIC_ALIGNMENT: usize = 1024;

struct ModuleParser<'a> {
    cursor: Cursor<'a>,
    module: Module,
    scopes: Scopes<'a>,
    shared: SharedLayout,
    /// Names of dynamic shared memory; where it begins depends on the entry.
    dynamic: Vec<&'a str>,
}

impl<'a> ModuleParser<'a> {
    /// A directive at the outermost level.
    fn item(&mut self) -> Result<(), Stop> {
        match self.cursor.dotted("a directive")? {
            "version" => self.version(),
            "target" => self.target(),
            "address_size" => match self.cursor.integer("a number of bits")? {
                64 => Ok(()),
                other => Err(Reason::Unsupported(format!("an address size of {other}")).into()),
            },
            "file" | "loc" => {
                self.cursor.skip_line();
                Ok(())
            }
            "section" => {
                self.cursor.next();
                self.cursor.expect('{', "'{'")?;
                Ok(self.cursor.skip_block()?)
            }
            "pragma" => {
                self.cursor.next();
                Ok(self.cursor.expect(';', "';'")?)
            }
            "visible" | "weak" | "common" | "extern" if self.is_function() => self.item(),
            "entry" => self.entry(),
            "func" => Err(Reason::Unsupported("a function that is not an entry".into()).into()),
            first => self.variable(first),
        }
    }

    fn is_function(&self) -> bool {
        matches!(self.cursor.peek(), Some(Kind::Dotted("entry" | "func")))
    }

    fn version(&mut self) -> Result<(), Stop> {
        match self.cursor.next() {
            Some(Kind::Number(Literal::Double(_))) => Ok(()),
            _ => Err(self.cursor.unexpected("a version").into()),
        }
    }

    fn target(&mut self) -> Result<(), Stop> {
        self.cursor.word("an architecture")?.clone_into(&mut self.module.target);
        while self.cursor.accept(',') {
            self.cursor.word("a target option")?;
        }
        Ok(())
    }

    /// A variable of the module; `first` is its first directive.
    fn variable(&mut self, first: &'a str) -> Result<(), Stop> {
        let (is_extern, space) = match first {
            "extern" => (true, self.cursor.dotted("a state space")?),
            "visible" | "weak" | "common" => (false, self.cursor.dotted("a state space")?),
            space => (false, space),
        };
        let space = space_of(space)?;
        let declaration = declaration(&mut self.cursor, is_extern)?;
        if is_extern && space == Space::Shared {
            self.dynamic.push(declaration.name);
            return Ok(());
        }
        let symbol = match space {
            Space::Shared => self.shared_variable(&declaration)?,
            Space::Global if !is_extern => self.global_variable(&declaration)?,
            Space::Const if !is_extern => self.constant(&declaration)?,
            _ => return Err(Reason::Unsupported("a variable of this kind".into()).into()),
        };
        Ok(self.scopes.declare(declaration.name, symbol)?)
    }

    fn shared_variable(&mut self, declaration: &Declaration<'a>) -> Result<Symbol, Reason> {
        if declaration.initial.is_some() {
            return Err(Reason::Unsupported("an initial value in shared memory".into()));
        }
        place_shared(&mut self.shared, declaration)
    }

    fn global_variable(&mut self, declaration: &Declaration<'a>) -> Result<Symbol, Reason> {
        let address = module_global(self.module.globals.len()).ok_or(Reason::TooLarge {
            what: "the number of global variables",
            limit: crate::memory::address::MOST_MODULE_GLOBALS,
        })?;
        let bytes = declaration.contents();
        self.module.globals.push(Variable { name: declaration.name.to_owned(), bytes });
        Ok(Symbol::Variable { space: Space::Global, offset: address })
    }

    fn constant(&mut self, declaration: &Declaration<'a>) -> Result<Symbol, Reason> {
        let constants = &mut self.module.constants;
        let offset = constants.len().next_multiple_of(declaration.alignment);
        if offset + declaration.bytes > MOST_BYTES {
            return Err(Reason::TooLarge { what: "constant memory", limit: MOST_BYTES });
        }
        constants.resize(offset, 0);
        constants.extend(declaration.contents());
        Ok(Symbol::Variable { space: Space::Const, offset: offset as u64 })
    }

    fn entry(&mut self) -> Result<(), Stop> {
        let name = self.cursor.word("a name")?;
        if self.module.entry(name).is_some() {
            return Err(Reason::Redeclared(name.to_owned()).into());
        }
        self.scopes.enter();
        let mut entry = empty_entry(name);
        if self.cursor.accept('(') {
            self.parameters(&mut entry)?;
        }
        self.performance(&mut entry)?;
        self.cursor.expect('{', "'{'")?;
        let shared = self.shared.clone();
        entry.static_shared = body::shared_bytes(self.cursor.clone(), shared.clone())?;
        if !self.dynamic.is_empty() {
            entry.static_shared = entry.static_shared.next_multiple_of(DYNAMIC_ALIGNMENT);
        }
        for name in &self.dynamic {
            let offset = entry.static_shared as u64;
            self.scopes.declare(name, Symbol::Variable { space: Space::Shared, offset })?;
        }
        body::read(&mut self.cursor, &mut self.scopes, shared, &mut entry)?;
        self.scopes.leave();
        self.module.entries.push(entry);
        Ok(())
    }

    fn parameters(&mut self, entry: &mut Entry) -> Result<(), Reason> {
        while !self.cursor.accept(')') {
            if !entry.parameters.is_empty() {
                self.cursor.expect(',', "',' or ')'")?;
            }
            self.parameter(entry)?;
        }
        Ok(())
    }

    fn parameter(&mut self, entry: &mut Entry) -> Result<(), Reason> {
        if !self.cursor.accept_dotted("param") {
            return Err(self.cursor.unexpected("'.param'"));
        }
        let declaration = variable::parameter(&mut self.cursor)?;
        let offset = entry.parameter_bytes.next_multiple_of(declaration.alignment);
        entry.parameter_bytes = offset + declaration.bytes;
        if entry.parameter_bytes > MOST_BYTES {
            return Err(Reason::TooLarge { what: "parameters", limit: MOST_BYTES });
        }
        let (name, bytes) = (declaration.name.to_owned(), declaration.bytes);
        entry.parameters.push(Parameter { name, bytes, offset });
        let symbol = Symbol::Variable { space: Space::Param, offset: offset as u64 };
        self.scopes.declare(declaration.name, symbol)
    }

    /// Directives between parameters and body.
    fn performance(&mut self, entry: &mut Entry) -> Result<(), Reason> {
        while let Some(Kind::Dotted(name)) = self.cursor.peek() {
            self.cursor.next();
            match name {
                "reqntid" => entry.required_threads = Some(self.extents()?),
                "maxntid" => entry.most_threads = Some(self.extents()?),
                "minnctapersm" | "maxnctapersm" | "maxnreg" => {
                    self.cursor.integer("a number")?;
                }
                "pragma" => {
                    self.cursor.next();
                    self.cursor.expect(';', "';'")?;
                }
                other => return Err(Reason::Directive(other.to_owned())),
            }
        }
        Ok(())
    }

    fn extents(&mut self) -> Result<[u32; 3], Reason> {
        let mut extents = [1; 3];
        for (axis, extent) in extents.iter_mut().enumerate() {
            if axis > 0 && !self.cursor.accept(',') {
                break;
            }
            let value = self.cursor.integer("a number of threads")?;
            *extent = u32::try_from(value).map_err(|_| Reason::Number(value.to_string()))?;
        }
        Ok(extents)
    }
}

fn place_shared(
    layout: &mut SharedLayout,
    declaration: &Declaration<'_>,
) -> Result<Symbol, Reason> {
    let offset = layout.bytes.next_multiple_of(declaration.alignment);
    layout.bytes = offset + declaration.bytes;
    if layout.bytes > MOST_BYTES {
        return Err(Reason::TooLarge { what: "shared memory", limit: MOST_BYTES });
    }
    Ok(Symbol::Variable { space: Space::Shared, offset: offset as u64 })
}

fn empty_entry(name: &str) -> Entry {
    Entry {
        name: name.to_owned(),
        parameters: Vec::new(),
        parameter_bytes: 0,
        code: Vec::new(),
        reconvergence: Vec::new(),
        opcodes: Vec::new(),
        words: 0,
        longs: 0,
        predicates: 0,
        static_shared: 0,
        local_bytes: 0,
        required_threads: None,
        most_threads: None,
        shared_granule: Scalar::B64.bytes() * 2,
        has_products: false,
        has_global_atomics: false,
    }
}
