//! The named profiles are what their clauses say.

use flashproof_spec::format::Format;
use flashproof_spec::profile::{
    Accumulation, LogError, MaxPolicy, Normalizer, Profile, Schedule, Weights,
};

#[test]
fn standard_profile_is_as_its_clause_says() {
    for format in Format::ALL {
        let profile = Profile::standard(format);
        let wide = if format == Format::F64 { Format::F64 } else { Format::F32 };
        assert_eq!(profile.arithmetic, wide);
        assert_eq!(profile.score_accumulation, Accumulation::Ieee { format: wide, depth: None });
        assert_eq!(profile.value_accumulation, Accumulation::Ieee { format: wide, depth: None });
        assert_eq!(profile.exp_ulp, 2.5);
        assert_eq!(profile.tanh_ulp, 2.5);
        assert_eq!(profile.division_ulp, 2.5);
        assert_eq!(profile.score_format, wide);
        let narrower = format.precision() < wide.precision();
        assert_eq!(profile.weight_format, if narrower { format } else { wide });
        assert_eq!(profile.weights, Weights::Unnormalized);
        assert_eq!(profile.normalizer, Normalizer::Unrounded);
        assert_eq!(profile.normalizer_depth, None);
        assert_eq!(profile.schedule, Schedule::Undeclared);
        assert_eq!(profile.max_policy, None);
        assert_eq!(profile.carried_format, wide);
        assert!(!profile.flush_to_zero);
        assert_eq!(profile.lse_format, wide);
    }
}

#[test]
fn dense_profile_is_as_its_clause_says() {
    for format in Format::ALL {
        let standard = Profile::standard(format);
        let expected = Profile {
            weights: Weights::Normalized,
            weight_format: standard.arithmetic,
            schedule: Schedule::Dense,
            ..standard
        };
        assert_eq!(Profile::dense(format), expected);
    }
}

#[test]
fn a_schedule_rescales_once_less_than_it_has_blocks() {
    assert_eq!(Schedule::Dense.rescalings(1000), 0);
    assert_eq!(Schedule::Blocks(64).rescalings(0), 0);
    assert_eq!(Schedule::Blocks(64).rescalings(64), 0);
    assert_eq!(Schedule::Blocks(64).rescalings(65), 1);
    assert_eq!(Schedule::Blocks(0).rescalings(3), 2);
    assert_eq!(Schedule::Undeclared.rescalings(3), 2);
    assert_eq!(Schedule::Undeclared.rescalings(0), 0);
}

#[test]
fn profiles_survive_json() {
    let tensor_core = Accumulation::TensorCore { chunk: 16, fraction_bits: 25, output_bits: 23 };
    let profile = Profile {
        score_accumulation: tensor_core,
        log: LogError { absolute: 0.5, ulp: 1.0 },
        schedule: Schedule::Blocks(128),
        max_policy: Some(MaxPolicy::Running),
        ..Profile::standard(Format::E4m3)
    };
    let json = serde_json::to_string(&profile).expect("a profile");
    assert_eq!(serde_json::from_str::<Profile>(&json).expect("the same"), profile);
}
