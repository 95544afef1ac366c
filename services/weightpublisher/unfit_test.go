package weightpublisher

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/weights"
)

// outcome is what becomes of a submission: nothing, or why it was rejected.
func outcome(t *testing.T, log *eventlog.Log, policy string, wish events.WeightsSubmitted) string {
	t.Helper()
	s := &Service{store: log.Store(), logger: slog.New(slog.DiscardHandler)}
	id := fmt.Sprint(len(servicetest.All(t, log, events.Catalogue, events.WeightsSubmittedType)))
	submitted := servicetest.Append(t, log, servicetest.Event(t, events.Catalogue,
		events.WeightsSubmittedType, policy, id, wish))
	if err := s.effect().Record(t.Context(), pipeline.Env{Log: log}, message(submitted)); err != nil {
		t.Fatal(err)
	}
	for _, e := range servicetest.All(t, log, events.Catalogue, events.WeightsRejectedType) {
		if e.Entity == policy && strings.HasSuffix(e.ID, fmt.Sprintf("/submission-%d", submitted.Seq)) {
			return servicetest.Data[events.WeightsRejected](t, e).Reason
		}
	}
	servicetest.WaitData[events.WeightsPublished](t, log, events.Catalogue, events.WeightsPublishedType, policy)
	return ""
}

// uploaded is a file where a trainer of the policy puts it.
func uploaded(t *testing.T, log *eventlog.Log, policy string, data []byte) events.WeightsFile {
	t.Helper()
	ref, err := weights.Upload(t.Context(), log.Store(), policy, bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return events.WeightsFile{Name: "model.safetensors", Blob: ref}
}

// TestUnfitWeights: a trainer learns which tensor of its own files is wrong, and of a blob,
// which may be another one's, only that something is. It publishes the same with the
// exception that the reason names.
func TestUnfitWeights(t *testing.T) {
	log := natstest.Log(t)
	nan := safetensors(1, float32(math.NaN()))
	own := uploaded(t, log, "small", nan)
	if reason := outcome(t, log, "small", events.WeightsSubmitted{Version: 1, Run: "r",
		Files: []events.WeightsFile{own}}); !strings.Contains(reason, `tensor "w": element 1 is NaN`) {
		t.Errorf("the trainer is told %q", reason)
	}
	if reason := outcome(t, log, "foreign", events.WeightsSubmitted{Version: 1, Run: "r",
		Files: []events.WeightsFile{file(t, log, "model.safetensors", nan)}}); !strings.Contains(reason,
		"unfit weights; the operator") {
		t.Errorf("of a blob %q is told", reason)
	}
	lies := uploaded(t, log, "small", withHeader(`{"w":{"dtype":"F32","shape":[9],"data_offsets":[0,8]}}`, 1, 2))
	if reason := outcome(t, log, "small", events.WeightsSubmitted{Version: 1, Run: "r",
		Files: []events.WeightsFile{lies}}); !strings.Contains(reason, `tensor "w": shape [9]`) {
		t.Errorf("of a header that lies %q is told", reason)
	}
	allowed := events.WeightsSubmitted{Version: 1, Run: "r", Files: []events.WeightsFile{own},
		Allow: []string{weights.AllowNotFinite}}
	if reason := outcome(t, log, "small", allowed); reason != "" {
		t.Errorf("allowed: %s", reason)
	}
	other := events.WeightsSubmitted{Version: 2, Run: "r",
		Files: []events.WeightsFile{uploaded(t, log, "small", safetensors(1, 2, 3))}}
	if reason := outcome(t, log, "small", other); !strings.Contains(reason,
		`tensor "w" has the shape [3], and had [2]`) {
		t.Errorf("another shape: %q", reason)
	}
}

// TestGap: a version leaves out as many numbers as steps were trained since the last one, of the
// same run or of another one, and no more.
func TestGap(t *testing.T) {
	log := natstest.Log(t)
	for i, c := range []struct {
		version, step int64
		run           string
		allow         []string
		want          string
	}{
		{6, 6, "a", nil, ""}, // the first may have any number
		{99, 6, "a", nil, "want 7 at most"},
		{99, 16, "a", nil, "want 16 at most"},
		{8, 0, "a", nil, "want 7 at most"},
		{16, 16, "a", nil, ""},
		{17, 3, "a", nil, ""}, // went back to a checkpoint
		{28, 10, "b", nil, "want 27 at most"},
		{27, 10, "b", nil, ""},
		{99, 10, "b", []string{weights.AllowGap}, ""},
	} {
		wish := events.WeightsSubmitted{Version: c.version, Run: c.run, ThroughStep: c.step,
			Files: []events.WeightsFile{model(t, log, float32(i))}, Allow: c.allow}
		if reason := outcome(t, log, "small", wish); c.want == "" && reason != "" || !strings.Contains(reason, c.want) {
			t.Errorf("version %d: %q, want %q", c.version, reason, c.want)
		}
	}
}
