//! `GEOSEARCH`, `GEOSEARCHSTORE` and their predecessors, `GEORADIUS`, `GEORADIUSBYMEMBER` and the
//! read-only forms of these: the members near a place.

use super::arguments::{UNIT, coordinates, distance, place, unit};
use super::geohash::{GeoPlace, SearchArea};
use crate::command::*;
use crate::resp::{Arguments, parse_f64, parse_i64};
use mneme_collections::{SortedSetEdit, SortedSetView};

/// The key under which the result is stored.
const STORED: &[KeyFlag] = &[KeyFlag::Overwrite, KeyFlag::Update];

pub(super) static GEOSEARCH: Command = Command {
    name: "geosearch",
    summary: "Returns the members in a circle or a box around a place or a member",
    since: "6.2.0",
    complexity: COMPLEXITY,
    arity: -7,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        FROM,
        BY,
        ORDER,
        COUNT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
    ],
    run: |call| search(call, Takes::Search),
    ..Command::GEO
};

pub(super) static GEOSEARCHSTORE: Command = Command {
    name: "geosearchstore",
    summary: "Stores the members in a circle or a box around a place or a member",
    since: "6.2.0",
    complexity: COMPLEXITY,
    arity: -8,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[
        KeySpec::first(STORED),
        KeySpec::second(&[KeyFlag::ReadOnly, KeyFlag::Access]),
    ],
    arguments: &[
        Argument::key("destination"),
        Argument::key_of("source", 1),
        FROM,
        BY,
        ORDER,
        COUNT,
        Argument::word("storedist", "STOREDIST").optional(),
    ],
    run: |call| search(call, Takes::SearchAndStore),
    ..Command::GEO
};

pub(super) static GEORADIUS: Command = Command {
    name: "georadius",
    summary: "Returns or stores the members in a circle around a place",
    since: "3.2.0",
    arity: -6,
    keys: &[
        KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access]),
        KeySpec::behind("STORE", 6, STORED),
        KeySpec::behind("STOREDIST", 6, STORED),
    ],
    arguments: &AROUND_PLACE,
    run: |call| search(call, Takes::Radius(true)),
    ..MAY_STORE
};

pub(super) static GEORADIUS_RO: Command = Command {
    name: "georadius_ro",
    summary: "Returns the members in a circle around a place",
    arity: -6,
    arguments: AROUND_PLACE.split_at(AROUND_PLACE.len() - STORES).0,
    run: |call| search(call, Takes::Radius(false)),
    ..READS
};

pub(super) static GEORADIUSBYMEMBER: Command = Command {
    name: "georadiusbymember",
    summary: "Returns or stores the members in a circle around a member",
    since: "3.2.0",
    arity: -5,
    keys: &[
        KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access]),
        KeySpec::behind("STORE", 5, STORED),
        KeySpec::behind("STOREDIST", 5, STORED),
    ],
    arguments: &AROUND_MEMBER,
    run: |call| search(call, Takes::RadiusOfMember(true)),
    ..MAY_STORE
};

pub(super) static GEORADIUSBYMEMBER_RO: Command = Command {
    name: "georadiusbymember_ro",
    summary: "Returns the members in a circle around a member",
    arity: -5,
    arguments: AROUND_MEMBER.split_at(AROUND_MEMBER.len() - STORES).0,
    run: |call| search(call, Takes::RadiusOfMember(false)),
    ..READS
};

/// The common fields of the commands that may store their result.
const MAY_STORE: Command = Command {
    complexity: COMPLEXITY,
    flags: &[Flag::Write, Flag::DenyOom, Flag::MovableKeys],
    ..Command::GEO
};

/// The common fields of their read-only forms.
const READS: Command = Command {
    since: "3.2.10",
    complexity: COMPLEXITY,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    ..Command::GEO
};

const AROUND_PLACE: [Argument; 12] = [
    Argument::key("key"),
    Argument::new("longitude", Kind::Double),
    Argument::new("latitude", Kind::Double),
    Argument::new("radius", Kind::Double),
    UNIT,
    WITHCOORD,
    WITHDIST,
    WITHHASH,
    COUNT_SINCE_ANY,
    ORDER,
    STORE,
    STOREDIST,
];
const AROUND_MEMBER: [Argument; 11] = [
    Argument::key("key"),
    Argument::new("member", Kind::String),
    Argument::new("radius", Kind::Double),
    UNIT,
    WITHCOORD,
    WITHDIST,
    WITHHASH,
    COUNT,
    ORDER,
    STORE,
    STOREDIST,
];
/// The number of arguments, at the end, that name the key for the result.
const STORES: usize = 2;
const STORE: Argument = Argument::key_of("key", 1).after("STORE").optional();
const STOREDIST: Argument = Argument::key_of("key", 2).after("STOREDIST").optional();

