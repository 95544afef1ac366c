package events

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// MaxVersionSpans bounds the spans of one turn: weights change every few seconds at most,
// and a turn takes minutes.
const MaxVersionSpans = 256

// VersionSpan says which policy version sampled the tokens of a turn from Start to before End; -1
// where nobody reported it.
type VersionSpan struct {
	Version int64 `json:"version" jsonschema:"minimum=-1"`
	Start   int   `json:"start" jsonschema:"minimum=0"`
	End     int   `json:"end" jsonschema:"minimum=1"`
}

// CheckVersionSpans refuses spans that do not say of each token exactly one version; tokens
// below 0 are not counted.
func CheckVersionSpans(spans []VersionSpan, tokens int) error {
	if len(spans) > MaxVersionSpans {
		return fmt.Errorf("%d spans, at most %d are allowed", len(spans), MaxVersionSpans)
	}
	end := 0
	for i, s := range spans {
		if s.Start != end || s.End <= s.Start || s.Version < runfile.UnknownVersion {
			return fmt.Errorf("span %d (version %d, tokens %d to %d) does not continue at token %d", i,
				s.Version, s.Start, s.End, end)
		}
		end = s.End
	}
	if tokens >= 0 && len(spans) > 0 && end != tokens {
		return fmt.Errorf("the spans end at token %d of %d", end, tokens)
	}
	return nil
}

// SetVersions gives a turn the versions of its tokens, which CheckVersionSpans has passed.
// Neighbours of one version become one span; a turn of one version has no spans.
func (t *TurnSampled) SetVersions(spans []VersionSpan) {
	t.PolicyVersion, t.VersionSpans = oldest(spans), merged(spans)
	if len(t.VersionSpans) == 1 {
		t.VersionSpans = nil
	}
}

// merged are spans in which neighbours of one version are one.
func merged(spans []VersionSpan) (fewer []VersionSpan) {
	for _, s := range spans {
		if n := len(fewer); n > 0 && fewer[n-1].Version == s.Version {
			fewer[n-1].End = s.End
			continue
		}
		fewer = append(fewer, s)
	}
	return fewer
}

// SpansBetween are the spans of the tokens from one to before another, counted
// from the first of these.
func SpansBetween(spans []VersionSpan, from, to int) (between []VersionSpan) {
	for _, s := range spans {
		if s.Start, s.End = max(s.Start, from)-from, min(s.End, to)-from; s.Start < s.End {
			between = append(between, s)
		}
	}
	return merged(between)
}

// oldest is the oldest version of some spans, and unknown where one is.
func oldest(spans []VersionSpan) int64 {
	if len(spans) == 0 {
		return runfile.UnknownVersion
	}
	return slices.MinFunc(spans, func(a, b VersionSpan) int { return cmp.Compare(a.Version, b.Version) }).Version
}

// LatestVersion is the version of the turn's last tokens.
func (t TurnSampled) LatestVersion() int64 {
	if n := len(t.VersionSpans); n > 0 {
		return t.VersionSpans[n-1].Version
	}
	return t.PolicyVersion
}

// RowVersions are the turn's spans as those of a trajectory's row.
func (t TurnSampled) RowVersions() []storage.VersionSegment {
	var segments []storage.VersionSegment
	for _, s := range t.VersionSpans {
		segments = append(segments, storage.VersionSegment{Start: int32(s.Start),
			Length: int32(s.End - s.Start), Version: s.Version})
	}
	return segments
}
