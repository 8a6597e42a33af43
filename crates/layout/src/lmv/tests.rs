//! Layouts of directories: their bytes, and Lustre's rules for them.

use proptest::prelude::*;

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn encode_lmv_default_matches_lustre() {
    // As mdd stores it on a new root directory: one stripe anywhere, inherited without limit,
    // round-robin for three levels.
    let root = LmvUser::root_default();
    let want = format!("d00cd30c01000000ffffffff00000000000000000003{}", "00".repeat(26));
    assert_eq!(hex(&root.encode()), want);
    assert_eq!(LmvUser::decode(&root.encode()).unwrap(), root);
    let over = LmvUser {
        mdt: Some(1),
        hash: HashType::parse("crush").unwrap().with(HashType::OVERSTRIPED),
        max_inherit: INHERIT_OVERSTRIPED,
        ..LmvUser::new(-2)
    };
    let want = format!("d00cd30cfeffffff0100000003000001000000000200{}", "00".repeat(26));
    assert_eq!(hex(&over.encode()), want);
}

#[test]
fn encode_lmv_stripes_matches_lustre() {
    let fids = vec![Fid::new(0x2_0000_0400, 5), Fid::new(0x2_4000_0401, 5)];
    let lmv = LmvMds::new(1, HashType::FNV_1A_64, fids.clone());
    let want = [
        "d00cd20c02000000",
        "0100000002000000",
        &"00".repeat(40),
        "00040000020000000500000000000000",
        "01040040020000000500000000000000",
    ];
    assert_eq!(hex(&lmv.encode()), want.concat());
    assert_eq!(LmvMds::decode(&lmv.encode()).unwrap(), lmv);
    let user = lmv.to_user(|fid| u32::from(fid != fids[0]));
    assert_eq!(user.encode().len(), 48 + 2 * 24);
    assert_eq!((user.magic, user.stripe_count, user.mdt), (MAGIC_V1, 2, Some(1)));
    assert_eq!(user.stripes[1], LmvStripe::new(fids[1], 1));
    assert_eq!(LmvUser::decode(&user.encode()).unwrap(), user);
}

#[test]
fn encode_lmv_mdt_list_has_one_entry_per_stripe() {
    let list = LmvUser::new(0).with_mdts(&[1, 0]);
    assert_eq!((list.stripe_count, list.mdt, list.encode().len()), (2, Some(1), 96));
    assert_eq!(hex(&list.encode()[..12]), "d00cd40c0200000001000000");
    assert_eq!(LmvUser::decode(&list.encode()).unwrap(), list);
}

#[test]
fn decode_lmv_refuses_malformed_bytes() {
    let good = LmvUser::new(1).encode();
    let with = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        LmvUser::decode(&bytes).unwrap_err()
    };
    assert_eq!(LmvUser::decode(b""), Err(LmvError::Size { need: 48, have: 0 }));
    assert_eq!(LmvUser::decode(&good[..47]), Err(LmvError::Size { need: 48, have: 47 }));
    assert_eq!(with(0, 0x0BD1_0BD0), LmvError::BadMagic(0x0BD1_0BD0));
    assert_eq!(with(0, MAGIC_FOREIGN).errno(), Errno::EOPNOTSUPP);
    assert_eq!(with(0, MAGIC_SPECIFIC), LmvError::Size { need: 72, have: 48 });
    assert_eq!(with(4, 2001), LmvError::StripeCount(2001));
    assert_eq!(with(4, (-6i32) as u32), LmvError::StripeCount(-6));
    let mut longer = good.clone();
    longer.extend([0; 24]);
    assert_eq!(LmvUser::decode(&longer), Err(LmvError::Size { need: 48, have: 72 }));
    assert_eq!(LmvUser::decode(&vec![0xd0; 1 << 20]).unwrap_err().errno(), Errno::EINVAL);

    let stripes = LmvMds::new(0, HashType::DEFAULT, vec![Fid::new(1, 1); 2]).encode();
    assert_eq!(LmvMds::decode(&stripes[..72]), Err(LmvError::Size { need: 88, have: 72 }));
    assert_eq!(LmvMds::decode(&stripes[..80]), Err(LmvError::Size { need: 72, have: 80 }));
    assert_eq!(LmvMds::decode(&good), Err(LmvError::BadMagic(MAGIC_USER)));
    let mut many = stripes[..56].to_vec();
    many[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(LmvMds::decode(&many).is_err());
}

#[test]
fn check_lmv_refuses_unknown_mdts_hashes_and_pools() {
    let check = |ask: &LmvUser| ask.check(&[0]).map_err(|e| e.errno());
    assert_eq!(check(&LmvUser::new(4)), Ok(()));
    assert_eq!(check(&LmvUser { mdt: Some(0), ..LmvUser::new(1) }), Ok(()));
    assert_eq!(check(&LmvUser { mdt: Some(9), ..LmvUser::new(1) }), Err(Errno::ENODEV));
    assert_eq!(check(&LmvUser::new(0).with_mdts(&[0, 1])), Err(Errno::ENODEV));
    assert_eq!(LmvUser::new(0).with_mdts(&[0, 1]).check(&[0, 1]), Ok(()));
    assert_eq!(check(&LmvUser { hash: HashType(5), ..LmvUser::new(1) }), Err(Errno::EINVAL));
    assert_eq!(check(&LmvUser { hash: HashType(0x0040_0002), ..LmvUser::new(1) }), Err(Errno::EINVAL));
    assert_eq!(check(&LmvUser { pool: *b"pool\0\0\0\0\0\0\0\0\0\0\0\0", ..LmvUser::new(1) }), Err(Errno::EINVAL));
    assert_eq!(LmvUser::new(0).with_mdts(&[0]).check_default(&[0]), Err(LmvError::ListInDefault));
    assert!(LmvUser::plain(0).check_default(&[0]).is_err());
}

