//! The longest way through a graph of paths with loops that something counts.
//!
//! A strongly connected part in which a token is taken and never made anew is passed through with
//! at most so many takings. Between two of them, and before the first and after the last, the way
//! lies in the part without the nodes that take it: there the same question is asked again, of
//! smaller parts. A part without such a token may not end. This is the lexicographic argument for
//! termination, with numbers.

use crate::event::{Event, Token};

/// A step of some path.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Index of the node it starts from.
    pub from: u32,
    /// Index of the node it leads to.
    pub to: u32,
    /// Instructions between.
    pub cost: u64,
}

/// A graph of paths. Node 0 is the start.
#[derive(Debug)]
pub struct Graph {
    marks: Vec<Event>,
    /// Instructions after the node on paths that end there.
    lasts: Vec<u64>,
    starts: Vec<u32>,
    edges: Vec<Edge>,
    /// The edges by target.
    arrivals: Vec<Edge>,
}

/// A node of a part that nothing counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unbounded(pub u32);

/// Nodes under consideration: those with this level.
struct Part {
    members: Vec<u32>,
    /// For each member, by its place in `members`: its component. Components are numbered so that
    /// edges lead to smaller ones.
    component: Vec<u32>,
    /// The longest way inside each.
    inside: Vec<u64>,
}

impl Graph {
    /// A graph of nodes with these marks.
    pub fn new(marks: Vec<Event>, lasts: Vec<u64>, mut edges: Vec<Edge>) -> Graph {
        edges.sort_unstable_by_key(|edge| edge.from);
        let mut starts = vec![0u32; marks.len() + 1];
        for edge in &edges {
            starts[edge.from as usize + 1] += 1;
        }
        for i in 0..marks.len() {
            starts[i + 1] += starts[i];
        }
        let mut arrivals = edges.clone();
        arrivals.sort_unstable_by_key(|edge| edge.to);
        Graph {
            arrivals,
            marks,
            lasts,
            starts,
            edges,
        }
    }

