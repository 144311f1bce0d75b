//! Statistics over few samples.

use serde_json::{Value, json};

/// Median, p99, least, most, mean and standard deviation.
pub(crate) fn statistics(samples: &[f64]) -> Value {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let Some(last) = sorted.last() else {
        return Value::Null;
    };
    // The smallest sample that at least this part of all does not exceed.
    let quantile = |part: f64| sorted[((part * count as f64).ceil() as usize).clamp(1, count) - 1];
    let median = if count.is_multiple_of(2) {
        (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0
    } else {
        sorted[count / 2]
    };
    let mean = sorted.iter().sum::<f64>() / count as f64;
    let variance = sorted.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / count as f64;
    json!({
        "median": round(median), "p99": round(quantile(0.99)), "min": round(sorted[0]), "max": round(*last),
        "mean": round(mean), "stddev": round(variance.sqrt()),
    })
}

/// To two decimals.
pub(crate) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_worst_of_a_hundred_are_what_they_say() {
        let samples: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let statistics = statistics(&samples);
        assert_eq!(statistics["median"], 50.5);
        assert_eq!(statistics["p99"], 99.0);
        assert_eq!(statistics["min"], 1.0);
        assert_eq!(statistics["max"], 100.0);
        assert_eq!(super::statistics(&[3.0])["median"], 3.0);
        assert_eq!(super::statistics(&[3.0])["p99"], 3.0);
    }
}
