//! `tld4`: one channel of the four texels that a linear filter would mix.

use super::lane::Lane;
use super::object::Texture;
use super::sample::{Texel, between, position};
use crate::op::operand::Row;
use crate::trap::Exec;
use crate::worker::Worker;

impl Worker<'_> {
    /// The channel `component`, counter-clockwise from the lower left: (0,1), (1,1), (1,0), (0,0).
    pub(super) fn gather(
        &mut self,
        lane: &Lane<'_>,
        texture: &Texture,
        component: usize,
        coordinates: [Row; 2],
    ) -> Exec<Texel> {
        let first: [i64; 2] = std::array::from_fn(|d| {
            let x = f32::from_bits(lane.get(coordinates[d]) as u32);
            let at = position(x, texture.image.size[d], texture.normalised);
            between(at).0
        });
        let mut four = [0; 4];
        for (value, [right, down]) in four.iter_mut().zip([[0, 1], [1, 1], [1, 0], [0, 0]]) {
            let at = [
                texture.index(0, first[0] + right),
                texture.index(1, first[1] + down),
                Some(0),
            ];
            *value = self.texel(lane, texture, at, 0)?[component];
        }
        Ok(four)
    }
}
