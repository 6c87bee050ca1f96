//! `tex`, `tld4`, `suld`, `sust`, `txq`, `suq`: with texture and surface objects, whose numbers are
//! in registers.

use warpbpf_ptx::ast::{Instruction, Operand};
use warpbpf_ptx::eval::Ty;

use super::decoder::{Decoded, FunctionDecoder, bits_of, invalid, unsupported};
use super::operand::operand;
use crate::op::Op;
use crate::op::image::{Boundary, Geometry, ImageAccess, ImageOp, Question};
use crate::op::operand::{Address, NOWHERE, Row, Space};

fn geometry(modifier: &str) -> Option<Geometry> {
    let (layered, dimensions) = match modifier {
        "1d" => (false, 1),
        "2d" => (false, 2),
        "3d" => (false, 3),
        "a1d" => (true, 1),
        "a2d" => (true, 2),
        _ => return None,
    };
    Some(Geometry {
        dimensions,
        layered,
    })
}

fn op(object: Address, access: ImageAccess) -> Op {
    Op::Image(Box::new(ImageOp { object, access }))
}

fn four(rows: &[Row]) -> Decoded<[Row; 4]> {
    match *rows {
        [a, b, c, d] => Ok([a, b, c, d]),
        _ => invalid(format!("{} registers for 4 channels", rows.len())),
    }
}

impl<'a> FunctionDecoder<'_, '_, 'a> {
    /// `[object, coordinates]`
    fn object_at(
        &mut self,
        place: &Operand<'a>,
        ty: Option<Ty>,
        wanted: usize,
    ) -> Decoded<(Address, Box<[Row]>)> {
        let ((_, object), rest) = self.bracketed(place, Space::Generic)?;
        let coordinates = match rest {
            [coordinates] => self.rows(coordinates, ty, false)?,
            [_, _] => return unsupported("a sampler of its own (`texmode_independent`)"),
            _ => return invalid("the coordinates are missing"),
        };
        // Vectors have 1, 2 or 4 elements: the last may be padding.
        if coordinates.len() < wanted {
            return invalid(format!(
                "{} coordinates where {wanted} are wanted",
                coordinates.len()
            ));
        }
        Ok((object, coordinates))
    }

    pub(super) fn texture(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let (level, rest) = match &i.modifiers[..] {
            [how @ ("base" | "level" | "grad"), rest @ ..] => (*how, rest),
            rest => ("", rest),
        };
        let [geometry_name, "v4", result, coordinate] = *rest else {
            return unsupported(rest.join("."));
        };
        let Some(geometry) = geometry(geometry_name) else {
            return unsupported(format!("geometry `.{geometry_name}`"));
        };
        let (integers, ty) = match coordinate {
            "s32" => (true, Ty::S32),
            "f32" => (false, Ty::F32),
            _ => return unsupported(format!("coordinates of type `.{coordinate}`")),
        };
        if !matches!(result, "f32" | "s32" | "u32") {
            return unsupported(format!("result of type `.{result}`"));
        }
        // There are no mipmaps here: what names a level changes nothing, but has operands.
        let extra = match level {
            "level" => 1,
            "grad" => 2,
            _ => 0,
        };
        if i.operands.len() > 2 + extra {
            return unsupported("offsets and depth comparison");
        }
        if matches!(operand(i, 0)?, Operand::Pair(..)) {
            return unsupported("the predicate of sparse textures");
        }
        let d = four(&self.rows(operand(i, 0)?, None, true)?)?;
        let wanted = geometry.dimensions + usize::from(geometry.layered);
        let (object, coordinates) = self.object_at(operand(i, 1)?, Some(ty), wanted)?;
        let access = ImageAccess::Sample {
            d,
            geometry,
            coordinates,
            integers,
        };
        Ok(op(object, access))
    }

