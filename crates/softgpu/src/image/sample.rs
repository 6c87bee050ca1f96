//! `tex`: coordinates to texels, filters and conversions (CUDA C++ Programming Guide, "Texture
//! Fetching").

use super::lane::Lane;
use super::object::{AddressMode, Channels, Image, ImageSource, Texture};
use crate::exec_mem::Reach;
use crate::memory;
use crate::op::image::Geometry;
use crate::op::operand::{Row, Space};
use crate::trap::Exec;
use crate::worker::Worker;

/// Bits of a filter's weights.
const FRACTION: u32 = 8;

/// A channel as it is read.
pub(super) type Texel = [u32; 4];

/// The texel of that number in a dimension of `n`; `None` is the border.
fn index(mode: AddressMode, i: i64, n: u32) -> Option<u32> {
    let n = i64::from(n.max(1));
    let found = match mode {
        AddressMode::Clamp => i.clamp(0, n - 1),
        AddressMode::Border if !(0..n).contains(&i) => return None,
        AddressMode::Border => i,
        AddressMode::Wrap => i.rem_euclid(n),
        AddressMode::Mirror => {
            let i = i.rem_euclid(2 * n);
            if i < n { i } else { 2 * n - 1 - i }
        }
    };
    Some(found as u32)
}

/// A coordinate in texels, finite and small enough to count with.
pub(super) fn position(x: f32, n: u32, normalised: bool) -> f64 {
    let x = f64::from(x);
    let x = if normalised { x * f64::from(n) } else { x };
    if x.is_nan() {
        return 0.0;
    }
    x.clamp(-1e9, 1e9)
}

/// The lower of the two texels between which a position lies, and the weight of the upper one in
/// 256ths.
pub(super) fn between(position: f64) -> (i64, u32) {
    let scale = f64::from(1u32 << FRACTION);
    let fixed = ((position - 0.5) * scale + 0.5).floor() as i64;
    (fixed >> FRACTION, (fixed & ((1 << FRACTION) - 1)) as u32)
}

/// The weights of the eight texels around a place, by the bits of their number, from those of the
/// upper ones in each dimension. Each is a whole number of 256ths and they add up to 256: what is
/// given to a half is divided by the next dimension, in the order and with the rounding that the
/// H200 was measured to have.
fn weights([x, y, z]: [u32; 3]) -> [u32; 8] {
    const WHOLE: u32 = 1 << FRACTION;
    let round = |product: u32| (product + WHOLE / 2) >> FRACTION;
    let round_down = |product: u32| (product + WHOLE / 2 - 1) >> FRACTION;
    let mut weights = [0; 8];
    for (front, part) in [WHOLE - z, z].into_iter().enumerate() {
        let right = round(part * x);
        let left = part - right;
        let (left_up, right_up) = (round_down(left * y), round(right * y));
        let four = [left - left_up, right - right_up, left_up, right_up];
        weights[4 * front..][..4].copy_from_slice(&four);
    }
    weights
}

impl Texture {
    /// The mode that counts: repeating is for normalised coordinates only.
    fn mode(&self, dimension: usize) -> AddressMode {
        match self.modes[dimension] {
            AddressMode::Wrap | AddressMode::Mirror if !self.normalised => AddressMode::Clamp,
            mode => mode,
        }
    }

    /// The texel of that number in a dimension; `None` is the border.
    pub(super) fn index(&self, dimension: usize, i: i64) -> Option<u32> {
        index(self.mode(dimension), i, self.image.size[dimension])
    }

    /// Whether integers become fractions.
    fn converts(&self) -> bool {
        self.as_float && self.image.bits < 32
    }

    /// A channel's bits as an instruction gets them.
    fn read(&self, bits: u64) -> u32 {
        let image = &self.image;
        let shift = 64 - image.bits;
        let signed = (bits << shift) as i64 >> shift;
        // Of 8 or 16 bits: exact as f32.
        let most = ((1u64 << (image.bits - 1)) - 1) as f32;
        match image.kind {
            Channels::Float if image.bits == 16 => {
                half::f16::from_bits(bits as u16).to_f32().to_bits()
            }
            Channels::Float => bits as u32,
            Channels::Unsigned if self.converts() => {
                (bits as f32 / ((1u64 << image.bits) - 1) as f32).to_bits()
            }
            Channels::Signed if self.converts() => (signed as f32 / most).max(-1.0).to_bits(),
            Channels::Unsigned => bits as u32,
            Channels::Signed => signed as u32,
        }
    }

