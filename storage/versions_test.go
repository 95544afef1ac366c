package storage_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/storage"
)

// versioned is a trajectory whose first turn was sampled with two versions and an unknown one.
func versioned() *storage.Trajectory {
	t := makeTrajectory(2, 6)
	m := &t.Messages[2]
	m.Versions = []storage.VersionSegment{{Start: 0, Length: 2, Version: 7}, {Start: 2, Length: 3, Version: 9},
		{Start: 5, Length: 1, Version: -1}}
	m.PolicyVersion = -1
	return t
}

// TestVersionsOfTokens: a message with tokens of several versions goes through a file, and its
// samples have them token by token.
func TestVersionsOfTokens(t *testing.T) {
	want := versioned()
	file := encodeTrajectory(t, want)
	got, err := storage.DecodeTrajectory(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("read back %+v: %v", got, err)
	}
	samples := got.Samples()
	segments := []storage.VersionSegment{{Start: 12, Length: 2, Version: 7}, {Start: 14, Length: 3, Version: 9},
		{Start: 17, Length: 1, Version: -1}, {Start: 24, Length: 6, Version: 7}}
	if len(samples) != 1 || !slices.Equal(samples[0].PolicyVersions, segments) {
		t.Errorf("the samples have %+v, want %+v", samples[0].PolicyVersions, segments)
	}
	if turns := []storage.TurnSpan{{Start: 12, Length: 6},
		{Start: 24, Length: 6, Turn: 1}}; !slices.Equal(samples[0].Turns, turns) {
		t.Errorf("the turns are %+v", samples[0].Turns)
	}
	m := &want.Messages[2]
	if low, high := m.VersionRange(); low != 7 || high != 9 || m.UnknownVersions() != 1 {
		t.Errorf("versions %d to %d, %d tokens of none", low, high, m.UnknownVersions())
	}
	m.LossMask[5], m.LossMask[1] = false, false // what was not sampled has no version
	if m.UnknownVersions() != 0 {
		t.Errorf("%d tokens of none", m.UnknownVersions())
	}
	segments = []storage.VersionSegment{{Start: 12, Length: 1, Version: 7}, {Start: 14, Length: 3, Version: 9},
		{Start: 24, Length: 6, Version: 7}}
	if samples := want.Samples(); !slices.Equal(samples[0].PolicyVersions, segments) {
		t.Errorf("the samples have %+v, want %+v", samples[0].PolicyVersions, segments)
	}
	for i := 0; i < len(file); i += 31 {
		damaged := bytes.Clone(file)
		damaged[i] ^= 0x41
		if got, err := storage.DecodeTrajectory(damaged); err == nil && !reflect.DeepEqual(got, versioned()) {
			t.Fatalf("byte %d damaged: read as another trajectory", i)
		}
	}
}

// TestVersionsThatDoNotFit: spans that leave tokens out, or of which the message's own version is
// not the oldest, are in no file.
func TestVersionsThatDoNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		version  int64
		segments []storage.VersionSegment
	}{
		"a gap":            {7, []storage.VersionSegment{{Length: 2, Version: 7}, {Start: 3, Length: 4, Version: 8}}},
		"an overlap":       {7, []storage.VersionSegment{{Length: 4, Version: 7}, {Start: 3, Length: 2, Version: 8}}},
		"a late beginning": {7, []storage.VersionSegment{{Start: 1, Length: 6, Version: 7}}},
		"an early end":     {7, []storage.VersionSegment{{Length: 5, Version: 7}}},
		"beyond the end":   {7, []storage.VersionSegment{{Length: 7, Version: 7}}},
		"an empty span":    {7, []storage.VersionSegment{{Length: 6, Version: 7}, {Start: 6, Version: 8}}},
		"far beyond": {7, []storage.VersionSegment{{Length: 1<<31 - 1, Version: 7},
			{Start: 1<<31 - 1, Length: 1<<31 - 1, Version: 7}}},
		"a version below -1": {-2, []storage.VersionSegment{{Length: 6, Version: -2}}},
		"not the oldest":     {8, []storage.VersionSegment{{Length: 2, Version: 7}, {Start: 2, Length: 4, Version: 8}}},
	} {
		tr := makeTrajectory(2, 6)
		tr.Messages[2].PolicyVersion, tr.Messages[2].Versions = c.version, c.segments
		if _, err := storage.EncodeTrajectory(tr); err == nil || errors.Is(err, storage.ErrTooLarge) {
			t.Errorf("%s is written: %v", name, err)
		}
	}
}
