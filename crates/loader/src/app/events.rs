//! Events of an application: handed on while there is room for them, and counted where there was
//! none. What was lost is said in the end: [`super::ends`].

use warpbpf_tool::Message;
use warpbpf_wire::{PRINTK, SharedError};

use super::agent::Agent;
use crate::kernel::Tell;
use crate::objects::sink::Sink;

impl Agent {
    /// Hands on events while there is room for them. True if some came.
    pub(super) fn take_events(&mut self, tell: Tell) -> bool {
        for (map, queue) in &mut self.queues {
            if let Some(sink) = self.offer.sinks.get(*map as usize) {
                queue.drain(sink);
            }
        }
        let (offer, queues, damaged) = (&self.offer, &mut self.queues, &mut self.damaged);
        let mut came = false;
        self.contexts.retain_mut(|(context, shared)| {
            let first = context.number * context.cpus;
            let taken = shared.events(|event| {
                if event.map == PRINTK {
                    if let Some(message) = Message::read(&offer.object, event.payload) {
                        tell(&message.to_string());
                    }
                    return;
                }
                let Some(sink) = offer.sinks.get(event.map as usize) else {
                    return;
                };
                if !matches!(sink, Sink::Nowhere) {
                    let queue = queues.entry(event.map).or_default();
                    // A tool has buffers for so many CPUs as it was told of.
                    let cpu = (first + event.shard) % offer.cpus.max(1);
                    queue.push(sink, cpu, event.payload);
                }
            });
            match taken {
                Ok(count) => {
                    came |= count != 0;
                    true
                }
                // What lies behind a damaged chunk is still good.
                Err(error @ SharedError::Record { .. }) => {
                    if !std::mem::replace(damaged, true) {
                        tell(&error.to_string());
                    }
                    came = true;
                    true
                }
                Err(error) => {
                    tell(&error.to_string());
                    false
                }
            }
        });
        if !came && self.connection.is_none() {
            self.tell_dropped(tell);
        }
        came
    }

    /// Says, once, what did not even find room to wait.
    fn tell_dropped(&mut self, tell: Tell) {
        for (map, queue) in &mut self.queues {
            let lost = queue.untold();
            if let (Some(name), 1..) = (self.offer.gathered.names.get(*map as usize), lost) {
                tell(&format!(
                    "map `{name}`: {lost} events were lost: the tool did not read them in time"
                ));
            }
        }
    }
}
