//! `#[derive(Stored)]` for mneme-space's trait of that name.

mod representation;

use proc_macro::TokenStream;
use proc_macro2::{Group, Ident, Span, TokenStream as Tokens, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use representation::Representation;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, GenericParam, Lifetime, Type, parse_quote, parse2};

/// Lets values of the type lie in a segment. Each field must be `Stored`; the type may have at most
/// one lifetime, the brand.
///
/// A type that is generic over its allocator names that parameter: `#[stored(allocator = A)]`. It
/// is then `Stored` only if the allocator is the segment's `Heap`.
#[proc_macro_derive(Stored, attributes(stored))]
pub fn stored(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    derive(input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// The crate that the derived code uses where it is expanded; this crate does not depend on it.
const SPACE: &str = "mneme_space";

fn derive(mut input: DeriveInput) -> Result<Tokens, Error> {
    let lifetimes: Vec<_> = input.generics.lifetimes().collect();
    if let [_, second, ..] = &*lifetimes {
        return Err(Error::new(
            second.span(),
            "a stored type has at most one lifetime: the brand of its segment",
        ));
    }
    let space = Ident::new(SPACE, Span::call_site());
    let mut generics = input.generics.clone();
    let brand: Lifetime = match lifetimes.first() {
        Some(lifetime) => lifetime.lifetime.clone(),
        None => {
            generics.params.insert(0, parse_quote!('__s));
            parse_quote!('__s)
        }
    };
    let allocator = Allocator::of(&input, &quote!(::#space::Heap<#brand>))?;
    if let Some(allocator) = &allocator {
        allocator.remove(&mut generics)?;
        allocator.fill(&mut input.data)?;
    }
    for parameter in &mut generics.params {
        if let GenericParam::Type(parameter) = parameter {
            parameter
                .bounds
                .push(parse_quote!(::#space::Stored<#brand>));
        }
    }
    let representation = Representation::of(&input.attrs)?;
    let body = match &input.data {
        Data::Struct(data) => fields(&data.fields, true)?,
        Data::Enum(data) => {
            let mut body = Tokens::new();
            if !representation.decrees_enums() {
                body.extend(quote!(shape.by_compiler();));
            }
            let integer = representation.discriminant();
            for variant in &data.variants {
                let name = variant.ident.to_string();
                // As a value: the same tokens may come to mean another value.
                let value = variant.discriminant.as_ref().map(|(_, value)| {
                    quote! {
                        shape.text("=");
                        shape.value(::core::convert::identity::<#integer>(#value) as i128);
                    }
                });
                let fields = fields(&variant.fields, false)?;
                body.extend(quote!(shape.text(#name); #value #fields));
            }
            body
        }
        Data::Union(data) => {
            return Err(Error::new(
                data.union_token.span,
                "a union cannot be stored: nothing says which of its fields is there",
            ));
        }
    };
    let ident = &input.ident;
    let name = ident.to_string();
    let said = representation.text();
    let constants = input.generics.const_params().map(|of| &of.ident);
    let (_, types, _) = input.generics.split_for_impl();
    let types = match &allocator {
        Some(allocator) => allocator.replaced(types.into_token_stream()),
        None => types.into_token_stream(),
    };
    let (impls, _, clauses) = generics.split_for_impl();
    Ok(quote! {
        // SAFETY: all parts are `Stored` under the same brand, as the shape's brand demands, and
        // are described.
        #[automatically_derived]
        unsafe impl #impls ::#space::Stored<#brand> for #ident #types #clauses {
            fn describe(shape: &mut ::#space::Shape<#brand>) {
                shape.text(::core::concat!(::core::module_path!(), "::", #name));
                shape.text(#said);
                #(shape.value(#constants as i128);)*
                #body
            }
        }
    })
}

/// A type parameter that stands for the heap.
struct Allocator {
    parameter: Ident,
    heap: Tokens,
}

impl Allocator {
    /// The parameter that the attribute names, if there is one.
    fn of(input: &DeriveInput, heap: &Tokens) -> Result<Option<Self>, Error> {
        let mut found = None;
        for attribute in &input.attrs {
            if attribute.path().is_ident("stored") {
                attribute.parse_nested_meta(|meta| {
                    if !meta.path.is_ident("allocator") {
                        return Err(meta.error("only `allocator = PARAMETER` can be said here"));
                    }
                    found = Some(meta.value()?.parse::<Ident>()?);
                    Ok(())
                })?;
            }
        }
        let Some(parameter) = found else {
            return Ok(None);
        };
        if !input
            .generics
            .type_params()
            .any(|known| known.ident == parameter)
        {
            return Err(Error::new(
                parameter.span(),
                "the type has no such parameter",
            ));
        }
        let heap = heap.clone();
        Ok(Some(Self { parameter, heap }))
    }

    /// Removes the parameter from those that the implementation is generic over.
    fn remove(&self, generics: &mut syn::Generics) -> Result<(), Error> {
        let others = std::mem::take(&mut generics.params).into_iter().filter(
            |parameter| !matches!(parameter, GenericParam::Type(of) if of.ident == self.parameter),
        );
        generics.params = others.collect();
        for parameter in &mut generics.params {
            *parameter = parse2(self.replaced(parameter.to_token_stream()))?;
        }
        for predicate in generics
            .where_clause
            .iter_mut()
            .flat_map(|of| &mut of.predicates)
        {
            *predicate = parse2(self.replaced(predicate.to_token_stream()))?;
        }
        Ok(())
    }

    /// Substitutes the heap for the parameter in the fields' types.
    fn fill(&self, data: &mut Data) -> Result<(), Error> {
        let fields: Vec<&mut Fields> = match data {
            Data::Struct(data) => vec![&mut data.fields],
            Data::Enum(data) => data.variants.iter_mut().map(|of| &mut of.fields).collect(),
            Data::Union(_) => Vec::new(),
        };
        for field in fields.into_iter().flat_map(Fields::iter_mut) {
            field.ty = parse2(self.replaced(field.ty.to_token_stream()))?;
        }
        Ok(())
    }

    fn replaced(&self, tokens: Tokens) -> Tokens {
        let replace = |token| match token {
            TokenTree::Ident(ident) if ident == self.parameter => self.heap.clone(),
            TokenTree::Group(group) => {
                let inner = self.replaced(group.stream());
                TokenTree::Group(Group::new(group.delimiter(), inner)).into()
            }
            other => other.into(),
        };
        tokens.into_iter().map(replace).collect::<Tokens>()
    }
}

/// Describes the number of fields and each field, with its offset where `offset_of!` supports it.
fn fields(fields: &Fields, offsets: bool) -> Result<Tokens, Error> {
    let count = fields.len() as u64;
    let mut body = quote!(shape.number(#count););
    for (field, member) in fields.iter().zip(fields.members()) {
        refuse(&field.ty)?;
        refuse_macros(field.ty.to_token_stream())?;
        let name = quote!(#member).to_string();
        let offset =
            offsets.then(|| quote!(shape.number(::core::mem::offset_of!(Self, #member) as u64);));
        let of = &field.ty;
        // Errors point to the field, and names resolve here even if a macro produced the field.
        let place = Span::call_site().located_at(of.span());
        body.extend(quote_spanned! {place=>
            shape.text(#name);
            #offset
            shape.part::<#of>();
        });
    }
    Ok(body)
}

/// Refuses types that evidently cannot be stored, and says why.
fn refuse(of: &Type) -> Result<(), Error> {
    let why = match of {
        Type::Reference(_) => {
            "a reference cannot be stored: use `SegBox<'s, T>` to own the value, or `Ptr<'s, T>` to point to it"
        }
        Type::Ptr(_) => "a raw pointer cannot be stored: use `Ptr<'s, T>`",
        Type::BareFn(_) => {
            "a function pointer cannot be stored: other processes have other code there"
        }
        Type::TraitObject(_) => {
            "`dyn` cannot be stored: it points to code of this process; use an enum"
        }
        Type::Paren(inner) => return refuse(&inner.elem),
        Type::Group(inner) => return refuse(&inner.elem),
        Type::Array(inner) => return refuse(&inner.elem),
        _ => return Ok(()),
    };
    Err(Error::new(of.span(), why))
}

/// Refuses a type that is wholly or partly a macro invocation. The derived code mentions a field's
/// type a second time, with other tokens where the allocator is substituted, and a procedural macro
/// may expand differently each time. Then the type that is checked would not be the field's type.
fn refuse_macros(of: Tokens) -> Result<(), Error> {
    let tokens: Vec<TokenTree> = of.into_iter().collect();
    for window in tokens.windows(3) {
        if let [
            TokenTree::Ident(name),
            TokenTree::Punct(mark),
            TokenTree::Group(_),
        ] = window
            && mark.as_char() == '!'
        {
            return Err(Error::new(
                name.span(),
                "a type made by a macro cannot be stored: write the type itself, or a `type` alias of it",
            ));
        }
    }
    for token in tokens {
        if let TokenTree::Group(group) = token {
            refuse_macros(group.stream())?;
        }
    }
    Ok(())
}
