//! A rule takes effect before its reply. The table of users and a client that looks its user up
//! work as in [`Users`](crate::acl::Users) and [`Executor`](crate::execute::Executor), with one
//! rule for one user.

use std::sync::atomic::Ordering::Relaxed;

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::sections::Sections;
use super::words::Words;
use super::{bounded, explore, fails};

/// The step that a broken twin leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// The change is made while commands run.
    ExclusiveSection,
    /// A client that enters a section keeps its previous user.
    Renewal,
    /// A command that waited for its exclusive section is executed without being checked again.
    SecondLook,
}

struct Server {
    sections: Sections,
    epoch: Words<true>,
    is_permitted: Mutex<bool>,
    /// Whether the reply to the change was sent.
    is_replied: Mutex<bool>,
    without: Without,
}

impl Server {
    /// `ACL SETUSER`, which removes the permission, and its reply.
    fn forbid(&self) {
        let change = || {
            *self.is_permitted.lock().unwrap() = false;
            self.epoch.fetch_add(1, Relaxed);
        };
        if self.without == Without::ExclusiveSection {
            change();
        } else {
            let Ok(_section) = self.sections.exclusive(bounded()) else {
                return;
            };
            change();
        }
        *self.is_replied.lock().unwrap() = true;
    }

    /// Executes a command that was checked with the client's copy of the user.
    fn execute(&self, client: &Client) {
        let is_replied = *self.is_replied.lock().unwrap();
        assert!(
            !(client.is_permitted && is_replied),
            "executed by the rules from before the reply"
        );
    }
}

/// A client's copy of its user.
struct Client {
    epoch: u64,
    is_permitted: bool,
}

impl Client {
    fn new(server: &Server) -> Self {
        let epoch = server.epoch.load(Relaxed);
        let is_permitted = *server.is_permitted.lock().unwrap();
        Self {
            epoch,
            is_permitted,
        }
    }

    fn has_old_rules(&self, server: &Server) -> bool {
        self.epoch != server.epoch.load(Relaxed)
    }

    fn renew_rules(&mut self, server: &Server) {
        if server.without != Without::Renewal && self.has_old_rules(server) {
            *self = Self::new(server);
        }
    }

    /// A batch of two commands in a section, twice.
    fn batches(&mut self, server: &Server) {
        for _ in 0..2 {
            let _section = server.sections.shared(0);
            self.renew_rules(server);
            server.execute(self);
            server.execute(self);
        }
    }

    /// A command that needs exclusive access, checked again until it is executed or refused.
    fn alone(&mut self, server: &Server) {
        loop {
            {
                let _section = server.sections.shared(0);
                self.renew_rules(server);
                if !self.is_permitted {
                    return;
                }
            }
            let Ok(_section) = server.sections.exclusive(bounded()) else {
                return;
            };
            if server.without == Without::SecondLook || !self.has_old_rules(server) {
                return server.execute(self);
            }
        }
    }
}

/// A client's commands run beside the change.
fn beside(without: Without, commands: fn(&mut Client, &Server)) -> impl Fn() + Send + Sync {
    move || {
        let server = Arc::new(Server {
            sections: Sections::new(2),
            epoch: Words::new(0),
            is_permitted: Mutex::new(true),
            is_replied: Mutex::new(false),
            without,
        });
        let changing = {
            let server = Arc::clone(&server);
            thread::spawn(move || server.forbid())
        };
        commands(&mut Client::new(&server), &server);
        changing.join().unwrap();
    }
}

#[test]
fn a_batch_is_checked_by_no_rule_from_before_a_reply() {
    explore(beside(Without::Nothing, Client::batches));
}

#[test]
fn an_exclusive_command_is_checked_by_no_rule_from_before_a_reply() {
    explore(beside(Without::Nothing, Client::alone));
}

#[test]
fn a_change_beside_a_batch_lets_an_old_rule_count() {
    fails(beside(Without::ExclusiveSection, Client::batches));
}

#[test]
fn without_looking_the_user_up_again_an_old_rule_counts() {
    fails(beside(Without::Renewal, Client::batches));
}

#[test]
fn without_a_second_check_an_old_rule_counts() {
    fails(beside(Without::SecondLook, Client::alone));
}