const COMPLEXITY: &str = "O(N + log M) where N is the number of members in the cells around the shape and M that of all; a small set is looked through";
const FROM: Argument = Argument::one_of(
    "from",
    &[
        Argument::new("member", Kind::String).after("FROMMEMBER"),
        Argument::block(
            "longitude_latitude",
            &[
                Argument::new("longitude", Kind::Double),
                Argument::new("latitude", Kind::Double),
            ],
        )
        .after("FROMLONLAT"),
    ],
);
const BY: Argument = Argument::one_of(
    "by",
    &[
        Argument::block(
            "circle",
            &[
                Argument::new("radius", Kind::Double).after("BYRADIUS"),
                UNIT,
            ],
        ),
        Argument::block(
            "box",
            &[
                Argument::new("width", Kind::Double).after("BYBOX"),
                Argument::new("height", Kind::Double),
                UNIT,
            ],
        ),
    ],
);
const ORDER: Argument = Argument::one_of(
    "order",
    &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")],
)
.optional();
const COUNT: Argument = Argument::block(
    "count",
    &[
        Argument::new("count", Kind::Integer).after("COUNT"),
        Argument::word("any", "ANY").optional(),
    ],
)
.optional();
/// As [`COUNT`], for commands that are older than `ANY`.
const COUNT_SINCE_ANY: Argument = Argument::block(
    "count",
    &[
        Argument::new("count", Kind::Integer).after("COUNT"),
        Argument::word("any", "ANY").since("6.2.0").optional(),
    ],
)
.optional();
const WITHCOORD: Argument = Argument::word("withcoord", "WITHCOORD").optional();
const WITHDIST: Argument = Argument::word("withdist", "WITHDIST").optional();
const WITHHASH: Argument = Argument::word("withhash", "WITHHASH").optional();

/// The arguments that a command takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// A place and a radius; whether it may store.
    Radius(bool),
    /// A member and a radius; whether it may store.
    RadiusOfMember(bool),
    Search,
    SearchAndStore,
}

impl Takes {
    /// The number of the argument that is the key of the members.
    fn key(self) -> usize {
        if self == Takes::SearchAndStore { 2 } else { 1 }
    }

    fn is_search(self) -> bool {
        matches!(self, Takes::Search | Takes::SearchAndStore)
    }
}

/// What a call searches for.
struct Query<'a> {
    centre: Option<GeoPlace>,
    shape: SearchArea,
    /// The length of the unit in meters.
    unit: f64,
    /// Whether the nearest come first; `None`: in any order.
    ascending: Option<bool>,
    /// The maximum number of results; 0: all.
    count: u64,
    /// Whether any members will do, instead of the nearest.
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_coordinates: bool,
    /// The key under which to store the members, and whether to store their distances.
    store: Option<(&'a [u8], bool)>,
}

/// A member that was found.
struct Point {
    member: Vec<u8>,
    score: f64,
    place: GeoPlace,
    distance: f64,
}

/// A length of a shape; `name` is used in the error.
fn length(text: &[u8], name: &'static str) -> Result<f64, Failure> {
    parse_f64(text).ok_or_else(|| Failure::other(format!("ERR need numeric {name}")))
}

fn radius(text: &[u8], of_unit: &[u8]) -> Result<(SearchArea, f64), Failure> {
    let radius = length(text, "radius")?;
    if radius < 0.0 {
        return Err(Failure::other("ERR radius cannot be negative"));
    }
    let unit = unit(of_unit)?;
    let radius = radius * unit;
    Ok((SearchArea::Circle { radius }, unit))
}

fn rectangle(width: &[u8], height: &[u8], of_unit: &[u8]) -> Result<(SearchArea, f64), Failure> {
    let (width, height) = (length(width, "width")?, length(height, "height")?);
    if width < 0.0 || height < 0.0 {
        return Err(Failure::other("ERR height or width cannot be negative"));
    }
    let unit = unit(of_unit)?;
    let (width, height) = (width * unit, height * unit);
    Ok((SearchArea::Box { width, height }, unit))
}

