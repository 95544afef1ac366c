package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// Difference is a recorded fact, or a part of it, that does not come out again.
type Difference struct {
	Event    string `json:"event"`
	Sequence uint64 `json:"sequence"`
	// Field is the attribute that differs. Within a payload it is the path of the value:
	// data.members[2].advantage.
	Field      string `json:"field"`
	Recorded   string `json:"recorded"`
	Recomputed string `json:"recomputed"`
}

// Bounds of what is said about one fact.
const (
	mostDifferences = 20
	longestValue    = 300 // bytes
)

// absent stands for a value that one side does not have.
const absent = "absent"

// Differences compares a recorded fact with the recomputed one: payload, subject and chain. It
// names each value of the payload that differs, up to a bound; texts of the same value that are
// written differently differ as a whole.
func Differences(recorded, recomputed events.Event) (all []Difference) {
	add := func(field, was, is string) {
		if was != is && len(all) < mostDifferences {
			all = append(all, Difference{Event: recorded.ID, Sequence: recorded.Seq, Field: field,
				Recorded: shorten(was), Recomputed: shorten(is)})
		}
	}
	if !bytes.Equal(recorded.Data, recomputed.Data) {
		was, is, ok := values(recorded.Data, recomputed.Data)
		if ok {
			compareValues("data", was, is, add)
		}
		if len(all) == 0 {
			add("data", string(recorded.Data), string(recomputed.Data))
		}
	}
	add("subject", recorded.Subject(), recomputed.Subject())
	add("prev", fmt.Sprint(recorded.Prev), fmt.Sprint(recomputed.Prev))
	return all
}

// values decodes two payloads, with numbers as they are written.
func values(a, b []byte) (was, is any, ok bool) {
	decode := func(data []byte, into *any) bool {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		return d.Decode(into) == nil
	}
	ok = decode(a, &was) && decode(b, &is)
	return was, is, ok
}

// compareValues walks two JSON values side by side.
func compareValues(path string, was, is any, add func(field, was, is string)) {
	switch w := was.(type) {
	case map[string]any:
		if i, ok := is.(map[string]any); ok {
			keys := slices.Collect(maps.Keys(w))
			for key := range i {
				if _, both := w[key]; !both {
					keys = append(keys, key)
				}
			}
			slices.Sort(keys)
			for _, key := range keys {
				compareValues(path+"."+key, valueOf(w, key), valueOf(i, key), add)
			}
			return
		}
	case []any:
		if i, ok := is.([]any); ok {
			for k := range max(len(w), len(i)) {
				compareValues(fmt.Sprintf("%s[%d]", path, k), element(w, k), element(i, k), add)
			}
			return
		}
	}
	add(path, text(was), text(is))
}

// missing is a value that is not there; null is one.
type missing struct{}

func valueOf(m map[string]any, key string) any {
	if v, ok := m[key]; ok {
		return v
	}
	return missing{}
}

func element(s []any, i int) any {
	if i < len(s) {
		return s[i]
	}
	return missing{}
}

func text(v any) string {
	if _, ok := v.(missing); ok {
		return absent
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// shorten bounds a value that is shown.
func shorten(s string) string {
	if len(s) > longestValue {
		return strings.ToValidUTF8(s[:longestValue], "") + fmt.Sprintf("… (%d bytes)", len(s))
	}
	return s
}
