//! How long the answers take.

use std::{path::PathBuf, time::Instant};

use cgscope_made_up::demand::Limited;
use cgscope_record::{FileWriter, Header, Reason};

use super::*;

#[test]
#[ignore = "measures"]
fn an_hour() {
    let path = PathBuf::from("/tmp/h3-hour.rec");
    if !path.exists() {
        let begin = Instant::now();
        let mut file = FileWriter::create(&path, &Header::default()).unwrap();
        for sample in Limited::new(200).take(3_601) {
            file.sample(&sample).unwrap();
        }
        file.end(0, Reason::Finished).unwrap();
        println!("made in {:?}", begin.elapsed());
    }
    println!("{} bytes", std::fs::metadata(&path).unwrap().len());
    let begin = Instant::now();
    let mut recording = Recording::open(&path).unwrap();
    let whole = overview(&mut recording).unwrap();
    println!("overview {:?}", begin.elapsed());
    let begin = Instant::now();
    let filter = SelectionFilter::new(&cgscope_model::Selection::default()).unwrap();
    let (targets, left) = targets(&whole, &filter).unwrap();
    println!("{left} more");
    let history = history(&path, &targets).unwrap();
    println!("history {:?}", begin.elapsed());
    let question =
        Question { quotas: Vec::new(), threads: None, burst_ns: None, period_ns: None, target: 0.01 };
    let mut answers = Vec::new();
    for target in &targets {
        let begin = Instant::now();
        let answer = answer(&history, target, &question).unwrap();
        println!("{} {:?}", target.path, begin.elapsed());
        answers.push(answer);
    }
    println!("{}", words::text(&answers, &whole, &question, left));
}
