//! Textures and surfaces: memory that is read and written by coordinates. An object is a number
//! that a kernel gets as a parameter; what it stands for is kept here.
//!
//! # What is exact and what is not
//! Points are exact, and so are addressing modes, borders and conversions to normalised numbers.
//! The weights of linear filters have 8 bits and are those of the H200, measured; the weighted sum
//! is exact here before it is rounded to f32, where a GPU has roundings of its own: results agree
//! wherever the sum has few bits. A texture of one dimension with a linear filter ignores the modes
//! of the others, where the H200 mixes in half of the border if the second says so.

mod gather;
mod lane;
pub(crate) mod object;
mod sample;
mod surface;

use std::sync::Arc;

use crate::block::Env;
use crate::image::lane::Lane;
use crate::image::object::Object;
use crate::op::image::{Geometry, ImageAccess, ImageOp, Question};
use crate::position::Position;
use crate::trap::Exec;
use crate::warp::{Warp, lanes};
use crate::worker::Worker;
use object::Image;
use object::Texture;

impl Worker<'_> {
    pub(crate) fn image(
        &mut self,
        env: &Env,
        warp: &Warp,
        at: Position,
        active: u32,
        op: &ImageOp,
    ) -> Exec<()> {
        self.view.refresh();
        for lane in lanes(active) {
            let object = op.object.of(warp, at, lane);
            let lane = Lane {
                env,
                warp,
                at,
                lane,
            };
            match &op.access {
                ImageAccess::Sample {
                    d,
                    geometry,
                    coordinates,
                    integers,
                } => {
                    let texture = self.texture(&lane, object)?;
                    fits(&lane, &texture.image, *geometry, "texture")?;
                    let texel = self.sample(&lane, &texture, *geometry, coordinates, *integers)?;
                    for (&d, value) in d.iter().zip(texel) {
                        lane.put(d, u64::from(value));
                    }
                }
                ImageAccess::Gather {
                    d,
                    component,
                    coordinates,
                } => {
                    let texture = self.texture(&lane, object)?;
                    let geometry = Geometry {
                        dimensions: 2,
                        layered: false,
                    };
                    fits(&lane, &texture.image, geometry, "texture")?;
                    let four = self.gather(&lane, &texture, *component, *coordinates)?;
                    for (&d, value) in d.iter().zip(four) {
                        lane.put(d, u64::from(value));
                    }
                }
                ImageAccess::Surface {
                    load,
                    rows,
                    bytes,
                    geometry,
                    coordinates,
                    boundary,
                } => {
                    let image = self.surface(&lane, object)?;
                    fits(&lane, &image, *geometry, "surface")?;
                    let place = surface::Place {
                        geometry: *geometry,
                        coordinates,
                        boundary: *boundary,
                        load: *load,
                    };
                    self.surface_access(&lane, &image, place, rows, *bytes)?;
                }
                ImageAccess::Query { d, what, surface } => {
                    let value = if *surface {
                        answer(*what, &*self.surface(&lane, object)?, false)
                    } else {
                        let texture = self.texture(&lane, object)?;
                        answer(*what, &texture.image, texture.normalised)
                    };
                    lane.put(*d, u64::from(value));
                }
            }
        }
        Ok(())
    }

    fn texture(&mut self, lane: &Lane<'_>, object: u64) -> Exec<Arc<Texture>> {
        match self.images.get(object) {
            Some(Object::Texture(texture)) => Ok(Arc::clone(texture)),
            Some(Object::Surface(_)) => {
                Err(lane.wrong(format!("object {object:#x} is a surface, not a texture")))
            }
            None => Err(lane.wrong(format!("there is no texture object {object:#x}"))),
        }
    }

    fn surface(&mut self, lane: &Lane<'_>, object: u64) -> Exec<Arc<Image>> {
        match self.images.get(object) {
            Some(Object::Surface(image)) => Ok(Arc::clone(image)),
            Some(Object::Texture(_)) => {
                Err(lane.wrong(format!("object {object:#x} is a texture, not a surface")))
            }
            None => Err(lane.wrong(format!("there is no surface object {object:#x}"))),
        }
    }
}

fn answer(what: Question, image: &Image, normalised: bool) -> u32 {
    match what {
        Question::Size(dimension) => image.size[dimension],
        Question::Layers => image.layers,
        Question::Levels => 1,
        Question::Samples => 0,
        Question::Normalised => u32::from(normalised),
    }
}

/// The instruction's geometry must be the image's.
fn fits(lane: &Lane<'_>, image: &Image, geometry: Geometry, what: &str) -> Exec<()> {
    let own = Geometry {
        dimensions: image.dimensions(),
        layered: image.layers > 0,
    };
    if own == geometry {
        return Ok(());
    }
    Err(lane.wrong(format!(
        "`{}` access to a `{}` {what}",
        geometry.name(),
        own.name()
    )))
}
