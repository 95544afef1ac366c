package inference

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// version reads a policy version that servers write as a number or as text. One that is no version,
// such as vLLM's and SGLang's "default", says nothing.
type version struct {
	number int64
	known  bool
}

func (v *version) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(data), `"`), 10, 64)
	v.number, v.known = n, err == nil && n >= 0
	return nil
}

// versionSpans are the versions of an answer's tokens, read no further than it takes to say that
// they are too many. broken: they are no list of spans.
type versionSpans struct {
	list   []versionSpan
	broken bool
}

type versionSpan struct {
	version    version
	start, end int
}

// UnmarshalJSON has no error: the turn is good without its versions.
func (s *versionSpans) UnmarshalJSON(data []byte) error {
	var list [events.MaxVersionSpans + 1]element[struct {
		Version version `json:"version"`
		Start   *int    `json:"start"`
		End     *int    `json:"end"`
	}]
	*s = versionSpans{broken: json.Unmarshal(data, &list) != nil}
	for _, e := range values(list[:]) {
		if e.Start == nil || e.End == nil {
			s.broken = true
			return nil
		}
		s.list = append(s.list, versionSpan{e.Version, *e.Start, *e.End})
	}
	return nil
}

// readVersions gives a turn with some tokens, below 0 where they are not known, the versions that
// the server reports; `otherwise` is that of one which reports none, also of the parts of an answer
// whose server had none reported when it died. Spans that do not fit the tokens say nothing that
// can be trusted: the turn keeps its tokens, and its version is unknown.
func (r *Response) readVersions(t *events.TurnSampled, tokens int, otherwise int64) {
	spans := r.Choices[0].WeightVersions
	if spans.list == nil && !spans.broken {
		spans = r.Choices[0].MetaInfo.WeightVersions
	}
	said, known := make([]events.VersionSpan, len(spans.list)), false
	for i, s := range spans.list {
		said[i] = events.VersionSpan{Version: runfile.UnknownVersion, Start: s.start, End: s.end}
		switch {
		case s.version.known:
			said[i].Version, known = s.version.number, true
		case r.parts > 1 || r.recorded > 0:
			said[i].Version = otherwise
		}
	}
	switch {
	case spans.broken || events.CheckVersionSpans(said, tokens) != nil:
		t.PolicyVersion = runfile.UnknownVersion
		t.Lacks = append(t.Lacks, events.LackVersions)
	case known:
		t.SetVersions(said)
	default:
		t.PolicyVersion = r.labelled(otherwise)
	}
	if tokens < 0 {
		t.VersionSpans = nil
	}
}

// Version is the oldest version of the weights as the server labels the answer; known is
// false where it does not.
func (r *Response) Version() (version int64, known bool) {
	var t events.TurnSampled
	r.readVersions(&t, -1, runfile.UnknownVersion)
	return t.PolicyVersion, t.PolicyVersion != runfile.UnknownVersion
}

// labelled is the version of a label for the whole answer.
func (r *Response) labelled(otherwise int64) int64 {
	for _, v := range []version{r.WeightVersion, r.Choices[0].MetaInfo.WeightVersion, r.Metadata.WeightVersion} {
		if v.known {
			return v.number
		}
	}
	return otherwise
}
