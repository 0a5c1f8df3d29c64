//! A long day at the desk: two chats by turns, with edits, branches, stops and the slider in between, on the real
//! engine. `CISTERN_SOAK_TURNS` makes it longer, `CISTERN_SOAK_SEED` another one.

mod ear;

use std::collections::HashMap;
use std::env;
use std::time::Duration;

use engine::protocol::{CacheOptions, Document, FinishReason, Request, Role, Sampling};
use tokio::time::{Instant, sleep, timeout};

use crate::api::{Again, AgainHow, Attachment, Question, Sent, Status};
use crate::desk::Desk;
use crate::error::Problem;
use ear::{Ear, Heard};

const CHUNK: u32 = 64;
const EVICT_EVERY: u32 = 16;
const STORE: u64 = 12 << 20;
/// Turns until caches, allocator and database have the size that they keep.
const WARM_UP: usize = 100;
const MIB: f64 = 1_048_576.0;
/// What a turn may leave behind in the worker, in bytes: its ledger of positions, and noise.
const LEFT_BEHIND: f64 = 20.0 * 1024.0;

fn asked(name: &str, otherwise: u64) -> u64 {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The same day from the same seed, as far as the processor allows.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn budget(&mut self) -> u32 {
        64 + 16 * self.below(20) as u32
    }
}

/// What one chat should hold.
#[derive(Default)]
struct Talk {
    id: Option<String>,
    budget: u32,
    /// What the window was told that each message says.
    said: HashMap<i64, String>,
}

/// What happens while an answer is written.
#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    Nothing,
    /// After so many pieces of text.
    Stop(usize),
    Move(usize, u32),
}

/// What is done to a chat.
#[derive(Debug, Clone, Copy)]
enum Step {
    Ask,
    /// Counted among the questions that are shown.
    Edit(usize),
    Anew(usize),
    Continue,
    /// Counted among all messages there ever were.
    Show(usize),
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    step: Step,
    meanwhile: Meanwhile,
    tokens: u32,
    seed: u64,
}

impl Plan {
    fn new(chance: &mut Chance) -> Self {
        let step = match chance.below(20) {
            0..=10 => Step::Ask,
            11..=13 => Step::Edit(chance.below(1_000)),
            14..=15 => Step::Anew(chance.below(1_000)),
            16..=17 => Step::Continue,
            _ => Step::Show(chance.below(10_000)),
        };
        let meanwhile = match chance.below(8) {
            0..=1 => Meanwhile::Stop(chance.below(4)),
            2..=4 => Meanwhile::Move(chance.below(3), chance.budget()),
            _ => Meanwhile::Nothing,
        };
        Self { step, meanwhile, tokens: 3 + chance.below(10) as u32, seed: chance.below(1 << 20) as u64 }
    }

    fn text(&self) -> String {
        let subjects = ["rain", "the harbour", "old maps", "bread", "a lighthouse", "numbers", "salt and tin"];
        let subject = subjects[self.seed as usize % subjects.len()];
        format!("Tell me in {} words about {subject}, please.", 3 + self.seed % 9)
    }
}

impl Talk {
    fn cache(&self) -> CacheOptions {
        CacheOptions {
            budget: Some(self.budget),
            chunk: CHUNK,
            evict_every: EVICT_EVERY,
            store_limit: Some(STORE),
            ..CacheOptions::default()
        }
    }

