package runfile

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestSampled: the Python client has the same table, so that a product in any language
// samples as the intake does.
func TestSampled(t *testing.T) {
	for session, share := range map[string]float64{
		"": 0.8894, "s1": 0.9091, "anna": 0.3334, "42": 0.4503, "сессия-7": 0.4620,
	} {
		t.Run(session, func(t *testing.T) {
			if Sampled(session, share-0.0002) || !Sampled(session, share+0.0002) {
				t.Errorf("session %q does not change sides at %g", session, share)
			}
		})
	}
	in := 0
	for i := range 10000 {
		session := fmt.Sprint("session-", i)
		if Sampled(session, 0.1) {
			in++
			if !Sampled(session, 0.2) {
				t.Errorf("%s is in at 0.1 and out at 0.2", session)
			}
		}
		if Sampled(session, 0) || !Sampled(session, 1) {
			t.Errorf("%s: none are in at 0 and all at 1", session)
		}
	}
	if in < 900 || in > 1100 { // 3.3 standard deviations; it never changes
		t.Errorf("%d of 10000 sessions are in a share of 0.1", in)
	}
}

func TestFeatures(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*RunConfig)
		want   string // "" is valid
	}{
		"none": {func(c *RunConfig) {}, ""},
		"all":  {func(c *RunConfig) { c.Features, c.Traffic = Features, Traffic{Rate: 0.5} }, ""},
		"an unknown one": {func(c *RunConfig) { c.Features = []string{"warp"} },
			`"warp": there are only [user_traffic user_repositories feedback_rewards redact_secrets codebase_search]`},
		"one twice": {func(c *RunConfig) {
			c.Features = []string{FeatureFeedbackRewards,
				FeatureFeedbackRewards}
		}, "appears twice"},
		"traffic without it": {func(c *RunConfig) { c.Traffic.Rate = 1 }, "add user_traffic to its features"},
		"it without a rate":  {func(c *RunConfig) { c.Features = []string{FeatureUserTraffic} }, "traffic.rate 0"},
		"a rate that is none": {func(c *RunConfig) {
			c.Features, c.Traffic = []string{FeatureUserTraffic},
				Traffic{Rate: 1.5}
		}, "traffic.rate 1.5"},
		"a consent that is odd": {func(c *RunConfig) {
			c.Features, c.Traffic = Features,
				Traffic{Rate: 1, Consent: "maybe"}
		}, `traffic.consent "maybe"`},
		"a negative budget": {func(c *RunConfig) { c.Limits.BudgetTokens = -1 }, "budget_tokens -1"},
		"negative window":   {func(c *RunConfig) { c.Limits.FailureWindow = -1 }, "failure_window -1"},
		"untrainable":       {func(c *RunConfig) { c.Limits.UntrainableGroups = -7 }, "untrainable_groups -7"},
		"no signal":         {func(c *RunConfig) { c.Limits.NoSignalGroups = 5000 }, "no_signal_groups 5000"},
		"a negative gap":    {func(c *RunConfig) { c.Limits.LogprobGap = -0.5 }, "logprob_gap -0.5"},
		"no gap":            {func(c *RunConfig) { c.Limits.LogprobGap = math.NaN() }, "logprob_gap NaN"},
		"negative groups":   {func(c *RunConfig) { c.Limits.HopelessGroups = -1 }, "hopeless_groups -1"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := DefaultRunConfig()
			cfg.Policy, cfg.External = "small", true
			c.change(&cfg)
			err := cfg.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		})
	}
}

// TestRefusal: without a word in the run file nothing of users is taken, and without their consent
// nothing unless it says so.
func TestRefusal(t *testing.T) {
	taken, left := "anna", "s1" // their hashes are 0.33 and 0.91
	for _, c := range []struct {
		features []string
		traffic  Traffic
		session  string
		consent  bool
		want     string
	}{
		{nil, Traffic{}, taken, true, "features: "},
		{[]string{FeatureFeedbackRewards}, Traffic{}, taken, true, "features: "},
		{[]string{FeatureUserTraffic}, Traffic{Rate: 0.5}, taken, false, "consent: "},
		{[]string{FeatureUserTraffic}, Traffic{Rate: 0.5, Consent: ConsentRequired}, taken, false, "consent: "},
		{[]string{FeatureUserTraffic}, Traffic{Rate: 0.5, Consent: ConsentOptional}, taken, false, ""},
		{[]string{FeatureUserTraffic}, Traffic{Rate: 0.5}, taken, true, ""},
		{[]string{FeatureUserTraffic}, Traffic{Rate: 0.5}, left, true, "session: it is not"},
		{[]string{FeatureUserTraffic}, Traffic{Rate: 0.5}, "", true, "session: name it"},
		{[]string{FeatureUserTraffic}, Traffic{Rate: 1}, "", true, ""},
		{[]string{FeatureUserTraffic}, Traffic{Rate: 1}, left, true, ""},
	} {
		cfg := RunConfig{Features: c.features, Traffic: c.traffic}
		got := cfg.Refusal(c.session, c.consent)
		if got == "" != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%v %+v, session %q, consent %t: %q, want %q", c.features, c.traffic,
				c.session, c.consent, got, c.want)
		}
	}
}