    pub(super) fn gather(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let [component, "2d", "v4", "f32" | "s32" | "u32", "f32"] = i.modifiers[..] else {
            return unsupported("");
        };
        let Some(component) = ["r", "g", "b", "a"].iter().position(|&c| c == component) else {
            return unsupported(format!("component `.{component}`"));
        };
        if i.operands.len() > 2 {
            return unsupported("offsets and depth comparison");
        }
        if matches!(operand(i, 0)?, Operand::Pair(..)) {
            return unsupported("the predicate of sparse textures");
        }
        let d = four(&self.rows(operand(i, 0)?, None, true)?)?;
        let (object, coordinates) = self.object_at(operand(i, 1)?, Some(Ty::F32), 2)?;
        let access = ImageAccess::Gather {
            d,
            component,
            coordinates: [coordinates[0], coordinates[1]],
        };
        Ok(op(object, access))
    }

    pub(super) fn surface_load(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        self.surface(i, true)
    }

    pub(super) fn surface_store(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        self.surface(i, false)
    }

    fn surface(&mut self, i: &Instruction<'a>, load: bool) -> Decoded<Op> {
        let ["b", geometry_name, rest @ ..] = &i.modifiers[..] else {
            return unsupported("formatted access");
        };
        let Some(geometry) = geometry(geometry_name) else {
            return unsupported(format!("geometry `.{geometry_name}`"));
        };
        let (mut bytes, mut lanes, mut boundary) = (0, 1, None);
        for &modifier in rest {
            match modifier {
                "v2" => lanes = 2,
                "v4" => lanes = 4,
                "b8" | "b16" | "b32" | "b64" => bytes = bits_of(modifier) / 8,
                "trap" => boundary = Some(Boundary::Trap),
                "clamp" => boundary = Some(Boundary::Clamp),
                "zero" => boundary = Some(Boundary::Zero),
                "ca" | "cg" | "cs" | "cv" | "wb" | "wt" => {}
                _ => return unsupported(format!("modifier `.{modifier}`")),
            }
        }
        let Some(boundary) = boundary.filter(|_| bytes > 0) else {
            return invalid("the type or what happens beyond the ends is missing");
        };
        if bytes * lanes > 16 {
            return invalid(format!("an access of {} bytes", bytes * lanes));
        }
        let (data, place) = if load { (0, 1) } else { (1, 0) };
        let rows = self.rows(operand(i, data)?, None, load)?;
        if rows.len() != lanes as usize {
            return invalid(format!("{} registers for {lanes} elements", rows.len()));
        }
        let wanted = geometry.dimensions + usize::from(geometry.layered);
        let (object, coordinates) = self.object_at(operand(i, place)?, None, wanted)?;
        let access = ImageAccess::Surface {
            load,
            rows,
            bytes,
            geometry,
            coordinates,
            boundary,
        };
        Ok(op(object, access))
    }

    pub(super) fn image_query(&mut self, i: &Instruction<'a>) -> Decoded<Op> {
        let surface = i.opcode == "suq";
        let modifiers = match &i.modifiers[..] {
            // The only level there is: its number is not looked at.
            ["level", rest @ ..] if !surface => rest,
            rest => rest,
        };
        let [what, "b32"] = *modifiers else {
            return unsupported("");
        };
        let what = match what {
            "width" => Question::Size(0),
            "height" => Question::Size(1),
            "depth" => Question::Size(2),
            "array_size" => Question::Layers,
            "num_mipmap_levels" if !surface => Question::Levels,
            "num_samples" if !surface => Question::Samples,
            "normalized_coords" if !surface => Question::Normalised,
            _ => return unsupported(format!("query `.{what}`")),
        };
        let d = match operand(i, 0)? {
            Operand::Name("_") => NOWHERE,
            other => self.destination(other)?,
        };
        let ((_, object), _) = self.bracketed(operand(i, 1)?, Space::Generic)?;
        Ok(op(object, ImageAccess::Query { d, what, surface }))
    }
}
