//! Tokens for a parser: one is looked at in advance.

use crate::error::{Problem, ScriptError};
use crate::lex::{Lexer, Token};
use crate::span::Span;

/// What was expected, and what is there.
pub fn expected(what: &str, token: &Token, span: Span) -> ScriptError {
    let problem = Problem::Expected {
        expected: what.to_owned(),
        found: token.shown(),
    };
    problem.at(span)
}

/// Tokens, with one looked at in advance.
pub struct Reader<'s> {
    /// Behind the token before `token`.
    behind: Lexer<'s>,
    lexer: Lexer<'s>,
    token: Token,
    span: Span,
    /// Of the token that was taken last.
    last: Span,
    /// How deep the parser is.
    depth: usize,
}

/// How deep expressions and blocks may stand in each other: whatever is made of a script follows
/// its tree.
pub const DEEPEST: usize = 32;
/// How many operators of one precedence may stand in a row.
pub const LONGEST: usize = 50;

impl<'s> Reader<'s> {
    /// In front of a token.
    ///
    /// # Errors
    /// There is none.
    pub fn new(lexer: Lexer<'s>) -> Result<Reader<'s>, ScriptError> {
        let behind = lexer.clone();
        let mut lexer = lexer;
        let (token, span) = lexer.token()?;
        Ok(Reader {
            behind,
            lexer,
            token,
            span,
            last: span,
            depth: 0,
        })
    }

    /// One deeper; [`Reader::out`] is one less.
    ///
    /// # Errors
    /// It is too deep.
    pub fn deeper(&mut self) -> Result<(), ScriptError> {
        self.depth += 1;
        self.allow(self.depth, DEEPEST)
    }

    /// So many of something in each other are allowed.
    ///
    /// # Errors
    /// They are too many.
    pub fn allow(&self, count: usize, most: usize) -> Result<(), ScriptError> {
        match count > most {
            false => Ok(()),
            true => Err(Problem::TooDeep { most }.at(self.span)),
        }
    }

    /// One less deep.
    pub fn out(&mut self) {
        self.depth -= 1;
    }

    /// The token that comes.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Its place.
    pub fn span(&self) -> Span {
        self.span
    }

    /// From `start` to the token that was taken last.
    pub fn since(&self, start: Span) -> Span {
        start.to(self.last)
    }

    /// Takes the token that comes.
    ///
    /// # Errors
    /// What follows is no token.
    pub fn step(&mut self) -> Result<Token, ScriptError> {
        self.behind = self.lexer.clone();
        self.last = self.span;
        let (token, span) = self.lexer.token()?;
        self.span = span;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// Takes the last token of a block: what follows is no token of the language.
    ///
    /// # Errors
    /// Another token comes.
    pub fn close(&mut self) -> Result<(), ScriptError> {
        if self.token != Token::Sign("}") {
            return Err(self.expected("`}`"));
        }
        self.behind = self.lexer.clone();
        self.last = self.span;
        Ok(())
    }

    /// Takes a sign, if it comes.
    ///
    /// # Errors
    /// As [`Reader::step`].
    pub fn take_sign(&mut self, sign: &'static str) -> Result<bool, ScriptError> {
        let found = self.token == Token::Sign(sign);
        if found {
            self.step()?;
        }
        Ok(found)
    }

    /// Takes a sign.
    ///
    /// # Errors
    /// Another token comes.
    pub fn sign(&mut self, sign: &'static str) -> Result<(), ScriptError> {
        match self.take_sign(sign)? {
            true => Ok(()),
            false => Err(self.expected(&format!("`{sign}`"))),
        }
    }

    /// Something else was expected here.
    pub fn expected(&self, what: &str) -> ScriptError {
        expected(what, &self.token, self.span)
    }

    /// The word that comes; empty if it is none.
    pub fn word(&self) -> &str {
        match &self.token {
            Token::Word(word) => word,
            _ => "",
        }
    }

    /// Behind the token that was taken last.
    pub fn behind(&self) -> Lexer<'s> {
        self.behind.clone()
    }
}
