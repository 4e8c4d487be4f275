//! Bit offsets as commands receive them.

use crate::command::*;
use crate::resp::parse_i64;
use crate::settings::Key;

impl Call<'_> {
    /// Argument `index` as a bit offset, within the longest possible value.
    pub(super) fn bit_offset(&self, index: usize) -> Result<usize, Failure> {
        self.scaled_bit_offset(self.args.at(index), 1)
    }

    /// The offset in `text`, in units of `width` bits.
    pub(super) fn scaled_bit_offset(&self, text: &[u8], width: u32) -> Result<usize, Failure> {
        let longest = self.server.settings.count(Key::BulkLength);
        parse_i64(text)
            .and_then(|offset| offset.checked_mul(i64::from(width)))
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| offset / 8 < longest)
            .ok_or(Failure::other(
                "ERR bit offset is not an integer or out of range",
            ))
    }
}
