package dashboard

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestAnswerUnderWay: the page of a rollout in flight has the tokens of the answer that is being
// sampled, and follows it until the answer is whole.
func TestAnswerUnderWay(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	const id, page = "g000001-0", "/runs/live/rollouts/g000001-0"
	d.state(events.GroupOpenedType, "g000001", "0", events.GroupOpened{Task: "fix", Size: 1})
	servicetest.StartRollout(d, d.log, "live", id, "fix")
	if text := d.show(page); strings.Contains(text, "under way") ||
		!strings.Contains(text, `id="live" data-every="2000"`) {
		t.Errorf("nothing is sampled yet, and the page follows:\n%s", text)
	}
	ids := make([]int32, lastTokens+50)
	for i := range ids {
		ids[i] = int32(1000 + i)
	}
	began := time.Now().UTC()
	piece := func(n, offset int, ids []int32, version int64, sent time.Time) {
		d.state(events.PieceSampledType, id, "0-"+events.Ordinal(n),
			events.PieceSampled{Prompt: "p", Offset: offset, TokenIDs: ids,
				Logprobs:     slices.Repeat([]float32{-0.5}, len(ids)),
				VersionSpans: []events.VersionSpan{{Version: version, End: len(ids)}},
				StartedAt:    sent, LatencyMS: 1500})
	}
	piece(0, 0, ids, 3, began)
	d.has(page, "Turn 0 is under way", "250 tokens so far, version 3, in 1.5 s. These are the last ones:",
		"<code>text-1249</code><small>0.607</small>", `start="50"`)
	if text := d.show(page); strings.Contains(text, "text-1049<") {
		t.Error("more than the last tokens are shown")
	}
	piece(1, len(ids), []int32{7}, 4, began.Add(time.Minute))
	d.has(page, "251 tokens so far, versions 3 to 4, in 3.0 s, by 2 requests", "<code>text-7</code>")
	d.state(events.TurnSampledType, id, "0", events.TurnSampled{NewSegment: true, Content: "whole",
		TokenIDs: append(ids, 7), Logprobs: slices.Repeat([]float32{-0.5}, len(ids)+1)})
	if text := d.show(page); strings.Contains(text, "under way") || !strings.Contains(text, "whole") {
		t.Errorf("the answer is whole:\n%s", text)
	}
	piece2 := events.PieceSampled{Turn: 1, Prompt: "q", TokenIDs: []int32{9}, Logprobs: []float32{-1},
		VersionSpans: []events.VersionSpan{{Version: -1, End: 1}}, StartedAt: began}
	d.state(events.PieceSampledType, id, "1-0", piece2)
	d.has(page, "Turn 1 is under way", "1 tokens so far, version unknown")
	d.state(events.RolloutFailedType, id, "0", events.RolloutFailed{Stage: events.StageGenerator,
		Class: events.ClassDeadline})
	if text := d.show(page); strings.Contains(text, "under way") || strings.Contains(text, "data-every") {
		t.Errorf("the rollout has failed, and the page is still:\n%s", text)
	}
}

// TestRolloutOfClosedRun: a rollout that a run left without an outcome gets none any more,
// so its page does not ask.
func TestRolloutOfClosedRun(t *testing.T) {
	d := newDesk(t)
	d.openRun()
	d.state(events.GroupOpenedType, "g000001", "0", events.GroupOpened{Task: "fix", Size: 1})
	servicetest.StartRollout(d, d.log, "live", "g000001-0", "fix")
	d.has("/runs/live/rollouts/g000001-0", `id="live" data-every="2000"`)
	servicetest.CloseRun(d, d.log, "live")
	if text := d.show("/runs/live/rollouts/g000001-0"); !strings.Contains(text, "in flight") ||
		strings.Contains(text, "data-every") {
		t.Errorf("the run is closed:\n%s", text)
	}
}
