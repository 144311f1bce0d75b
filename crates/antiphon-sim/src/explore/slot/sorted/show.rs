//! Steps of sorted runs, for people.

use std::fmt;

use super::super::ids;
use super::{Move, Set};

/// The members of a set, for people.
struct Shown(Set);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = ids()
            .filter(|id| self.0 & 1 << id != 0)
            .map(|id| id.to_string())
            .collect();
        write!(f, "{{{}}}", ids.join(","))
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (proposers, view, accepted, dying, dead, decides) = match *self {
            Self::Die(id) => return write!(f, "{id} dies"),
            Self::Cast { who, view, killed } => {
                let how = if killed {
                    "was killed while it cast"
                } else {
                    "casts"
                };
                return write!(f, "{who} {how} {} in the fast ballot", Shown(view));
            }
            Self::GoOn(view) => return write!(f, "{} go on to the next slot", Shown(view)),
            Self::Ballot {
                proposers,
                view,
                accepted,
                dying,
                dead,
                decides,
            } => (proposers, view, accepted, dying, dead, decides),
        };
        write!(
            f,
            "one of {} proposes {}; {} accept",
            Shown(proposers & !dead),
            Shown(view),
            Shown(accepted)
        )?;
        if dying != 0 {
            write!(f, "; {} were killed while they accepted", Shown(dying))?;
        }
        if dead != 0 {
            write!(f, "; {} die", Shown(dead))?;
        }
        if decides {
            f.write_str("; that decides")?;
        }
        Ok(())
    }
}
