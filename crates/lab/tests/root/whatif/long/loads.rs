//! The loads of the grid, the limits under which the test records them, and the limits that it simulates.

use super::super::{Kind, LOOP, Limit, REGULAR};

pub(super) struct Case {
    pub(super) kind: Kind,
    pub(super) recorded: Limit,
    pub(super) simulated: &'static [Limit],
    /// Whether the load is random. The figures of a random load differ between runs, for example by 5 percentage points if 35 %
    /// of the periods are throttled in a run of 8 s.
    pub(super) is_random: bool,
}

const fn of(milli: u64) -> Limit {
    Limit::of(milli)
}

const fn with_burst(milli: u64, burst_ms: u64) -> Limit {
    Limit { burst_ms, ..Limit::of(milli) }
}

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
/// The gap is 153 ms, because with 150 ms each request would arrive at one of only two moments of a period. Then the result
/// depends on chance: under exactly the quota and the burst that a request needs, between 0 and 35 % of the periods were
/// throttled in four runs.
pub(super) const BURSTS: Kind = load("regular, burst", &["requests", "regular", "45000", "153000", "60"]);
/// A load for periods of 50 ms, with bursts of work that need more than the quota of one period.
const FREQUENT: Kind = load("regular, 50 ms periods", &["requests", "regular", "20000", "90000", "60"]);
/// A similar load, but for periods of 100 ms in the recording.
const OTHER_PERIOD: Kind = load("regular, other period", &["requests", "regular", "30000", "130000", "60"]);
pub(super) const CONVOY: Kind = load("lock convoy", &["convoy", "4", "2000", "4000", "60"]);

/// The first options of ffmpeg. The number of threads and the length of the work follow them.
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

const fn case(kind: Kind, recorded: Limit, simulated: &'static [Limit]) -> Case {
    Case { kind, recorded, simulated, is_random: false }
}

pub(super) const CASES: [Case; 10] = [
    case(LOOP, of(500), &[of(300), of(700), of(900), of(1_100)]),
    case(TWO_LOOPS, of(1_000), &[of(600), of(1_400), of(1_800)]),
    case(REGULAR, of(250), &[of(180), of(220), of(280), of(320)]),
    case(UNEVEN, of(400), &[of(330), of(370), of(450), of(600)]),
    Case { is_random: true, ..case(RANDOM, of(450), &[of(380), of(420), of(500), of(600)]) },
    case(CLOSED, of(300), &[of(200), of(250), of(350), of(450)]),
    case(BURSTS, of(350), &[with_burst(350, 5), with_burst(350, 25)]),
    case(ENCODER, of(800), &[of(500), of(1_200), of(1_600)]),
    case(FREQUENT, short(300), &[short(200), short(340), of(260)]),
    case(OTHER_PERIOD, of(250), &[short(320), short(450)]),
];

/// Each cell of the lock convoy must be right, be refused, or have a caution.
pub(super) const CONVOYS: Case = case(CONVOY, of(800), &[of(500), of(1_200), of(1_500)]);
