//! The loads, the limits under which they are recorded, and those that are simulated.

use super::super::{Kind, LOOP, Limit, REGULAR};

/// A load, the limit under which it is recorded, and those that are simulated.
pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) recorded: Limit,
    pub(super) simulated: &'static [Limit],
}

const fn of(milli: u64) -> Limit {
    Limit::of(milli)
}

const fn with_burst(milli: u64, burst_ms: u64) -> Limit {
    Limit { burst_ms, ..Limit::of(milli) }
}

/// A limit with a period of 50 ms.
const fn short(milli: u64) -> Limit {
    Limit { period_ms: 50, ..Limit::of(milli) }
}

const fn load(name: &'static str, args: &'static [&'static str]) -> Kind {
    Kind { name, program: None, args }
}

pub(super) const TWO_LOOPS: Kind = load("two busy loops", &["burn", "2", "60"]);
pub(super) const UNEVEN: Kind = load("uneven", &["requests", "uneven", "40000", "110000", "60"]);
pub(super) const RANDOM: Kind = load("random", &["requests", "random", "5000", "15000", "60"]);
pub(super) const CLOSED: Kind = load("closed", &["requests", "closed", "8000", "10000", "60"]);
/// Not every 150 ms, which would meet only two phases of a period: in four runs with a quota and a burst of just what a request needs, 0 to
/// 35 % of the periods were throttled.
pub(super) const BURSTS: Kind = load("regular, burst", &["requests", "regular", "45000", "153000", "60"]);
/// Bursts that are longer than the quota of a period of 50 ms.
const FREQUENT: Kind = load("regular, 50 ms periods", &["requests", "regular", "20000", "90000", "60"]);
/// The same, recorded with periods of 100 ms.
const OTHER_PERIOD: Kind = load("regular, other period", &["requests", "regular", "30000", "130000", "60"]);
pub(super) const CONVOY: Kind = load("lock convoy", &["convoy", "4", "2000", "4000", "60"]);

/// The options of ffmpeg before and after the number of its threads and the length of its work.
pub(super) const FFMPEG: [&str; 10] = [
    "-loglevel",
    "error",
    "-nostdin",
    "-f",
    "lavfi",
    "-i",
    "testsrc=size=1280x720:rate=30",
    "-c:v",
    "libx264",
    "-threads",
];
const ENCODER: Kind = Kind {
    name: "ffmpeg, 4 threads",
    program: Some("ffmpeg"),
    args: &[
        FFMPEG[0], FFMPEG[1], FFMPEG[2], FFMPEG[3], FFMPEG[4], FFMPEG[5], FFMPEG[6], FFMPEG[7], FFMPEG[8],
        FFMPEG[9], "4", "-t", "3600", "-f", "null", "-",
    ],
};

pub(super) const CASES: [Case; 10] = [
    Case { kind: LOOP, recorded: of(500), simulated: &[of(300), of(700), of(900), of(1_100)] },
    Case { kind: TWO_LOOPS, recorded: of(1_000), simulated: &[of(600), of(1_400), of(1_800)] },
    Case { kind: REGULAR, recorded: of(250), simulated: &[of(180), of(220), of(280), of(320)] },
    Case { kind: UNEVEN, recorded: of(400), simulated: &[of(330), of(370), of(450), of(600)] },
    Case { kind: RANDOM, recorded: of(450), simulated: &[of(380), of(420), of(500), of(600)] },
    Case { kind: CLOSED, recorded: of(300), simulated: &[of(200), of(250), of(350), of(450)] },
    Case { kind: BURSTS, recorded: of(350), simulated: &[with_burst(350, 5), with_burst(350, 20)] },
    Case { kind: ENCODER, recorded: of(800), simulated: &[of(500), of(1_200), of(1_600)] },
    Case { kind: FREQUENT, recorded: short(300), simulated: &[short(200), short(340), of(260)] },
    Case { kind: OTHER_PERIOD, recorded: of(250), simulated: &[short(320), short(450)] },
];

/// Its cells must be right, or refused, or have a caution.
pub(super) const CONVOYS: Case =
    Case { kind: CONVOY, recorded: of(800), simulated: &[of(500), of(1_200), of(1_500)] };
