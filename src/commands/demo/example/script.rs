//! *A worked example* of the protocol, as data: what happens in each step, and how the tables stand after it.

/// Entries in a batch, and slots in a buffer.
pub(super) const BATCH_SIZE: u32 = 4;
/// The bound.
pub(super) const MAX_STALENESS: u64 = 1;
/// How many trajectories may generate at once.
pub(super) const MAX_CONCURRENCY: u64 = 6;
/// How many buffers the example's table shows.
pub(super) const BUFFERS: usize = 3;
/// The trajectories, in the order of their admission.
pub(super) const TRAJECTORIES: &str = "abcdefghijkl";

/// One row of the example's table.
#[derive(Debug)]
pub(super) struct Step {
    /// The example's words for it.
    pub(super) title: &'static str,
    /// What is done, in this order.
    pub(super) acts: &'static [Act],
    /// Buffers 0 to 2 after it: `.` empty, lower case reserved, upper case occupied.
    pub(super) tables: [&'static str; BUFFERS],
}

/// One call of a worker or of the trainer, and what the example says of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// Trajectories reserve under a version, and all of them are admitted.
    Reserve { version: u64, prompts: &'static str },
    /// A trajectory asks for a place, and the bound leaves it none.
    Blocked { version: u64, prompt: &'static str },
    /// A trajectory finishes.
    Finish(char),
    /// The trainer is given the batch of a version, with these entries in this order.
    Take { version: u64, prompts: &'static str },
    /// The trainer publishes a version.
    Publish(u64),
}

/// The example, row by row.
pub(super) const STEPS: [Step; 13] = {
    use Act::{Blocked, Finish, Publish, Reserve, Take};
    [
        Step {
            title: "A–F reserve at version 0",
            acts: &[Reserve {
                version: 0,
                prompts: "abcdef",
            }],
            tables: [". . f e", "d c b a", "closed"],
        },
        Step {
            title: "A finishes; G reserves",
            acts: &[
                Finish('a'),
                Reserve {
                    version: 0,
                    prompts: "g",
                },
            ],
            tables: ["A . g e", "d c b f", "closed"],
        },
        Step {
            title: "D finishes; H reserves",
            acts: &[
                Finish('d'),
                Reserve {
                    version: 0,
                    prompts: "h",
                },
            ],
            tables: ["A D h e", "g c b f", "closed"],
        },
        Step {
            title: "C finishes; I is blocked: 8 places, all used",
            acts: &[
                Finish('c'),
                Blocked {
                    version: 0,
                    prompt: "i",
                },
            ],
            tables: ["A D C e", "g h b f", "closed"],
        },
        Step {
            title: "E finishes: buffer 0 ready, taken",
            acts: &[
                Finish('e'),
                Take {
                    version: 0,
                    prompts: "adce",
                },
            ],
            tables: ["taken", "g h b f", "closed"],
        },
        Step {
            title: "F, then G finish; I is still blocked",
            acts: &[
                Finish('f'),
                Finish('g'),
                Blocked {
                    version: 0,
                    prompt: "i",
                },
            ],
            tables: ["taken", "F G b h", "closed"],
        },
        Step {
            title: "version 1 published; I–L reserve",
            acts: &[
                Publish(1),
                Reserve {
                    version: 1,
                    prompts: "ijkl",
                },
            ],
            tables: ["taken", "F G b h", "l k j i"],
        },
        Step {
            title: "J finishes: h and b may not go to buffer 2",
            acts: &[Finish('j')],
            tables: ["taken", "F G b h", "J k l i"],
        },
        Step {
            title: "H finishes",
            acts: &[Finish('h')],
            tables: ["taken", "F G H b", "J k l i"],
        },
        Step {
            title: "K finishes",
            acts: &[Finish('k')],
            tables: ["taken", "F G H b", "J K l i"],
        },
        Step {
            title: "B finishes: buffer 1 ready, taken",
            acts: &[
                Finish('b'),
                Take {
                    version: 1,
                    prompts: "fghb",
                },
            ],
            tables: ["taken", "taken", "J K l i"],
        },
        Step {
            title: "L, then I finish: buffer 2 ready, not takeable",
            // Version 1 still trains: asked again before it publishes, the trainer gets the batch that it has.
            acts: &[
                Finish('l'),
                Finish('i'),
                Take {
                    version: 1,
                    prompts: "fghb",
                },
            ],
            tables: ["taken", "taken", "J K L I"],
        },
        Step {
            title: "version 2 published: buffer 2 is taken at once",
            acts: &[
                Publish(2),
                Take {
                    version: 2,
                    prompts: "jkli",
                },
            ],
            tables: ["taken", "taken", "taken"],
        },
    ]
};

/// The step in which a trajectory is admitted, and the version that it is admitted under.
pub(super) fn admission_of(letter: char) -> Option<(usize, u64)> {
    STEPS.iter().enumerate().find_map(|(number, step)| {
        step.acts.iter().find_map(|act| match act {
            Act::Reserve { version, prompts } if prompts.contains(letter) => Some((number, *version)),
            _ => None,
        })
    })
}

/// The step in which a trajectory finishes.
pub(super) fn finish_of(letter: char) -> Option<usize> {
    STEPS.iter().position(|step| step.acts.contains(&Act::Finish(letter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trajectory_is_admitted_before_it_finishes() {
        for letter in TRAJECTORIES.chars() {
            let (admitted, _) = admission_of(letter).unwrap();
            assert!(finish_of(letter).unwrap() > admitted, "{letter}");
        }
        assert_eq!(admission_of('i'), Some((6, 1)));
    }
}
