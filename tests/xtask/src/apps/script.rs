//! The shell scripts of a run: server and client, and who served them.

use std::fmt::Write as _;
use std::time::Duration;

use lab::{Config, Device, Provider, Step, step::quote};

use super::table::{Ready, Run};
use crate::compare::suite::under;

/// Marks the loader's lines in the client's output.
pub(super) const SERVED: &str = "oxverbs-served ";
/// From a client's start until its server must listen.
const START: Duration = Duration::from_secs(30);

/// The client under the dynamic loader's log, and what that says.
fn client_script(run: &Run, device: Device) -> String {
    let mut script = String::new();
    if let Some(ready) = &run.ready {
        let wait = match ready {
            Ready::Port(port) => format!("wait-port {port}"),
            Ready::Word(_) => {
                "sh -c 'until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done'".into()
            }
        };
        let _ = writeln!(
            script,
            "timeout {} {wait} || {{ echo 'the server does not listen'; exit 1; }}",
            START.as_secs()
        );
    } else {
        script += "rm -rf /tmp/ld; mkdir /tmp/ld\n";
    }
    // Debian's libibverbs loads the providers of all devices, its own of the other kind say nothing.
    let official = match device {
        Device::Rxe => "librxe-rdmav",
        Device::Mlx5 | Device::Vfio => "libmlx5",
    };
    // The loader writes one file per process; "calling init" names each object it initialises, dlopened ones too.
    let _ = write!(
        script,
        "LD_DEBUG=files LD_DEBUG_OUTPUT=/tmp/ld/client sh -c {}\n\
         status=$?\n\
         sleep 0.1\n\
         for side in server client; do\n\
             sed -n \"s#.*calling init: \\(/.*/\\({official}\\|liboxverbs\\).*\\)#\\1#p\" /tmp/ld/$side.* 2>/dev/null | sort -u | while read -r file; do\n\
                 file=$(readlink -m \"$file\")\n\
                 echo \"{SERVED}$side ${{file##*/}}\"\n\
             done | sort -u\n\
         done\n\
         exit $status\n",
        quote(&format!("exec {}", run.client))
    );
    script
}

/// The client with its server, under a provider.
pub(super) fn step(run: &Run, provider: Provider, config: &Config) -> Step {
    let script = under(provider, config, &client_script(run, config.device));
    let step = Step::new(&run.name, script).timeout(run.timeout + START);
    match &run.server {
        Some(server) => {
            let script = format!(
                "rm -rf /tmp/ld; mkdir /tmp/ld\nexport LD_DEBUG=files LD_DEBUG_OUTPUT=/tmp/ld/server\nexec {server}"
            );
            let script = under(provider, config, &script);
            step.server(
                Step::new(format!("server of {}", run.name), script).timeout(run.timeout + START),
            )
        }
        None => step,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scripts as a real shell runs them: what the client prints, its status, and the loader's log.
    #[test]
    fn the_client_script_reports_who_served() {
        let text = "[[run]]\nname = \"n\"\nclient = \"c\"\n";
        let mut run = super::super::table::runs(text, &Config::default())
            .unwrap()
            .remove(0);
        let log = "      1234:\tcalling init: /usr/lib/x/libibverbs/librxe-rdmav34.so";
        run.client = format!("sh -c 'echo good; echo \"{log}\" >/tmp/ld/client.99; exit 3'");
        let dir = tempfile::tempdir().unwrap();
        let script = client_script(&run, Device::Rxe)
            .replace("/tmp/ld", &format!("{}/ld", dir.path().display()));
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.starts_with("good\n"), "{stdout}");
        let served = super::super::side::Served::of(&stdout);
        assert_eq!(served.client, ["librxe-rdmav34.so"]);
    }
}
