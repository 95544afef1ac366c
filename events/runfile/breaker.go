package runfile

import "fmt"

// validateBreaker checks the settings of the circuit breaker.
func (l Limits) validateBreaker() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	window := l.FailureWindow
	check(window >= 0 && window <= 10000, "limits.failure_window %d: must be 0 to 10000 groups", window)
	check(l.UntrainableGroups >= 0 && l.UntrainableGroups <= 10000,
		"limits.untrainable_groups %d: must be 0 to 10000", l.UntrainableGroups)
	check(l.NoSignalGroups >= 0 && l.NoSignalGroups <= 4096,
		"limits.no_signal_groups %d: must be 0 to 4096", l.NoSignalGroups)
	check(l.LogprobGap >= 0 && l.LogprobGap <= 1e6, "limits.logprob_gap %g: must be 0 to 1000000 nats; 0 never pauses",
		l.LogprobGap)
	return errs
}
