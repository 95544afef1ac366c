package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/storage"
)

// ErrNewer means that an event of a known type was written by a later version of Rondo, in a form that this one does not know. It must not be
// skipped, as a type may be that is unknown: what is decided without it would be wrong.
var ErrNewer = errors.New("written by a newer version of Rondo")

// upcaster makes a payload of one data version into one of the next. It is a pure function: an old event says the same for ever.
type upcaster func(payload []byte) ([]byte, error)

// upcasters lead from the first data version of a type to its current one. What is read is made new on its way; what stands on
// a log is never written again. To change a payload so that older readers or logs would not do, append an upcaster here: that is
// the new version, and ce-type says it from then on.
var upcasters = map[Type][]upcaster{
	BatchReadyType:     {filesOfBatch},
	GroupCompletedType: {shapedRewards},
	TurnSampledType:    {plainTokens, firstLayout},
	RolloutCopiedType:  {plainTokens, firstLayout},
}

// DataVersion is the version of a type's payloads as this program writes them, from 1.
func (t Type) DataVersion() int { return 1 + len(upcasters[t]) }

// cloudEvent is the ce-type of a payload of some data version.
func cloudEvent(t Type, version int) string {
	return "rondo.v" + strconv.Itoa(version) + "." + string(t)
}

// dataVersion reads the data version out of a ce-type. One that has none is of the first version.
func dataVersion(ceType string) int {
	digits, _, _ := strings.Cut(strings.TrimPrefix(ceType, "rondo.v"), ".")
	version, err := strconv.Atoi(digits)
	if err != nil || version < 1 {
		return 1
	}
	return version
}

// Upcast brings the payload of an event that was just read to the current data version of its type. It has to be called when Data is
// the body itself, not a reference to it. The error is ErrNewer, or ErrMalformed for a body that is not of its version.
func (e *Event) Upcast() error {
	if e.version == 0 || !e.Type.Known() {
		return nil
	}
	if e.version > e.Type.DataVersion() {
		return fmt.Errorf("%s: %w: its data version is %d, this program knows %d", e.ID, ErrNewer, e.version, e.Type.DataVersion())
	}
	for _, next := range upcasters[e.Type][e.version-1:] {
		payload, err := next(e.Data)
		if err != nil {
			return fmt.Errorf("%s: %w: data version %d: %w", e.ID, ErrMalformed, e.version, err)
		}
		e.Data = payload
	}
	e.version = 0
	return nil
}

// filesOfBatch: a batch was one file, before each data-parallel rank had its own. Events of the second form were written for a
// while before their ce-type said so.
func filesOfBatch(payload []byte) ([]byte, error) {
	var first struct {
		BatchReady
		File *storage.Ref `json:"file"`
	}
	if err := json.Unmarshal(payload, &first); err != nil {
		return nil, err
	}
	if first.File == nil {
		return payload, nil
	}
	first.Files = []storage.Ref{*first.File}
	return json.Marshal(first.BatchReady)
}

// shapedRewards: before rewards could be shaped, what the estimator compared was the reward itself.
func shapedRewards(payload []byte) ([]byte, error) {
	var first struct {
		Members []struct {
			Failed bool     `json:"failed"`
			Shaped *float64 `json:"shaped"`
		} `json:"members"`
	}
	if err := json.Unmarshal(payload, &first); err != nil {
		return nil, err
	}
	var completed GroupCompleted
	if err := json.Unmarshal(payload, &completed); err != nil {
		return nil, err
	}
	old := false
	for i, m := range first.Members {
		if m.Shaped == nil && !m.Failed {
			completed.Members[i].Shaped, old = completed.Members[i].Reward, true
		}
	}
	if !old {
		return payload, nil
	}
	return json.Marshal(completed)
}

// plainTokens: the first form had no packed bodies, and readers of today take both.
func plainTokens(payload []byte) ([]byte, error) {
	if !json.Valid(payload) {
		return nil, errors.New("the payload is not JSON")
	}
	return payload, nil
}

// firstLayout: the second form packed tokens in layout 1 alone, and readers of today take both.
func firstLayout(payload []byte) ([]byte, error) { return payload, nil }
