// Package nightly says how long tests go on: briefly in .ci/run, and as long as it takes in
// .ci/nightly, which sets RONDO_NIGHTLY=1.
package nightly

import (
	"fmt"
	"os"
	"testing"
)

// On says whether tests may take as long as they like.
func On() bool { return enabled(os.Getenv("RONDO_NIGHTLY")) }

// enabled reads the variable. A value that nobody knows would shorten a night in silence.
func enabled(value string) bool {
	switch value {
	case "":
		return false
	case "1":
		return true
	}
	panic(fmt.Sprintf("RONDO_NIGHTLY=%q: set it to 1, or not at all", value))
}

// Only skips a test that takes too long for .ci/run.
func Only(t testing.TB) {
	t.Helper()
	if !On() {
		t.Skip("takes too long for .ci/run: set RONDO_NIGHTLY=1")
	}
}

// Count is how often a test repeats something: as seldom as shows a fault, or as
// often as a night allows.
func Count(day, night int) int {
	if On() {
		return night
	}
	return day
}