    /// The border as a texel of the image would hold it, as the H200 does: fractions are rounded,
    /// halves down, and of integers the low bits are taken.
    fn border(&self) -> Texel {
        let own = self.image.channels as usize;
        std::array::from_fn(|channel| {
            let colour = self.border[channel];
            if channel >= own {
                return 0;
            }
            if self.image.kind == Channels::Float {
                return colour.to_bits();
            }
            if !self.converts() {
                return self
                    .read(u64::from(colour.to_bits()) & (u64::MAX >> (64 - self.image.bits)));
            }
            let signed = u32::from(self.image.kind == Channels::Signed);
            let most = ((1u64 << (self.image.bits - signed)) - 1) as f32;
            let least = if signed == 1 { -1.0 } else { 0.0 };
            let rounded = (colour.clamp(least, 1.0) * most - 0.5).ceil();
            self.read(rounded as i64 as u64 & (u64::MAX >> (64 - self.image.bits)))
        })
    }

    /// Whether what is read are f32, so that they can be filtered.
    fn filters(&self) -> bool {
        self.linear && (self.image.kind == Channels::Float || self.converts())
    }
}

impl Worker<'_> {
    pub(super) fn sample(
        &mut self,
        lane: &Lane<'_>,
        texture: &Texture,
        geometry: Geometry,
        coordinates: &[Row],
        integers: bool,
    ) -> Exec<Texel> {
        let (layer, coordinates) = match (geometry.layered, coordinates) {
            (true, [layer, rest @ ..]) => (lane.get(*layer) as u32, rest),
            _ => (0, coordinates),
        };
        // The layer is an unsigned number: one below zero is the last.
        let layer = layer.min(texture.image.layers.saturating_sub(1));
        let image = &texture.image;
        let n = geometry.dimensions;
        if integers || image.source == ImageSource::Linear {
            let mut at = [Some(0); 3];
            for d in 0..n {
                let raw = lane.get(coordinates[d]) as u32;
                let number = if integers {
                    i64::from(raw as i32)
                } else {
                    position(f32::from_bits(raw), image.size[d], false).floor() as i64
                };
                // Numbers of texels know no addressing mode: there is nothing beyond the ends.
                at[d] = index(AddressMode::Border, number, image.size[d]);
            }
            if at.contains(&None) {
                return Ok([0; 4]);
            }
            return self.texel(lane, texture, at, layer);
        }
        let mut positions = [0.0; 3];
        for d in 0..n {
            let x = f32::from_bits(lane.get(coordinates[d]) as u32);
            positions[d] = position(x, image.size[d], texture.normalised);
        }
        if texture.filters() {
            return self.filtered(lane, texture, n, positions, layer);
        }
        let at = std::array::from_fn(|d| {
            if d < n {
                texture.index(d, positions[d].floor() as i64)
            } else {
                Some(0)
            }
        });
        self.texel(lane, texture, at, layer)
    }

    /// The weighted sum of the texels around a place.
    fn filtered(
        &mut self,
        lane: &Lane<'_>,
        texture: &Texture,
        dimensions: usize,
        positions: [f64; 3],
        layer: u32,
    ) -> Exec<Texel> {
        let mut around = positions.map(between);
        // Nothing lies between the texels of a dimension that is not there.
        around[dimensions..].fill((0, 0));
        for (d, around) in around.iter_mut().enumerate().take(dimensions) {
            // The coordinate is clamped, not the two numbers: only the last texel has weight.
            let last = i64::from(texture.image.size[d]) - 1;
            if texture.mode(d) == AddressMode::Clamp && !(0..last).contains(&around.0) {
                *around = (around.0.clamp(0, last), 0);
            }
        }
        let mut sum = [0f64; 4];
        for (corner, weight) in weights(around.map(|(_, upper)| upper))
            .into_iter()
            .enumerate()
        {
            if weight == 0 {
                continue;
            }
            let mut at = [Some(0); 3];
            for d in 0..dimensions {
                at[d] = texture.index(d, around[d].0 + (corner >> d & 1) as i64);
            }
            let texel = self.texel(lane, texture, at, layer)?;
            for (sum, value) in sum.iter_mut().zip(texel) {
                *sum += f64::from(weight) * f64::from(f32::from_bits(value));
            }
        }
        let whole = f64::from(1u32 << FRACTION);
        Ok(sum.map(|value| ((value / whole) as f32).to_bits()))
    }

    /// One texel; `None` in a dimension is the border.
    pub(super) fn texel(
        &mut self,
        lane: &Lane<'_>,
        texture: &Texture,
        at: [Option<u32>; 3],
        layer: u32,
    ) -> Exec<Texel> {
        let [Some(x), Some(y), Some(z)] = at else {
            return Ok(texture.border());
        };
        let image = &texture.image;
        // A channel that the image does not have is zero.
        let mut texel = [0; 4];
        let first = image.address_of(
            [
                u64::from(x) * u64::from(image.texel_bytes()),
                u64::from(y),
                u64::from(z),
            ],
            u64::from(layer),
        );
        for (channel, value) in texel.iter_mut().take(image.channels as usize).enumerate() {
            let bits = self.channel(lane, image, first, channel)?;
            *value = texture.read(bits);
        }
        Ok(texel)
    }

    fn channel(&mut self, lane: &Lane<'_>, image: &Image, texel: u64, channel: usize) -> Exec<u64> {
        let bytes = image.bits / 8;
        let reach = Reach {
            space: Space::Global,
            address: texel.wrapping_add(channel as u64 * u64::from(bytes)),
            bytes,
            access: "load",
        };
        let pointer = self.pointer(lane.env, lane.warp, lane.lane, reach)?;
        // SAFETY: `pointer` checked bounds and alignment.
        Ok(unsafe { memory::load(pointer, bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_ends() {
        let go = |mode| (-5..9).map(|i| index(mode, i, 4)).collect::<Vec<_>>();
        let some = |list: [u32; 14]| list.map(Some).to_vec();
        assert_eq!(
            go(AddressMode::Clamp),
            some([0, 0, 0, 0, 0, 0, 1, 2, 3, 3, 3, 3, 3, 3])
        );
        assert_eq!(
            go(AddressMode::Wrap),
            some([3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0])
        );
        assert_eq!(
            go(AddressMode::Mirror),
            some([3, 3, 2, 1, 0, 0, 1, 2, 3, 3, 2, 1, 0, 0])
        );
        assert_eq!(index(AddressMode::Border, -1, 4), None);
        assert_eq!(index(AddressMode::Border, 3, 4), Some(3));
        assert_eq!(index(AddressMode::Border, 4, 4), None);
    }

    #[test]
    fn weights_have_eight_bits() {
        assert_eq!(between(0.5), (0, 0));
        assert_eq!(between(1.0), (0, 128));
        assert_eq!(between(0.0), (-1, 128));
        assert_eq!(between(2.5 - 1.0 / 1024.0), (2, 0));
    }

    #[test]
    fn weights_are_those_of_the_h200() {
        assert_eq!(weights([0, 0, 0]), [256, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(weights([77, 0, 0]), [179, 77, 0, 0, 0, 0, 0, 0]);
        assert_eq!(weights([28, 184, 0]), [64, 8, 164, 20, 0, 0, 0, 0]);
        assert_eq!(weights([128, 1, 0]), [128, 127, 0, 1, 0, 0, 0, 0]);
        assert_eq!(weights([89, 136, 60]), [60, 32, 68, 36, 18, 10, 21, 11]);
        assert_eq!(weights([58, 115, 180]), [32, 9, 27, 8, 77, 23, 62, 18]);
        assert_eq!(weights([74, 59, 192]), [35, 15, 10, 4, 105, 43, 31, 13]);
    }

    #[test]
    fn a_position_is_finite() {
        assert_eq!(position(f32::NAN, 4, true), 0.0);
        assert_eq!(position(f32::INFINITY, 4, true), 1e9);
        assert_eq!(position(0.25, 8, true), 2.0);
        assert_eq!(position(0.25, 8, false), 0.25);
    }
}