    /// Does what is planned, as a window would, and compares all that is shown then with what was streamed.
    async fn turn(&mut self, desk: &Desk, ear: &Ear, plan: Plan) {
        let Some(sent) = self.begin(desk, ear, plan).await else { return self.compare(desk).await };
        let id = sent.chat.id.clone();
        let mut budget = self.budget;
        let ended = timeout(Duration::from_secs(180), async {
            let mut told = false;
            loop {
                let Heard { pieces, ended, .. } = ear.of(desk, &id);
                match plan.meanwhile {
                    Meanwhile::Stop(after) if !told && pieces >= after => {
                        told = true;
                        desk.answers.stop(&id).await;
                    }
                    Meanwhile::Move(after, to) if !told && pieces >= after && !ended => {
                        told = true;
                        budget = to;
                        ear.allow(desk, &id, to);
                        // In a chat whose first question waits for the model there is nothing to move yet.
                        let moved = desk.worker.ask(Request::SetBudget { session: id.clone(), budget: Some(to) }).await;
                        if let Err(problem) = moved {
                            assert_eq!(problem.code(), "no_session", "{problem}");
                        }
                    }
                    _ => {}
                }
                if ended {
                    return;
                }
                sleep(Duration::from_millis(3)).await;
            }
        });
        ended.await.unwrap_or_else(|_| panic!("{plan:?} did not end"));
        self.budget = budget;
        let heard = ear.of(desk, &id);
        assert_eq!(heard.problem, None, "{plan:?}");
        self.said.entry(sent.answer.id).or_default().push_str(&heard.text);
        self.compare(desk).await;
    }

    async fn begin(&mut self, desk: &Desk, ear: &Ear, plan: Plan) -> Option<Sent> {
        let Some(id) = self.id.clone() else {
            let pages = vec!["The harbour of Ormsund freezes in January. Its code is 48213. ".repeat(8)];
            let document = Document { name: "harbour.txt".into(), pages };
            let documents = vec![Attachment { document, tokens: 1, file: None }];
            let sent = desk.answers.send(Question { documents, ..self.question(plan) }).await.unwrap();
            ear.allow(desk, &sent.chat.id, self.budget);
            self.id = Some(sent.chat.id.clone());
            self.said.insert(sent.question.id, plan.text());
            return Some(sent);
        };
        ear.begin(desk, &id, self.budget);
        let shown = desk.answers.open(id.clone()).await.unwrap().messages;
        let pick = |role: Role, n: usize| {
            let of_role: Vec<_> = shown.iter().filter(|message| message.role == role).collect();
            of_role[n % of_role.len()].clone()
        };
        match plan.step {
            Step::Ask => {
                let sent = desk.answers.send(self.question(plan)).await.unwrap();
                self.said.insert(sent.question.id, plan.text());
                Some(sent)
            }
            Step::Edit(n) => {
                let edits = Some(pick(Role::User, n).id);
                let sent = desk.answers.send(Question { edits, ..self.question(plan) }).await.unwrap();
                self.said.insert(sent.question.id, plan.text());
                Some(sent)
            }
            Step::Anew(n) => {
                let answer = pick(Role::Assistant, n).id;
                Some(desk.answers.again(self.again(&id, answer, AgainHow::Anew, plan)).await.unwrap())
            }
            Step::Continue => {
                let last = shown.last().unwrap();
                match desk.answers.again(self.again(&id, last.id, AgainHow::Continue, plan)).await {
                    Ok(sent) => Some(sent),
                    Err(Problem::Complete) => {
                        let whole = last.finish == Some(FinishReason::Eos) || last.text.is_empty();
                        assert!(whole, "{last:?} can be continued");
                        None
                    }
                    Err(problem) => panic!("{problem}"),
                }
            }
            Step::Show(n) => {
                let mut all: Vec<_> = self.said.keys().copied().collect();
                all.sort_unstable();
                desk.answers.show_branch(id, all[n % all.len()]).await.unwrap();
                None
            }
        }
    }

    fn question(&self, plan: Plan) -> Question {
        Question {
            chat: self.id.clone(),
            edits: None,
            system: String::new(),
            text: plan.text(),
            documents: Vec::new(),
            cache: self.cache(),
            sampling: sampling(plan),
            max_tokens: plan.tokens,
        }
    }

    fn again(&self, chat: &str, answer: i64, how: AgainHow, plan: Plan) -> Again {
        let (cache, sampling, max_tokens) = (self.cache(), sampling(plan), plan.tokens);
        Again { chat: chat.to_owned(), answer, how, cache, sampling, max_tokens }
    }

