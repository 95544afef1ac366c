package faults

import (
	"os"
	"strconv"
	"testing"
)

// seeds are those that a test tries: as many as CI has time for, but RONDO_FAULTS_SEED=17 is that one alone, and RONDO_FAULTS_SEEDS=200 the first 200.
func seeds(t *testing.T, ci int) []uint64 {
	number := func(name string, otherwise uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("%s=%q: give a number", name, text)
		}
		return n
	}
	if one := number("RONDO_FAULTS_SEED", 1<<62); one < 1<<62 {
		return []uint64{one}
	}
	var all []uint64
	for i := range number("RONDO_FAULTS_SEEDS", uint64(ci)) {
		all = append(all, i)
	}
	return all
}
