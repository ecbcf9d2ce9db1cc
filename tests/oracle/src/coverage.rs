//! How often each cell was hit, and the table that says so.

use std::collections::HashMap;

use comfy_table::{Table, presets};
use rand::Rng;

use crate::call::Service;
use crate::shape::{Cell, Shape};

/// Counters per cell.
#[derive(Debug)]
pub struct Coverage {
    cells: Vec<Cell>,
    places: HashMap<Cell, usize>,
    hits: Vec<u64>,
    extra: HashMap<&'static str, u64>,
}

impl Coverage {
    /// Everything of these services at zero; `extra` names what else must happen.
    pub fn new(services: &[Service], extra: &[&'static str]) -> Self {
        let mut cells = Cell::all();
        cells.retain(|cell| services.contains(&cell.service));
        Self {
            places: cells.iter().copied().zip(0..).collect(),
            hits: vec![0; cells.len()],
            cells,
            extra: extra.iter().map(|name| (*name, 0)).collect(),
        }
    }

    /// One more of a cell. A cell that is none of the table's is a fault of the generator.
    pub fn hit(&mut self, cell: Cell) {
        match self.places.get(&cell) {
            Some(place) => self.hits[*place] += 1,
            None => panic!("no such cell: {cell:?}"),
        }
    }

    /// One more of something else.
    pub fn note(&mut self, name: &'static str) {
        *self.extra.entry(name).or_default() += 1;
    }

    /// A cell of a service that was never hit, or least among some drawn at random.
    ///
    /// # Panics
    ///
    /// The service was not among those given to [`new`](Self::new).
    pub fn wanted(&self, rng: &mut impl Rng, service: Service) -> Cell {
        // They were made in the order of services.
        let first = self.cells.partition_point(|cell| cell.service < service);
        let end = self.cells.partition_point(|cell| cell.service <= service);
        if rng.random() {
            // One that was never hit, from a place at random on.
            let turn = rng.random_range(first..end);
            let never = (turn..end)
                .chain(first..turn)
                .find(|place| self.hits[*place] == 0);
            if let Some(place) = never {
                return self.cells[place];
            }
        }
        let drawn = (0..6).map(|_| rng.random_range(first..end));
        let least = drawn.min_by_key(|place| self.hits[*place]);
        self.cells[least.unwrap_or(first)]
    }

    /// Number of cells of a service that were never hit.
    pub fn missing_of(&self, service: Service) -> usize {
        let cells = self.cells.iter().zip(&self.hits);
        cells
            .filter(|(cell, hits)| cell.service == service && **hits == 0)
            .count()
    }

    /// Cells and other things that never happened.
    pub fn missing(&self) -> Vec<String> {
        let mut missing: Vec<String> = self
            .cells
            .iter()
            .zip(&self.hits)
            .filter(|(_, hits)| **hits == 0)
            .map(|(cell, _)| format!("{cell:?}"))
            .collect();
        let extra = self.extra.iter().filter(|(_, hits)| **hits == 0);
        missing.extend(extra.map(|(name, _)| (*name).to_owned()));
        missing.sort_unstable();
        missing
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.cells.len() + self.extra.len()
    }

    /// Never: the axes are not empty.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// A row per service and operation, a column per shape; in it the cells hit of those that exist (flags, interface,
    /// wrap), and the WQEs.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        let mut header = vec!["service".to_owned(), "operation".to_owned()];
        header.extend(Shape::ALL.iter().map(ToString::to_string));
        header.push("wraps".to_owned());
        table.set_header(header);
        for service in Service::ALL {
            if !self.cells.iter().any(|cell| cell.service == service) {
                continue;
            }
            for opcode in service.opcodes() {
                let row = |wanted: &dyn Fn(&Cell) -> bool| {
                    let mut hit = 0;
                    let mut all = 0;
                    let mut wqes = 0;
                    for (cell, hits) in self.cells.iter().zip(&self.hits) {
                        if cell.service == service && cell.opcode == *opcode && wanted(cell) {
                            all += 1;
                            hit += u64::from(*hits > 0);
                            wqes += hits;
                        }
                    }
                    match all {
                        0 => "-".to_owned(),
                        _ => format!("{hit}/{all} {wqes}"),
                    }
                };
                let mut cells = vec![format!("{service:?}"), format!("{opcode:?}")];
                cells.extend(
                    Shape::ALL
                        .iter()
                        .map(|shape| row(&|cell: &Cell| cell.shape == *shape)),
                );
                cells.push(row(&|cell: &Cell| cell.wraps));
                table.add_row(cells);
            }
        }
        let mut extra: Vec<_> = self.extra.iter().collect();
        extra.sort_unstable();
        let extra: Vec<String> = extra
            .iter()
            .map(|(name, hits)| format!("{name} {hits}"))
            .collect();
        format!(
            "cells hit / cells that exist (flags x interface x wrap), and WQEs:\n{table}\nalso: {}\n",
            extra.join(", ")
        )
    }
}
