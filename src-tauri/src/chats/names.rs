//! Roles and endings as the database spells them.

use engine::protocol::{FinishReason, Role};

pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
    }
}

pub fn role_from(name: &str) -> Role {
    match name {
        "system" => Role::System,
        "assistant" => Role::Assistant,
        _ => Role::User,
    }
}

pub fn finish_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Eos => "eos",
        FinishReason::Length => "length",
        FinishReason::Stopped => "stopped",
    }
}

pub fn finish_from(name: &str) -> Option<FinishReason> {
    Some(match name {
        "eos" => FinishReason::Eos,
        "length" => FinishReason::Length,
        "stopped" => FinishReason::Stopped,
        _ => return None,
    })
}
