package verifier

import mathrand "math/rand/v2"

// RunInProcess scores a task with separate tests as a machine without namespaces does.
func RunInProcess(spec Spec) Spec {
	spec.Separate, spec.standIn = false, true
	return spec
}

// FurtherRuns is how often the tests run again before a reward counts.
const FurtherRuns = furtherRuns

// Deal says of each further run whether its expectations are wrong.
func Deal(random *mathrand.Rand) [FurtherRuns]bool { return deal(random) }

// WithRandom makes the choices of further runs those of random.
func WithRandom(spec Spec, random *mathrand.Rand) Spec {
	spec.random = random
	return spec
}
