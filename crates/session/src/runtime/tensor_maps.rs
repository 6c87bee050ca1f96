//! Learns from the driver where a tensor map holds the size of its box. The 128 bytes are the
//! driver's secret, but it makes maps for everybody (`cuTensorMapEncodeTiled`,
//! `cuTensorMapEncodeIm2col`): of many maps of known boxes, the place of a number is where that
//! number stands in all of them. What is not found for certain is not used.

use warpbpf_driver::{Context, Driver, TENSOR_MAP_WORDS, TensorShape};
use warpbpf_patch::{TensorBits, TensorField, TensorLayout};

use crate::plan::session::Session;

type Words = [u64; TENSOR_MAP_WORDS];

/// Logarithm of the bytes of an element, by `CUtensorMapDataType`. Later types are packed and have
/// no bytes of their own.
const ELEMENTS: [u32; 13] = [0, 1, 2, 2, 3, 3, 1, 2, 3, 1, 2, 2, 2];
/// Maps that are made to learn from, of boxes and of images.
const SAMPLES: usize = 384;
/// That many the driver must have taken.
const ENOUGH: usize = 128;

/// Bytes of a box that surely has room in shared memory.
const FITS: u32 = 32 << 10;

struct Sample {
    element: usize,
    shape: TensorShape,
    words: Words,
}

impl Session {
    /// Asks the driver how tensor maps hold their boxes, unless that is known. It answers in a
    /// context only: in the current one, else in `context`, else in the first device's primary one.
    /// False: it could not be learned, and tensor copies are said to move 0 bytes.
    pub fn learn_tensor_maps(&self, driver: &Driver, context: Option<Context>) -> bool {
        let ask = || learn(&mut |element, shape| driver.tensor_map(element, shape).ok());
        let asked = || {
            // A current context need not be alive.
            ask()
                .or_else(|| driver.within(context?, ask).flatten())
                .or_else(|| driver.within_primary(0, ask).flatten())
        };
        // Asked once: a driver that is not understood will not be the next time.
        self.tensors.get_or_init(asked).is_some()
    }
}

/// The layout, if `encode` makes maps that agree with one.
fn learn(encode: &mut dyn FnMut(u32, TensorShape) -> Option<Words>) -> Option<TensorLayout> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut sample = |image: bool| -> Vec<Sample> {
        let made = (0..SAMPLES).filter_map(|at| {
            let element = numbers.below(ELEMENTS.len() as u32) as usize;
            // Rows are a multiple of 16 bytes.
            let unit = 16 >> ELEMENTS[element];
            // All bits of each number must have been seen, and few boxes of random numbers fit in
            // shared memory.
            let long = at % 8 == 0;
            let row = if long {
                unit
            } else {
                unit * (1 + numbers.below(256 / unit))
            };
            let mut room = FITS / (row << ELEMENTS[element]);
            let mut up_to = |most: u32| {
                let number = if long {
                    most.min(room)
                } else {
                    1 + numbers.below(most.min(room))
                };
                room /= number;
                number
            };
            let shape = if image {
                let pixels = up_to(1024);
                TensorShape::Im2col {
                    channels: row,
                    pixels,
                }
            } else {
                let mut size = [row, 1, 1, 1, 1];
                // In turns the first to have a choice.
                for next in 0..4 {
                    size[1 + (at / 8 + next) % 4] = up_to(256);
                }
                let mut strides = [1; 5];
                for stride in &mut strides[1..] {
                    *stride += numbers.below(8);
                }
                TensorShape::Tile { size, strides }
            };
            let words = encode(element as u32, shape)?;
            Some(Sample {
                element,
                shape,
                words,
            })
        });
        made.collect()
    };
    let (boxes, images) = (sample(false), sample(true));
    if boxes.len().min(images.len()) < ENOUGH {
        return None;
    }
    let mut size = [None; 5];
    let mut strides = [None; 4];
    for (at, place) in size.iter_mut().enumerate() {
        // Elements have at most 8 bytes, so a row of 16 has an even number of them.
        let step = if at == 0 { 2 } else { 1 };
        *place = Some(find(&boxes, step, &|shape| match shape {
            TensorShape::Tile { size, .. } => size[at],
            TensorShape::Im2col { .. } => 0,
        })?);
    }
    for (at, place) in strides.iter_mut().enumerate() {
        *place = Some(find(&boxes, 1, &|shape| match shape {
            TensorShape::Tile { strides, .. } => strides[at + 1],
            TensorShape::Im2col { .. } => 0,
        })?);
    }
    let image = |step, of: fn(u32, u32) -> u32| {
        find(&images, step, &move |shape| match shape {
            TensorShape::Im2col { channels, pixels } => of(channels, pixels),
            TensorShape::Tile { .. } => 0,
        })
    };
    let channels = image(2, |channels, _| channels)?;
    let pixels = image(1, |_, pixels| pixels)?;
    let all: Vec<&Sample> = boxes.iter().chain(&images).collect();
    let element = pieces(&all)?;
    let (mut known, mut sizes) = (0, 0);
    for sample in &all {
        let number = number_of(&element, &sample.words);
        known |= 1 << number;
        sizes |= u64::from(ELEMENTS[sample.element]) << (2 * number);
    }
    let agree = |sample: &&&Sample| {
        let number = number_of(&element, &sample.words);
        sizes >> (2 * number) & 3 == u64::from(ELEMENTS[sample.element])
    };
    if all.iter().filter(agree).count() < all.len() {
        return None;
    }
    Some(TensorLayout {
        size: size.map(Option::unwrap_or_default),
        strides: strides.map(Option::unwrap_or_default),
        channels,
        pixels,
        element,
        known,
        sizes,
    })
}