impl<'a> Query<'a> {
    /// Parses the arguments of a call. `set` holds the members, if the key exists.
    fn of(
        args: Arguments<'a>,
        form: Takes,
        mut set: Option<&mut SortedSetView<'_>>,
    ) -> Result<Query<'a>, Failure> {
        let mut place_of = |member: &[u8]| {
            let Some(set) = &mut set else {
                return Ok(None);
            };
            let place = set.score(member)?.and_then(GeoPlace::of_score);
            let missing = Failure::other("ERR could not decode requested zset member");
            place.map(Some).ok_or(missing)
        };
        let is = |at: usize, word: &str| args.at(at).eq_ignore_ascii_case(word.as_bytes());
        let mut query = Query {
            centre: None,
            shape: SearchArea::Circle { radius: 0.0 },
            unit: 1.0,
            ascending: None,
            count: 0,
            any: false,
            with_distance: false,
            with_hash: false,
            with_coordinates: false,
            store: None,
        };
        let (mut from_member, mut from_place) = (false, false);
        let (mut by_radius, mut by_box) = (false, false);
        let (mut at, may_store) = match form {
            Takes::Radius(may_store) => {
                query.centre = Some(place(args.at(2), args.at(3))?);
                (query.shape, query.unit) = radius(args.at(4), args.at(5))?;
                (6, may_store)
            }
            Takes::RadiusOfMember(may_store) => {
                query.centre = place_of(args.at(2))?;
                if query.centre.is_some() {
                    (query.shape, query.unit) = radius(args.at(3), args.at(4))?;
                }
                (5, may_store)
            }
            Takes::Search => (2, false),
            Takes::SearchAndStore => {
                query.store = Some((args.at(1), false));
                (3, false)
            }
        };
        while at < args.len() {
            let left = args.len() - at - 1;
            if is(at, "WITHDIST") {
                query.with_distance = true;
            } else if is(at, "WITHHASH") {
                query.with_hash = true;
            } else if is(at, "WITHCOORD") {
                query.with_coordinates = true;
            } else if is(at, "ANY") {
                query.any = true;
            } else if is(at, "ASC") {
                query.ascending = Some(true);
            } else if is(at, "DESC") {
                query.ascending = Some(false);
            } else if is(at, "COUNT") && left >= 1 {
                let count = parse_i64(args.at(at + 1)).ok_or(Failure::NotAnInteger)?;
                let count = u64::try_from(count).ok().filter(|count| *count > 0);
                query.count = count.ok_or(Failure::other("ERR COUNT must be > 0"))?;
                at += 1;
            } else if is(at, "STORE") && left >= 1 && may_store {
                query.store = Some((args.at(at + 1), false));
                at += 1;
            } else if is(at, "STOREDIST") && left >= 1 && may_store {
                query.store = Some((args.at(at + 1), true));
                at += 1;
            } else if is(at, "STOREDIST") && form == Takes::SearchAndStore {
                query.store = Some((args.at(1), true));
            } else if is(at, "FROMMEMBER") && left >= 1 && form.is_search() && !from_place {
                query.centre = place_of(args.at(at + 1))?;
                from_member = true;
                at += 1;
            } else if is(at, "FROMLONLAT") && left >= 2 && form.is_search() && !from_member {
                query.centre = Some(place(args.at(at + 1), args.at(at + 2))?);
                from_place = true;
                at += 2;
            } else if is(at, "BYRADIUS") && left >= 2 && form.is_search() && !by_box {
                (query.shape, query.unit) = radius(args.at(at + 1), args.at(at + 2))?;
                by_radius = true;
                at += 2;
            } else if is(at, "BYBOX") && left >= 3 && form.is_search() && !by_radius {
                let (width, height) = (args.at(at + 1), args.at(at + 2));
                (query.shape, query.unit) = rectangle(width, height, args.at(at + 3))?;
                by_box = true;
                at += 3;
            } else {
                return Err(Failure::Syntax);
            }
            at += 1;
        }
        let shows = query.with_distance || query.with_hash || query.with_coordinates;
        if query.store.is_some() && shows {
            let name = match form {
                Takes::SearchAndStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            return Err(Failure::other(format!(
                "ERR {name} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        let one_of = |names: &str| {
            let before = format!("ERR exactly one of {names} can be specified for ");
            Failure::quoting(&before, args.at(0), "")
        };
        if form.is_search() && !from_member && !from_place {
            return Err(one_of("FROMMEMBER or FROMLONLAT"));
        }
        if form.is_search() && !by_radius && !by_box {
            return Err(one_of("BYRADIUS and BYBOX"));
        }
        if query.any && query.count == 0 {
            return Err(Failure::other(
                "ERR the ANY argument requires COUNT argument",
            ));
        }
        // A limit means the nearest members.
        if query.count > 0 && !query.any {
            query.ascending.get_or_insert(true);
        }
        Ok(query)
    }

    /// The members that it finds.
    fn search(&self, set: &mut SortedSetView<'_>) -> Result<Vec<Point>, Failure> {
        let Some(centre) = self.centre else {
            return Ok(Vec::new());
        };
        let enough = if self.any {
            self.count as usize
        } else {
            usize::MAX
        };
        let mut found = Vec::new();
        for range in self.shape.scores(centre) {
            if found.len() >= enough {
                break;
            }
            let positions = set.positions(&range)?;
            set.walk(positions, false, &mut |scored| {
                let score = scored.score()?;
                let place = GeoPlace::of_score(score);
                let inside = place.and_then(|place| {
                    let distance = self.shape.distance(centre, place)?;
                    Some((place, distance))
                });
                if let Some((place, distance)) = inside {
                    found.push(Point {
                        member: scored.member.to_vec(),
                        score,
                        place,
                        distance,
                    });
                }
                Ok(found.len() < enough)
            })?;
        }
        let order = |one: &Point, other: &Point| one.distance.total_cmp(&other.distance);
        match self.ascending {
            Some(true) => found.sort_by(order),
            Some(false) => found.sort_by(|one, other| order(other, one)),
            None => {}
        }
        if self.count > 0 {
            found.truncate(usize::try_from(self.count).unwrap_or(usize::MAX));
        }
        found
            .iter_mut()
            .for_each(|point| point.distance /= self.unit);
        Ok(found)
    }
}

fn search(call: &mut Call<'_>, form: Takes) -> Outcome {
    let args = call.args;
    let key = args.at(form.key());
    let limits = call.server.settings.sorted_set_limits();
    let (may_store, database) = (
        !matches!(
            form,
            Takes::Search | Takes::Radius(false) | Takes::RadiusOfMember(false)
        ),
        call.keyspace.number(),
    );
    let keys = [(database, key)];
    let keys = if may_store { &keys[..] } else { &[] };
    let event = match form {
        Takes::SearchAndStore => "geosearchstore",
        _ => "georadiusstore",
    };
    let (query, found, stored) = call.keyspace.atomically_on(keys, |keyspace| {
        let found = keyspace.read_sorted_set(key, |set| {
            let query = Query::of(args, form, Some(set));
            Ok(query.and_then(|query| {
                let found = query.search(set)?;
                Ok((query, found))
            }))
        })?;
        let (query, found) = match found {
            Some(found) => found?,
            None => (Query::of(args, form, None)?, Vec::new()),
        };
        let Some((to, with_distance)) = query.store else {
            return Ok((query, found, None));
        };
        let members = found.iter().map(|point| {
            let score = if with_distance {
                point.distance
            } else {
                point.score
            };
            (&point.member[..], score)
        });
        let set = SortedSetEdit::of_all(members, limits)?;
        let stored = keyspace.store_sorted_set(to, set, event)?;
        Ok((query, found, Some(stored)))
    })?;
    if let Some(stored) = stored {
        call.reply.integer(stored as i64);
        return Ok(());
    }
    let parts = [query.with_distance, query.with_hash, query.with_coordinates];
    let parts = parts.into_iter().filter(|is_shown| *is_shown).count();
    let (reply, protocol) = (&mut call.reply, call.client.protocol);
    reply.array(found.len());
    for point in &found {
        if parts > 0 {
            reply.array(1 + parts);
        }
        reply.bulk(&point.member);
        if query.with_distance {
            distance(reply, point.distance);
        }
        if query.with_hash {
            reply.integer(point.score as i64);
        }
        if query.with_coordinates {
            coordinates(reply, protocol, point.place);
        }
    }
    Ok(())
}
