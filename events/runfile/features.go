package runfile

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// Features of a run: what may go wrong, or changes what a model sees, in ways that no default
// should risk, so a run says that it wants it. Without any, a run takes nothing that people wrote
// or judged, and records what tools answer as it is.
const (
	// FeatureUserTraffic lets users' queries in, and makes outsiders' groups users'
	// sessions; Traffic says whose.
	FeatureUserTraffic = "user_traffic"
	// FeatureUserRepositories lets users' queries bring the repository that they are about.
	FeatureUserRepositories = "user_repositories"
	// FeatureFeedbackRewards lets users' feedback be the reward of rollouts that have no verifier.
	FeatureFeedbackRewards = "feedback_rewards"
	// FeatureRedactSecrets takes secrets out of what tools answer, before the
	// log and the model have it.
	FeatureRedactSecrets = "redact_secrets"
	// FeatureCodebaseSearch offers the tool codebase_search, over an index of the task's snapshot.
	FeatureCodebaseSearch = "codebase_search"
)

// Features lists all of them.
var Features = []string{FeatureUserTraffic, FeatureUserRepositories, FeatureFeedbackRewards,
	FeatureRedactSecrets, FeatureCodebaseSearch}

// Has reports whether the run has a feature.
func (c *RunConfig) Has(feature string) bool { return slices.Contains(c.Features, feature) }

// What Traffic.Consent may be.
const (
	ConsentRequired = "required"
	ConsentOptional = "optional"
)

// Traffic says which users' sessions a run takes.
type Traffic struct {
	// Rate is the share of the sessions, above 0 and at most 1. A session is in or out
	// as a whole, see Sampled.
	Rate float64 `json:"rate" yaml:"rate"`
	// Consent is whether only those are taken who have agreed; "" is required.
	Consent string `json:"consent,omitempty" yaml:"consent" absent:"required"`
}

// ConsentNeeded reports whether only those are taken who have agreed.
func (t Traffic) ConsentNeeded() bool { return t.Consent != ConsentOptional }

// Sampled reports whether a session belongs to a share of all sessions. It follows from the id
// alone, so every process of a product finds the same, in any language; and what is in at one rate
// is in at every higher one.
func Sampled(session string, rate float64) bool {
	sum := sha256.Sum256([]byte(session))
	const bits = 53 // those of a float64: the division is exact
	return float64(binary.BigEndian.Uint64(sum[:8])>>(64-bits))/(1<<bits) < rate
}

// Refusal says why the run takes nothing of a session, "" when it does.
func (c *RunConfig) Refusal(session string, consent bool) string {
	switch {
	case !c.Has(FeatureUserTraffic):
		return fmt.Sprintf("features: the run takes no users' traffic; runs that do have %s", FeatureUserTraffic)
	case c.Traffic.ConsentNeeded() && !consent:
		return "consent: the run takes nothing of users who have not agreed"
	case session == "" && c.Traffic.Rate < 1:
		return fmt.Sprintf("session: name it, as the run takes a share of %g of all sessions", c.Traffic.Rate)
	case !Sampled(session, c.Traffic.Rate):
		return fmt.Sprintf("session: it is not in the share of %g of all sessions that the run takes", c.Traffic.Rate)
	}
	return ""
}

// validateFeatures checks what the run takes of users.
func (c *RunConfig) validateFeatures() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for i, f := range c.Features {
		check(slices.Contains(Features, f), "features: %.80q: there are only %v", f, Features)
		check(!slices.Contains(c.Features[:i], f), "features: %.80q appears twice", f)
	}
	check(!c.Has(FeatureUserRepositories) || c.Has(FeatureUserTraffic),
		"features: %s needs %s", FeatureUserRepositories, FeatureUserTraffic)
	if c.Has(FeatureUserTraffic) {
		check(c.Traffic.Rate > 0 && c.Traffic.Rate <= 1,
			"traffic.rate %g: say which share of the sessions the run takes, above 0 and at most 1", c.Traffic.Rate)
		check(c.Traffic.Consent == "" || c.Traffic.Consent == ConsentRequired ||
			c.Traffic.Consent == ConsentOptional, "traffic.consent %.80q: must be %s or %s",
			c.Traffic.Consent, ConsentRequired, ConsentOptional)
		return errs
	}
	check(c.Traffic == Traffic{}, "traffic: the run takes none; add %s to its features", FeatureUserTraffic)
	return errs
}
