//! `ACL GENPASS [bits]`: a random password.

use super::PLAIN;
use crate::command::*;

/// The default number of bits, and the maximum number of bits.
const BITS: i64 = 256;
const MOST: i64 = 4096;

pub(super) static GENPASS: Command = Command {
    name: "acl|genpass",
    summary: "Returns a random password, of 256 bits unless said otherwise",
    complexity: "O(N) where N is the number of bits",
    arity: -2,
    arguments: &[Argument::new("bits", Kind::Integer).optional()],
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Outcome {
    let bits = match call.args.len() {
        2 => BITS,
        3 => call.integer(2)?,
        _ => return Err(call.no_such_subcommand("ACL")),
    };
    if !(1..=MOST).contains(&bits) {
        return Err(Failure::other(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
             {MOST}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    let random = mneme_sys::random_bytes(&mut bytes);
    random.map_err(|error| Failure::other(format!("ERR no randomness: {error}")))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    call.reply.bulk(&text.as_bytes()[..digits]);
    Ok(())
}
