//! What `#[repr]` determines about a type's layout.

use proc_macro2::{Ident, Span, TokenStream as Tokens};
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Meta, Token};

const INTEGERS: [&str; 12] = [
    "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize",
];

/// The contents of all of a type's `#[repr]` attributes, in a canonical order.
pub struct Representation {
    said: Vec<String>,
}

impl Representation {
    pub fn of(attributes: &[Attribute]) -> Result<Self, Error> {
        let mut said = Vec::new();
        for attribute in attributes.iter().filter(|of| of.path().is_ident("repr")) {
            let words =
                attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
            said.extend(words.iter().map(|word| match word {
                // The compiler chooses how tokens are spaced, so the spacing must not enter the
                // shape.
                Meta::List(list) => {
                    format!("{}({})", list.path.to_token_stream(), list.tokens)
                }
                other => other.to_token_stream().to_string(),
            }));
        }
        said.sort();
        said.dedup();
        Ok(Self { said })
    }

    /// A text that is equal for equal representations, however they were written.
    pub fn text(&self) -> String {
        self.said.join(",")
    }

    /// Whether the language, rather than the compiler, determines an enum's layout.
    pub fn decrees_enums(&self) -> bool {
        self.said.iter().any(|word| word == "C") || self.integer().is_some()
    }

    /// The type of an enum's discriminants.
    pub fn discriminant(&self) -> Tokens {
        let integer = Ident::new(self.integer().unwrap_or("isize"), Span::call_site());
        quote!(::core::primitive::#integer)
    }

    fn integer(&self) -> Option<&str> {
        let mut words = self.said.iter().map(String::as_str);
        words.find(|word| INTEGERS.contains(word))
    }
}
