//! What the port counts: nothing of trouble while all goes well, and nothing backwards.

use super::{Need, Suite};
use crate::check::{Check, Stop, ensure, equal};
use crate::counters::{OF_TROUBLE, read};
use crate::fixture::{Env, Pair, Setup};
use crate::verbs::types::Transport;

pub(super) fn cases(suite: &mut Suite) {
    for transport in Transport::ALL {
        suite.case(
            format!("counters/{transport}/healthy_traffic"),
            &[Need::Loopback, Need::Sysfs],
            move |env| healthy(env, transport),
        );
    }
}

fn healthy(env: &Env, transport: Transport) -> Check {
    let pair = Pair::connected(env, &Setup::new(transport))?;
    let before = read(env.device_name(), env.port);
    if before.is_empty() {
        return Err(Stop::Skip("sysfs has no counters of the port".to_owned()));
    }
    for id in 0..50 {
        pair.exchange(id, 1000)?;
    }
    let after = read(env.device_name(), env.port);
    for (name, before) in &before {
        let Some(after) = after.get(name) else {
            continue;
        };
        match OF_TROUBLE.contains(&name.as_str()) {
            true => equal(name, after, before)?,
            false => ensure(&format!("{name} does not go backwards"), after >= before)?,
        }
    }
    Ok(())
}