/// Where the number `of` a shape stands, as it is or less one step.
fn find(samples: &[Sample], step: u32, of: &dyn Fn(TensorShape) -> u32) -> Option<TensorField> {
    let most = samples.iter().map(|sample| of(sample.shape)).max()?;
    [step, 0].into_iter().find_map(|bias| {
        let count = u32::BITS - ((most - bias) / step).leading_zeros();
        let mut places = (0..TENSOR_MAP_WORDS as u32 * 64).map(|first| TensorBits { first, count });
        let bits = places.find(|bits| {
            bits.first % 64 + count <= 64
                && samples.iter().all(|sample| {
                    let number = taken(*bits, &sample.words) * step + bias;
                    number == of(sample.shape)
                })
        })?;
        Some(TensorField { bits, step, bias })
    })
}

/// The bits that tell types from each other and nothing else.
fn pieces(samples: &[&Sample]) -> Option<[TensorBits; 5]> {
    let bit = |sample: &Sample, at: u32| sample.words[at as usize / 64] >> (at % 64) & 1;
    let tells = |at: &u32| {
        let mut of_type = [None; ELEMENTS.len()];
        let alone = samples.iter().all(|sample| {
            let seen = bit(sample, *at);
            *of_type[sample.element].get_or_insert(seen) == seen
        });
        let mut seen = of_type.iter().flatten();
        alone
            && seen
                .next()
                .is_some_and(|first| seen.any(|other| other != first))
    };
    let mut pieces = [TensorBits::default(); 5];
    let bits = (0..TENSOR_MAP_WORDS as u32 * 64).filter(tells);
    for (at, first) in bits.enumerate() {
        *pieces.get_mut(at)? = TensorBits { first, count: 1 };
    }
    Some(pieces)
}

fn number_of(pieces: &[TensorBits; 5], words: &Words) -> u32 {
    let numbers = pieces.iter().enumerate();
    numbers.map(|(at, bits)| taken(*bits, words) << at).sum()
}

fn taken(bits: TensorBits, words: &Words) -> u32 {
    let mask = (1u64 << bits.count) - 1;
    (words[bits.first as usize / 64] >> (bits.first % 64) & mask) as u32
}

/// The same numbers each time (xorshift), so that a driver is understood always or never.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) % u64::from(most)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(words: &mut Words, at: usize, number: u32) {
        words[at / 64] |= u64::from(number) << (at % 64);
    }

    /// Numbers of types as the H200's driver has them: four bits, and one that is apart.
    const TYPES: [u32; 13] = [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 7 | 0x200, 8 | 0x200];

    /// Places as the H200's driver has them, and a sum of bytes that looks like a box if all others
    /// are 1.
    fn encoded(element: u32, shape: TensorShape) -> Option<Words> {
        let mut words = [0; TENSOR_MAP_WORDS];
        put(&mut words, 71, TYPES[element as usize]);
        let mut bytes = 1 << ELEMENTS[element as usize];
        match shape {
            TensorShape::Tile { size, strides } => {
                for (at, (size, stride)) in size.into_iter().zip(strides).enumerate() {
                    put(&mut words, 440 + 8 * at, size - 1);
                    put(&mut words, 416 + 3 * at, stride - 1);
                    bytes *= u64::from(size.div_ceil(stride));
                }
            }
            TensorShape::Im2col { channels, pixels } => {
                put(&mut words, 440, channels - 1);
                put(&mut words, 480, pixels - 1);
                bytes *= u64::from(channels * pixels);
            }
        }
        if bytes > 100 << 10 {
            return None;
        }
        words[8] = bytes & 0xffff_ffff;
        Some(words)
    }

    #[test]
    fn finds_each_number() {
        let layout = learn(&mut encoded).unwrap();
        let field = |first, count, step, bias| TensorField {
            bits: TensorBits { first, count },
            step,
            bias,
        };
        // The lowest bit of a row's number is always set.
        let mut size = [0, 1, 2, 3, 4].map(|at| field(440 + 8 * at, 8, 1, 1));
        size[0] = field(441, 7, 2, 2);
        assert_eq!(layout.size, size);
        assert_eq!(
            layout.strides,
            [1, 2, 3, 4].map(|at| field(416 + 3 * at, 3, 1, 1))
        );
        assert_eq!(layout.channels, field(441, 7, 2, 2));
        assert_eq!(layout.pixels, field(480, 10, 1, 1));
        assert_eq!(layout.element.map(|bits| bits.first), [71, 72, 73, 74, 80]);
        for (element, size) in ELEMENTS.into_iter().enumerate() {
            let shape = TensorShape::Im2col {
                channels: 16,
                pixels: 1,
            };
            let number = number_of(&layout.element, &encoded(element as u32, shape).unwrap());
            assert_eq!(layout.known >> number & 1, 1);
            assert_eq!(layout.sizes >> (2 * number) & 3, u64::from(size));
        }
        assert_eq!(layout.known.count_ones(), 13);
    }

    #[test]
    fn nothing_is_guessed() {
        assert_eq!(learn(&mut |_, _| None), None, "a driver that makes none");
        let tiles = |element, shape| {
            let tile = matches!(shape, TensorShape::Tile { .. });
            encoded(element, shape).filter(|_| tile)
        };
        assert_eq!(learn(&mut { tiles }), None, "a driver without images");
        let mixed = |element, shape| {
            encoded(element, shape).map(|w| w.map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        };
        assert_eq!(learn(&mut { mixed }), None, "a driver that hides them");
        let same = |_, shape| encoded(0, shape);
        assert_eq!(learn(&mut { same }), None, "types that are not told");
    }
}
