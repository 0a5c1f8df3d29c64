//! Closes a model that nobody uses, where the person wants that. The next question opens it again.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::answers::Answers;
use crate::api::{ShellSettings, Status};
use crate::snapshots::Snapshots;
use crate::worker::Worker;

/// The longest that a model that goes to rest waits for its caches to be written.
const SAVE_WITHIN: Duration = Duration::from_secs(60);

/// Runs for as long as the program; `minute` is how long a minute of the setting takes.
pub async fn rest_when_idle(
    worker: Worker,
    answers: Answers,
    snapshots: Snapshots,
    mut settings: watch::Receiver<ShellSettings>,
    minute: Duration,
) {
    let mut used = worker.used();
    loop {
        let limit = settings.borrow_and_update().idle_minutes.map(|minutes| minute * minutes);
        let idle = used.borrow_and_update().elapsed();
        let left = limit.map(|limit| limit.saturating_sub(idle));
        if left == Some(Duration::ZERO) && matches!(worker.status(), Status::Ready { .. }) && answers.is_idle().await {
            snapshots.save_all(Instant::now() + SAVE_WITHIN).await;
            // Where a question came meanwhile, this asks in vain.
            worker.rest();
        }
        let alive = tokio::select! {
            changed = settings.changed() => changed.is_ok(),
            // Whatever was used just now has all of its time before it.
            changed = used.changed(), if left.is_none_or(|left| left.is_zero()) => changed.is_ok(),
            () = sleep(left.unwrap_or(Duration::MAX)), if left.is_some_and(|left| !left.is_zero()) => true,
        };
        if !alive {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;
    use crate::desk::Desk;
    use crate::worker::tests::send;

    #[tokio::test]
    async fn only_a_model_that_was_not_used_for_so_long_rests_and_only_where_that_is_wanted() {
        let desk = Desk::new("healthy");
        let worker = &desk.worker;
        let (set, settings) = watch::channel(ShellSettings::default());
        let minute = Duration::from_millis(200);
        tokio::spawn(rest_when_idle(worker.clone(), desk.answers.clone(), desk.snapshots.clone(), settings, minute));

        worker.settled().await;
        sleep(minute * 3).await;
        assert!(matches!(worker.status(), Status::Ready { .. }), "it is off by default");

        set.send_replace(ShellSettings { idle_minutes: Some(2), ..ShellSettings::default() });
        for _ in 0..4 {
            worker.ask(send("a")).await.unwrap();
            sleep(minute).await;
            assert!(matches!(worker.status(), Status::Ready { .. }), "it is used");
        }
        let since = Instant::now();
        let rests = async {
            while !matches!(worker.status(), Status::Sleeping { .. }) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), rests).await.expect("it rests in the end");
        assert!(since.elapsed() < minute * 10, "{:?}", since.elapsed());
    }
}
