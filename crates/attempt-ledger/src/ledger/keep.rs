use std::time::Duration;

use attempt_ledger_core::{Content, Digest};
use attempt_ledger_store::{Ack, Archive, PendingAnswer};
use tokio::{runtime::Handle, task::JoinHandle, time::timeout};

/// An answer that goes to the archive once its row is recorded.
pub(super) struct Keep {
    answer: PendingAnswer,
    runtime: Handle,
}

impl Keep {
    /// `None`, and counted by the archive, where there is nothing to write, or nothing to write with.
    pub(super) fn new(
        archive: &Archive,
        answer: Digest,
        content: Option<&Content>,
        runtime: Option<&Handle>,
    ) -> Option<Self> {
        let (Some(content), Some(runtime)) = (content, runtime) else {
            archive.missed(answer);
            return None;
        };
        let answer = archive.pending(answer, content.clone())?;
        Some(Keep { answer, runtime: runtime.clone() })
    }

    /// Writes it, on a thread that may block. Goes on when it is no longer awaited.
    pub(super) fn start(self) -> JoinHandle<()> {
        let Keep { answer, runtime } = self;
        runtime.spawn_blocking(move || {
            // The archive counts a failure.
            let _ = answer.put();
        })
    }

    /// The row is not recorded, and so its answer is not kept.
    pub(super) fn let_go(self) {
        self.answer.let_go();
    }

    /// As whoever awaited the closing would have done, and left: writes the answer once the row is
    /// recorded, and then goes on with `then`.
    pub(super) fn start_after(
        self,
        ack: Ack<()>,
        limit: Duration,
        then: impl FnOnce(bool) + Send + 'static,
    ) {
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            let recorded = matches!(timeout(limit, ack).await, Ok(Ok(())));
            if recorded {
                let _ = timeout(limit, self.start()).await;
            } else {
                self.let_go();
            }
            then(recorded);
        });
    }
}