    fn edges(&self, node: u32) -> &[Edge] {
        let node = node as usize;
        &self.edges[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// The most instructions on a way from the start to an end, if `trips` says how often each
    /// token can be taken.
    ///
    /// # Errors
    /// [`Unbounded`] with a node of a loop that nothing counts.
    pub fn longest(&self, trips: &dyn Fn(Token) -> u64) -> Result<u64, Unbounded> {
        // A node's place among the members of the part that is looked at, or NONE.
        let mut place = vec![NONE; self.marks.len()];
        let all: Vec<u32> = (0..self.marks.len() as u32).collect();
        let part = self.part(all, &mut place, trips)?;
        let best = self.best(&part, &mut place, |node| Some(self.lasts[node as usize]));
        Ok(best.first().copied().flatten().unwrap_or(0))
    }

    /// Divides the members into components, with the longest way inside each.
    fn part(
        &self,
        members: Vec<u32>,
        place: &mut [u32],
        trips: &dyn Fn(Token) -> u64,
    ) -> Result<Part, Unbounded> {
        enter(&members, place);
        let (component, count) = self.components(&members, place);
        let mut groups: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (i, node) in members.iter().enumerate() {
            groups[component[i] as usize].push(*node);
        }
        leave(&members, place);
        let mut inside = vec![0; count];
        for (group, inside) in groups.into_iter().zip(&mut inside) {
            let looped =
                group.len() > 1 || self.edges(group[0]).iter().any(|edge| edge.to == group[0]);
            if looped {
                *inside = self.round_and_round(group, place, trips)?;
            }
        }
        Ok(Part {
            members,
            component,
            inside,
        })
    }

    /// The longest way inside a strongly connected part.
    fn round_and_round(
        &self,
        group: Vec<u32>,
        place: &mut [u32],
        trips: &dyn Fn(Token) -> u64,
    ) -> Result<u64, Unbounded> {
        let mark = |node: &u32| self.marks[*node as usize];
        let mut fresh: Vec<Token> = Vec::new();
        let mut took: Vec<Token> = Vec::new();
        for event in group.iter().map(mark) {
            match event {
                Event::Fresh(token) if !fresh.contains(&token) => fresh.push(token),
                Event::Took(token) if !took.contains(&token) => took.push(token),
                _ => {}
            }
        }
        let counting = took
            .into_iter()
            .filter(|token| !fresh.contains(token))
            .min_by_key(|token| trips(*token));
        let Some(token) = counting else {
            return Err(Unbounded(group[0]));
        };
        let count = trips(token);
        enter(&group, place);
        let mut enters: Vec<u32> = group.clone();
        enters.retain(|node| {
            let first = self.arrivals.partition_point(|edge| edge.to < *node);
            let mut arrivals = self.arrivals[first..]
                .iter()
                .take_while(|edge| edge.to == *node);
            *node == 0 || arrivals.any(|edge| place[edge.from as usize] == NONE)
        });
        leave(&group, place);
        let (takers, rest): (Vec<u32>, Vec<u32>) = group
            .into_iter()
            .partition(|node| mark(node) == Event::Took(token));
        let part = self.part(rest, place, trips)?;
        let anywhere = self.best(&part, place, |_| Some(0));
        let is_taker = |node: u32| takers.binary_search(&node).is_ok();
        let to_taker = self.best(&part, place, |node| {
            let edges = self.edges(node).iter().filter(|edge| is_taker(edge.to));
            edges.map(|edge| edge.cost).max()
        });
        enter(&part.members, place);
        let start = enters
            .iter()
            .filter_map(|node| match place[*node as usize] {
                // It takes the token itself.
                NONE => Some(0),
                at => to_taker[at as usize],
            });
        let start = start.max().unwrap_or(0);
        // From a taker: to the next one, and to wherever the way ends.
        let from_takers = |best: &[Option<u64>], other_takers: bool| {
            let steps = takers.iter().flat_map(|taker| self.edges(*taker));
            let ways = steps.filter_map(|edge| match place[edge.to as usize] {
                NONE => (other_takers && is_taker(edge.to)).then_some(edge.cost),
                at => best[at as usize].map(|rest| rest.saturating_add(edge.cost)),
            });
            ways.max().unwrap_or(0)
        };
        let round = from_takers(&to_taker, true);
        let end = from_takers(&anywhere, false);
        leave(&part.members, place);
        let straight = anywhere.iter().flatten().copied().max().unwrap_or(0);
        if count == 0 {
            return Ok(straight);
        }
        let rounds = round.saturating_mul(count - 1);
        Ok(straight.max(start.saturating_add(rounds).saturating_add(end)))
    }

    /// For each member, the longest way from it to a node that `last` gives a cost, that cost
    /// included.
    fn best(
        &self,
        part: &Part,
        place: &mut [u32],
        last: impl Fn(u32) -> Option<u64>,
    ) -> Vec<Option<u64>> {
        enter(&part.members, place);
        let mut order: Vec<u32> = (0..part.members.len() as u32).collect();
        order.sort_unstable_by_key(|i| part.component[*i as usize]);
        let mut best: Vec<Option<u64>> = vec![None; part.inside.len()];
        for i in order {
            let (node, own) = (part.members[i as usize], part.component[i as usize]);
            let mut way = last(node);
            for edge in self.edges(node) {
                let at = place[edge.to as usize];
                if at == NONE || part.component[at as usize] == own {
                    continue;
                }
                let further = best[part.component[at as usize] as usize];
                way = way.max(further.map(|further| further.saturating_add(edge.cost)));
            }
            let inside = part.inside[own as usize];
            let way = way.map(|way| way.saturating_add(inside));
            best[own as usize] = best[own as usize].max(way);
        }
        leave(&part.members, place);
        let of_member = |component: &u32| best[*component as usize];
        part.component.iter().map(of_member).collect()
    }

    /// Strongly connected components (Tarjan), numbered so that edges lead to smaller numbers.
    fn components(&self, members: &[u32], place: &[u32]) -> (Vec<u32>, usize) {
        let len = members.len();
        let mut number = vec![NONE; len];
        let mut low = vec![0; len];
        let mut component = vec![NONE; len];
        let (mut stack, mut count, mut next) = (Vec::new(), 0, 0);
        // Members whose edges are being looked at, and which edge is next.
        let mut calls: Vec<(usize, usize)> = Vec::new();
        for root in 0..len {
            if number[root] != NONE {
                continue;
            }
            let mut begin = Some(root);
            loop {
                if let Some(at) = begin.take() {
                    (number[at], low[at]) = (next, next);
                    next += 1;
                    stack.push(at);
                    calls.push((at, 0));
                }
                let Some((at, edge)) = calls.last_mut() else {
                    break;
                };
                let at = *at;
                if let Some(next_edge) = self.edges(members[at]).get(*edge) {
                    *edge += 1;
                    let to = place[next_edge.to as usize];
                    if to == NONE {
                        continue;
                    }
                    let to = to as usize;
                    if number[to] == NONE {
                        begin = Some(to);
                    } else if component[to] == NONE {
                        low[at] = low[at].min(number[to]);
                    }
                    continue;
                }
                calls.pop();
                if let Some((caller, _)) = calls.last() {
                    low[*caller] = low[*caller].min(low[at]);
                }
                if low[at] == number[at] {
                    while let Some(top) = stack.pop() {
                        component[top] = count;
                        if top == at {
                            break;
                        }
                    }
                    count += 1;
                }
            }
        }
        (component, count as usize)
    }
}

const NONE: u32 = u32::MAX;

/// Notes the place of each member.
fn enter(members: &[u32], place: &mut [u32]) {
    for (i, node) in members.iter().enumerate() {
        place[*node as usize] = i as u32;
    }
}

fn leave(members: &[u32], place: &mut [u32]) {
    for node in members {
        place[*node as usize] = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: u32, to: u32, cost: u64) -> Edge {
        Edge { from, to, cost }
    }

    /// A node per mark; ends only at the last, with 1 more.
    fn graph(marks: &[Event], edges: &[Edge]) -> Graph {
        let mut lasts = vec![0; marks.len()];
        if let Some(last) = lasts.last_mut() {
            *last = 1;
        }
        Graph::new(marks.to_vec(), lasts, edges.to_vec())
    }

    const OUTER: Token = Token::MayGoto(0);
    const INNER: Token = Token::MayGoto(1);

    fn trips(outer: u64, inner: u64) -> impl Fn(Token) -> u64 {
        move |token| if token == OUTER { outer } else { inner }
    }

    #[test]
    fn without_loops_the_longest_way_counts() {
        let marks = [Event::Root, Event::Way, Event::Way, Event::Way];
        let g = graph(
            &marks,
            &[edge(0, 1, 5), edge(0, 2, 9), edge(1, 3, 5), edge(2, 3, 2)],
        );
        assert_eq!(g.longest(&trips(0, 0)), Ok(12));
    }

    #[test]
    fn a_loop_is_passed_as_often_as_its_token_says() {
        // Head 1, taker 2, and back; then out to 3. The entry to the first taker, rounds, and the
        // rest.
        let marks = [Event::Root, Event::Way, Event::Took(OUTER), Event::Way];
        let g = graph(
            &marks,
            &[edge(0, 1, 100), edge(1, 2, 3), edge(2, 1, 7), edge(1, 3, 1)],
        );
        assert_eq!(g.longest(&trips(0, 0)), Ok(102));
        assert_eq!(g.longest(&trips(1, 0)), Ok(100 + 10 + 2));
        assert_eq!(g.longest(&trips(50, 0)), Ok(100 + 500 + 2));
    }

    #[test]
    fn inner_loops_count_for_each_round_of_the_outer_one() {
        // 1 is the outer head and 2 its taker; 3 makes the inner token anew, 4 is the inner head, 5
        // its taker.
        let marks = [
            Event::Root,
            Event::Way,
            Event::Took(OUTER),
            Event::Fresh(INNER),
            Event::Way,
            Event::Took(INNER),
            Event::Way,
        ];
        let g = graph(
            &marks,
            &[
                edge(0, 1, 0),
                edge(1, 2, 1),
                edge(2, 3, 1),
                edge(3, 4, 1),
                edge(4, 5, 1),
                edge(5, 4, 1),
                edge(4, 1, 1),
                edge(1, 6, 1),
            ],
        );
        // A round of the outer loop: 4 around, and the inner part 2 * 10.
        assert_eq!(g.longest(&trips(5, 10)), Ok(5 * 24 + 2));
    }

    #[test]
    fn a_token_made_anew_in_the_loop_counts_nothing() {
        let marks = [
            Event::Root,
            Event::Fresh(INNER),
            Event::Took(INNER),
            Event::Way,
        ];
        let g = graph(
            &marks,
            &[edge(0, 1, 1), edge(1, 2, 1), edge(2, 1, 1), edge(2, 3, 1)],
        );
        assert_eq!(g.longest(&trips(5, 5)), Err(Unbounded(1)));
    }
}
