//! Places where threads are in the kernel. Each place is stored once, with a number. Names are looked up only for output.

use std::{collections::HashMap, sync::Arc};

use cgscope_model::printable;

use cgscope_collect::{Failure, KernelSymbols};

/// The places by number, from 1 on.
#[derive(Debug, Default)]
pub(super) struct KernelPlaces {
    by_addresses: HashMap<Box<[u64]>, u32>,
    by_text: HashMap<ProcText, u32>,
    places: Vec<KernelPlace>,
    symbols: KernelSymbols,
}

/// The text of `/proc/PID/wchan` and `/proc/PID/stack`; empty if not read.
type ProcText = (Box<[u8]>, Box<[u8]>);

#[derive(Debug)]
enum KernelPlace {
    /// Return addresses, the innermost first.
    Addresses(Box<[u64]>),
    Text(ProcText),
}

impl KernelPlaces {
    /// Returns the number of a stack; 0 if the stack is empty.
    pub fn of_addresses(&mut self, addresses: &[u64]) -> u32 {
        if addresses.is_empty() {
            return 0;
        }
        if let Some(number) = self.by_addresses.get(addresses) {
            return *number;
        }
        let number = self.add(KernelPlace::Addresses(addresses.into()));
        self.by_addresses.insert(addresses.into(), number);
        number
    }

    /// Returns the number of a place read from `/proc`; 0 if there is none.
    pub fn of_text(&mut self, wchan: &[u8], stack: &[u8]) -> u32 {
        // A thread that is not blocked has the wchan `0`.
        let wchan = if wchan == b"0" { b"" } else { wchan };
        if wchan.is_empty() && stack.is_empty() {
            return 0;
        }
        let key: ProcText = (wchan.into(), stack.into());
        if let Some(number) = self.by_text.get(&key) {
            return *number;
        }
        let number = self.add(KernelPlace::Text(key.clone()));
        self.by_text.insert(key, number);
        number
    }

    fn add(&mut self, place: KernelPlace) -> u32 {
        self.places.push(place);
        self.places.len() as u32
    }

    fn get(&self, number: u32) -> Option<&KernelPlace> {
        self.places.get(number.checked_sub(1)? as usize)
    }

    /// Returns the function that a thread at this place is blocked in.
    pub fn wchan(&self, number: u32) -> Option<Arc<str>> {
        match self.get(number)? {
            KernelPlace::Addresses(stack) => self.symbols.wchan(stack).map(Into::into),
            KernelPlace::Text((wchan, _)) if wchan.is_empty() => None,
            KernelPlace::Text((wchan, _)) => Some(printable(&String::from_utf8_lossy(wchan))),
        }
    }

    /// Returns the functions from the outermost to the innermost, as psn prints them. A function without a name is `?`.
    pub fn kstack(&self, number: u32) -> Option<Arc<str>> {
        let functions: Vec<String> = match self.get(number)? {
            KernelPlace::Addresses(stack) => {
                let name = |address: &u64| self.symbols.caller(*address).unwrap_or("?").to_owned();
                if self.symbols.load().is_err() {
                    return None;
                }
                stack.iter().map(name).collect()
            }
            KernelPlace::Text((_, stack)) => functions(stack),
        };
        let functions: Vec<String> = functions.iter().rev().map(|name| format!("{name}()")).collect();
        (!functions.is_empty()).then(|| printable(&functions.join("->")))
    }

    /// Returns why addresses have no names, if there are addresses.
    pub fn nameless(&self) -> Option<Failure> {
        if self.by_addresses.is_empty() { None } else { self.symbols.load().err() }
    }
}

/// Parses the functions in `/proc/PID/stack`, whose lines are `[<0>] futex_wait_queue+0x61/0x90 [module]`.
fn functions(stack: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(stack);
    let line = |line: &str| {
        let function = line.split_once("] ")?.1;
        Some(function.split('+').next().unwrap_or(function).to_owned())
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_places_have_one_number() {
        let mut places = KernelPlaces::default();
        assert_eq!(places.of_addresses(&[]), 0);
        let first = places.of_addresses(&[1, 2]);
        assert_eq!(places.of_addresses(&[1, 3]), first + 1);
        assert_eq!(places.of_addresses(&[1, 2]), first);
        assert_eq!(places.of_text(b"0", b""), 0, "a thread that is not blocked has no place");
        let named = places.of_text(b"pipe_read", b"");
        assert_eq!(places.of_text(b"pipe_read", b""), named);
        assert_eq!(places.wchan(named).as_deref(), Some("pipe_read"));
        assert_eq!(places.kstack(named), None);
    }

    #[test]
    fn a_stack_is_printed_from_its_outermost_function_on() {
        let mut places = KernelPlaces::default();
        let stack = b"[<0>] futex_wait_queue+0x61/0x90\n[<0>] __futex_wait+0x14d/0x1c0 [a]\n[<0>] do_syscall_64+0x5d/0x90\n";
        let number = places.of_text(b"futex_wait_queue", stack);
        assert_eq!(
            places.kstack(number).as_deref(),
            Some("do_syscall_64()->__futex_wait()->futex_wait_queue()")
        );
        assert_eq!(places.kstack(0), None);
    }
}