#[test]
fn lmv_stripe_count_is_limited_by_the_number_of_mdts() {
    let over = |count| LmvUser { hash: HashType(HashType::OVERSTRIPED), ..LmvUser::new(count) };
    for (ask, on_one, on_two) in [
        (LmvUser::new(0), 0, 0),
        (LmvUser::new(1), 1, 1),
        (LmvUser::new(2), 1, 2),
        (LmvUser::new(5), 1, 2),
        (LmvUser::new(-1), 1, 2),
        (over(4), 4, 4),
        (over(11), 5, 10),
        (over(-2), 2, 4),
        (over(-5), 5, 10),
    ] {
        assert_eq!((ask.stripes_on(1), ask.stripes_on(2)), (on_one, on_two), "{ask:?}");
    }
    assert_eq!(over(2000).stripes_on(u32::MAX), 2000);
}

#[test]
fn lmv_default_is_inherited_for_max_inherit_levels() {
    let depth =
        |max_inherit, levels| LmvUser { max_inherit, ..LmvUser::new(2) }.inherited(levels).map(|d| d.max_inherit);
    assert_eq!((depth(3, 0), depth(3, 1), depth(3, 2), depth(3, 3)), (Some(3), Some(2), Some(1), None));
    assert_eq!((depth(1, 0), depth(1, 1)), (Some(1), None));
    assert_eq!((depth(INHERIT_NONE, 0), depth(INHERIT_NONE, 1)), (Some(INHERIT_NONE), None));
    assert_eq!(depth(INHERIT_UNLIMITED, 1000), Some(INHERIT_UNLIMITED));
    assert_eq!(depth(INHERIT_MAX, 249), Some(1));
    let rr = |levels| LmvUser::root_default().inherited(levels).unwrap().max_inherit_rr;
    assert_eq!((rr(0), rr(1), rr(2), rr(3), rr(300)), (3, 2, 1, 0, 0));
    let always = LmvUser { max_inherit_rr: INHERIT_RR_UNLIMITED, ..LmvUser::new(1) };
    assert_eq!(always.inherited(7).unwrap().max_inherit_rr, INHERIT_RR_UNLIMITED);
}

#[test]
fn hash_types_print_as_lustre_prints_them() {
    for (raw, text) in [
        (0, "none"),
        (1, "all_char"),
        (2, "fnv_1a_64"),
        (4, "crush2"),
        (5, "0x5"),
        (0x0100_0002, "fnv_1a_64,overstriped"),
        (0x8200_0003, "crush,migrating,fixed"),
        (0x0040_0000, "none,unknown_400000"),
    ] {
        assert_eq!(HashType(raw).to_string(), text);
    }
    assert_eq!(HashType::parse("crush"), Some(HashType(3)));
    assert_eq!(HashType::parse("4"), Some(HashType(4)));
    for text in ["none", "bogus", "", "0", "5", "03", "-1"] {
        assert_eq!(HashType::parse(text), None, "{text}");
    }
    assert_eq!(HashType(HashType::OVERSTRIPED).or_default().to_string(), "fnv_1a_64,overstriped");
}

/// Generates bytes that begin like a layout and continue randomly.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let magic = prop::sample::select(vec![MAGIC_V1, MAGIC_USER, MAGIC_SPECIFIC, MAGIC_FOREIGN, 0]);
    let bytes = prop::collection::vec(any::<u8>(), 40..200);
    (magic, 0u32..6, bytes, 0usize..6, any::<bool>()).prop_map(|(magic, count, mut bytes, stripes, user)| {
        bytes[..4].copy_from_slice(&magic.to_le_bytes());
        bytes[4..8].copy_from_slice(&count.to_le_bytes());
        // Only with a matching length do the other checks run.
        let fits = if user { USER_BYTES + stripes * USER_STRIPE_BYTES } else { MDS_BYTES + stripes * MDS_STRIPE_BYTES };
        if stripes < 5 {
            bytes.resize(fits, 7);
        }
        bytes
    })
}

proptest! {
    #[test]
    fn decoded_lmv_encodes_to_the_same_bytes(bytes in almost()) {
        if let Ok(user) = LmvUser::decode(&bytes) {
            prop_assert_eq!(user.encode(), bytes.clone());
            let _ = (user.check(&[0]), user.stripes_on(3), user.inherited(2), user.hash.to_string());
        }
        if let Ok(lmv) = LmvMds::decode(&bytes) {
            prop_assert_eq!(lmv.encode(), bytes);
        }
    }

    #[test]
    fn decode_lmv_never_panics_on_random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = (LmvUser::decode(&bytes), LmvMds::decode(&bytes));
    }
}