    async fn compare(&self, desk: &Desk) {
        let Some(id) = &self.id else { return };
        for message in desk.answers.open(id.clone()).await.unwrap().messages {
            let said = self.said.get(&message.id).map(String::as_str);
            assert_eq!(said, Some(message.text.as_str()), "message {} of {id}", message.id);
            assert!(!message.writing && message.problem.is_none(), "{message:?}");
        }
    }
}

fn sampling(plan: Plan) -> Sampling {
    Sampling { temperature: 0.9, seed: plan.seed, ..Sampling::default() }
}

/// Bytes that the worker holds, without what it maps, and without what it has freed and its allocator keeps for later:
/// that goes back to the system when a chat is closed, whichever.
async fn worker_memory(desk: &Desk) -> Option<f64> {
    desk.worker.ask(Request::Close { session: "of nobody".to_owned() }).await.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", desk.worker.seen().pid?)).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?.split_whitespace().next()?;
    Some(kib.parse::<f64>().ok()? * 1024.0)
}

/// By least squares, for each step.
fn slope(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let (x_mean, y_mean) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let (mut above, mut below) = (0.0, 0.0);
    for (x, y) in values.iter().enumerate() {
        above += (x as f64 - x_mean) * (y - y_mean);
        below += (x as f64 - x_mean).powi(2);
    }
    above / below
}

#[tokio::test]
async fn a_long_day_loses_no_word_keeps_to_its_budget_and_leaves_nothing_behind() {
    let (turns, seed) = (asked("CISTERN_SOAK_TURNS", 32) as usize, asked("CISTERN_SOAK_SEED", 1));
    println!("{turns} turns of seed {seed}");
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (desk, ear) = (Desk::real(), Ear::new(EVICT_EVERY, CHUNK));
    let mut talks = [Talk { budget: 128, ..Talk::default() }, Talk { budget: 256, ..Talk::default() }];
    let Status::Ready { .. } = timeout(Duration::from_secs(60), desk.worker.settled()).await.unwrap() else {
        panic!("{:?}", desk.worker.status());
    };
    let (started, mut memory, mut done) = (Instant::now(), Vec::new(), 0);
    let pid = desk.worker.seen().pid;
    while done < turns {
        let (first, second) = (Plan::new(&mut chance), Plan::new(&mut chance));
        let [a, b] = &mut talks;
        match chance.below(6) {
            // Both at once: one waits for the other.
            0 => {
                tokio::join!(a.turn(&desk, &ear, first), b.turn(&desk, &ear, second));
                done += 1;
            }
            1..=3 => a.turn(&desk, &ear, first).await,
            _ => b.turn(&desk, &ear, first).await,
        }
        done += 1;
        if let Some(holds) = worker_memory(&desk).await {
            let (told, seen) = ear.told(&desk);
            memory.push(holds - told as f64);
            if done % 25 < 2 {
                println!("{done}: {:.1} MiB, of caches {:.1}, {seen} positions", holds / MIB, told as f64 / MIB);
            }
        }
        assert_eq!(desk.worker.seen().pid, pid, "the worker is the one that it was");
    }
    println!("{done} turns in {:.0} s", started.elapsed().as_secs_f64());
    let kept = &memory[memory.len().min(WARM_UP)..];
    if kept.len() >= 2 * WARM_UP {
        let grows = slope(kept);
        println!("{:.2} KiB a turn, beside the caches, over the last {}", grows / 1024.0, kept.len());
        // Chats grow and shrink by tens of MiB over some hundred turns: of fewer, the slope is mostly theirs.
        let enough = kept.len() >= 6 * WARM_UP;
        assert!(!enough || grows < LEFT_BEHIND, "the worker grows by {grows:.0} bytes a turn: {kept:?}");
    }
}
